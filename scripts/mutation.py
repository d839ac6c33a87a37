"""Change one operator, number or condition of the code at a time and list the changes that no test notices.

    python scripts/mutation.py --mutants 40 --seed 0 losses lists metrics/_ndcg.py

cosmic-ray makes the mutants; those that change annotations only are left out. A target is a package or some modules.
Mutants are drawn at random, the same for the same seed, in proportion to those of each module. Each is tried on the
target's tests that run the changed statement, the quickest first. It runs in a forked process, so torch is imported
once, and the files on disk stay as they are.

Survivors are printed as JSON lines. Those that no test can notice are listed in the file `EQUIVALENT`, each with the
reason. The table has the share that was killed of the others, with its 95 % interval (Wilson).
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from math import sqrt
from pathlib import Path
from types import ModuleType

import coverage
import pytest
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names
from hypothesis import Phase, settings

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "rankwise"
EQUIVALENT = ROOT / "benchmarks" / "trust" / "results" / "equivalent_mutants.jsonl"
# Of each target its modules, below the package, and the tests that state what they do, the cheapest first.
TARGETS = {
    "losses": (["losses"], ["losses"]),
    "metrics": (["metrics"], ["metrics", "fuzz/test_metrics.py"]),
    "estimators": (
        ["estimators"],
        ["estimators", "losses/test_auprc.py", "losses/test_sampled_lists.py", "losses/test_top_k_ndcg.py",
         "fuzz/test_estimators.py"],
    ),
    "pairs": (["pairs"], ["pairs", "losses/test_auprc.py", "losses/test_contract.py"]),
    "lists": (
        ["lists.py"],
        ["test_lists.py", "metrics/test_inputs.py", "metrics/test_ap.py", "metrics/test_ndcg.py",
         "losses/test_auprc.py", "losses/test_contract.py", "losses/test_refusals.py", "metrics/test_contract.py"],
    ),
    "ranks": (
        ["ranks.py", "surrogates.py", "sorting.py"],
        ["test_ranks.py", "test_surrogates.py", "test_sorting.py", "test_gains.py", "losses/test_auprc.py",
         "losses/test_ndcg.py", "losses/test_contract.py", "metrics/test_contract.py"],
    ),
    "schemas": (
        ["data/schema.py", "data/tables.py", "data/features.py", "data/sparse_schema.py", "data/interaction_schema.py",
         "data/images.py", "data/detection.py", "data/text.py"],
        ["data", "problems/test_contract.py", "runs/test_run.py"],
    ),
}  # fmt: skip
# Other processes import the files on disk.
OTHER_PROCESSES = ["--ignore=tests/losses/test_distributed.py", "--ignore=tests/losses/test_unlike_ranks.py"]
# Those of cosmic-ray's operators whose mutants are no plain errors of type, which every test would notice.
OPERATORS = re.compile(
    r"core/(ReplaceBinaryOperator_((Add|Sub|Mul|Div)_(Add|Sub|Mul|Div)|BitAnd_BitOr|BitOr_BitAnd)"
    r"|ReplaceComparisonOperator_((Eq|NotEq|[LG]tE?)_(Eq|NotEq|[LG]tE?)|Is_IsNot|IsNot_Is)"
    r"|ReplaceUnaryOperator_Delete_.*|AddNot|Replace(True|False|And|Or|Break|Continue)With.*"
    r"|NumberReplacer|ZeroIterationForLoop)"
)
# Imported once, before the processes fork.
SHARED = ("torch", "torchmetrics", "sklearn.metrics", "hypothesis.strategies", "polars", "pytorch_metric_learning")
PYTEST = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore::pytest.PytestAssertRewriteWarning"]


class Mutated(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Import one module from the given source instead of its file."""

    def __init__(self, path: Path, source: str) -> None:
        self.name = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
        self.path, self.source = path, source

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_file_location(name, self.path, loader=self) if name == self.name else None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self.source, self.path, "exec"), module.__dict__)  # noqa: S102


@cache
def points(path: Path) -> list[tuple[object, int]]:
    """Return every operator and occurrence that changes the module."""
    nodes = list(ast_nodes(get_ast(path.read_text(encoding="utf-8"))))
    operators = [get_operator(name)() for name in operator_names() if OPERATORS.fullmatch(name)]
    return [
        (operator, occurrence)
        for operator in operators
        for occurrence in range(sum(len(list(operator.mutation_positions(node))) for node in nodes))
    ]


def mutants(path: Path, seed: int) -> Iterator[str]:
    """Yield in random order every source that differs from the module's at one point and in what it does."""
    source = path.read_text(encoding="utf-8")
    seen = {_without_annotations(source)}
    order = points(path).copy()
    random.Random(seed).shuffle(order)  # noqa: S311
    for operator, occurrence in order:
        mutant = mutate_code(source, operator, occurrence)
        try:
            meaning = _without_annotations(mutant)
        except SyntaxError:  # the * before keyword-only arguments was taken for a product
            continue
        if meaning not in seen:
            seen.add(meaning)
            yield mutant


def sample(modules: Sequence[Path], limit: int, seed: int) -> list[tuple[Path, str]]:
    """Return mutants of these modules, of each in proportion to the points where it can be changed."""
    left = {path: mutants(path, seed) for path in modules}
    drawn: list[tuple[Path, str]] = []
    choice = random.Random(seed)  # noqa: S311
    while len(drawn) < limit and left:
        (path,) = choice.choices(list(left), [len(points(path)) for path in left])
        mutant = next(left[path], None)
        if mutant is None:
            del left[path]
        else:
            drawn.append((path, mutant))
    return drawn


@dataclass(frozen=True)
class Record:
    """Measurement of the tests of a target without any change: their seconds, and the tests that ran each line."""

    seconds: dict[str, float]
    lines: dict[str, dict[int, set[str]]]

    def tests_of(self, path: Path, mutant: str) -> list[str]:
        """Return the tests that run the changed statement, the quickest first; all tests if importing runs it."""
        lines = self.lines.get(str(path), {})
        changed = _changed_lines(path.read_text(encoding="utf-8"), mutant)
        if changed is None:
            inside = set().union(*lines.values())
            return sorted(self.seconds, key=lambda test: (test not in inside, self.seconds[test]))
        return sorted(set().union(*(lines.get(line, set()) for line in changed)), key=self.seconds.__getitem__)


class Recorder:
    """Record, as a plugin of pytest, the seconds of each test and the lines it runs."""

    def __init__(self, data: Path) -> None:
        self.coverage = coverage.Coverage(data_file=data, include=[f"{SOURCE}/*"], config_file=False)
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.current = ""

    @contextmanager
    def context(self, name: str) -> Iterator[None]:
        before, self.current = self.current, name
        self.coverage.switch_context(name)
        yield
        self.current = before
        self.coverage.switch_context(before)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        with self.context(item.nodeid):
            yield

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef: object, request: pytest.FixtureRequest) -> Iterator[None]:
        # What is made once for the tests of a file is run for each of them.
        with self.context(self.current if fixturedef.scope == "function" else request.node.nodeid):
            yield

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration


class Chosen:
    """Run, as a plugin of pytest, these tests in this order; end the process if one takes far longer than recorded."""

    def __init__(self, tests: Sequence[str], recorded: Record) -> None:
        self.places = {test: place for place, test in enumerate(tests)}
        self.seconds = recorded.seconds

    def pytest_sessionstart(self) -> None:
        # The first example that fails is enough.
        settings.register_profile("mutants", settings.default, phases=(Phase.explicit, Phase.generate))
        settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        # A mutant may loop for ever. CPU seconds; the signal ends the process.
        signal.setitimer(signal.ITIMER_PROF, 3 * self.seconds[item.nodeid] + 10)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (each for each in items if each.nodeid in self.places), key=lambda item: self.places[item.nodeid]
        )


def record(tests: Sequence[str]) -> Record:
    """Run these files of tests without any change, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        data, seconds = Path(folder, "coverage"), Path(folder, "seconds.json")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                recorder = Recorder(data)
                recorder.coverage.start()
                code = int(pytest.main([*PYTEST, *OTHER_PROCESSES, *tests], plugins=[recorder]))
                recorder.coverage.stop()
                recorder.coverage.save()
                seconds.write_text(json.dumps(recorder.seconds), encoding="utf-8")
            finally:
                os._exit(code)
        if os.waitpid(child, 0)[1]:
            sys.exit("the tests fail without any change")
        taken = json.loads(seconds.read_text(encoding="utf-8"))
        found = coverage.CoverageData(str(data))
        found.read()
        contexts = {file: found.contexts_by_lineno(file) for file in found.measured_files()}
    known = cache(lambda name: {test for test in taken if test.startswith(name)})
    lines = {
        file: {line: set().union(*map(known, filter(None, names))) for line, names in of_file.items()}
        for file, of_file in contexts.items()
    }
    return Record(taken, lines)


def survives(path: Path, source: str, recorded: Record) -> bool:
    """Return whether all tests that run the change pass with this source, in a process of its own."""
    tests = recorded.tests_of(path, source)
    if not tests:
        return True
    child = os.fork()
    if child == 0:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        sys.meta_path.insert(0, Mutated(path, source))
        code = 1
        try:
            files = list(dict.fromkeys(test.split("::")[0] for test in tests))
            code = int(pytest.main([*PYTEST, *files], plugins=[Chosen(tests, recorded)]))
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


def check(name: str, modules: Sequence[Path], tests: Sequence[str], limit: int, seed: int) -> str:
    """Print the mutants of a target that survive its tests, and return its row of the table."""
    recorded, began = record(tests), time.perf_counter()
    tried = sample(modules, limit, seed)
    equivalent = [json.loads(line) for line in EQUIVALENT.read_text(encoding="utf-8").splitlines()]
    known = {(each["module"], each["line"], each["mutant"]) for each in equivalent}
    left = [each for each in tried if tuple(describe(*each).values()) not in known]
    killed = 0
    for each in left:
        if survives(*each, recorded):
            print(json.dumps(describe(*each), ensure_ascii=False), flush=True)
        else:
            killed += 1
    low, high = interval(killed, len(left))
    counts = (
        f"{len(modules)} | {sum(len(points(each)) for each in modules):,} | {len(tried)} | {len(tried) - len(left)}"
    )
    row = f"| {name} | {counts} | {killed} | {killed / len(left):.1%} | {low:.0%} to {high:.0%} |"
    print(row, f"{time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    return row


def describe(path: Path, mutant: str) -> dict[str, str]:
    """Return the module of a mutant, the line that it changes and what it changes it to."""
    before, after = path.read_text(encoding="utf-8").splitlines(), mutant.splitlines()
    old, new = next((old, new) for old, new in zip(before, after, strict=True) if old != new)
    return {"module": str(path.relative_to(SOURCE)), "line": old.strip(), "mutant": new.strip()}


def interval(hits: int, trials: int, z: float = 1.96) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share."""
    share, spread = hits / trials, z * z / trials
    centre = (share + spread / 2) / (1 + spread)
    width = z * sqrt(share * (1 - share) / trials + spread / (4 * trials)) / (1 + spread)
    return centre - width, centre + width


def find_target(name: str) -> tuple[list[Path], list[str]]:
    """Return the modules of a target, or one module of a target, and the files of its tests."""
    of = next((each for each, (parts, _) in TARGETS.items() if name == each or name.startswith(tuple(parts))), None)
    if of is None:
        sys.exit(f"modules: expected some of {', '.join(TARGETS)}, or a file of one of them, got {name!r}")
    parts, tests = TARGETS[of]
    modules = [SOURCE / part for part in (parts if name == of else [name])]
    files = [file for each in modules for file in _files(each, "*.py")]
    known = [file for each in tests for file in _files(ROOT / "tests" / each, "test_*.py")]
    return [file for file in files if file.name != "__init__.py"], [str(file.relative_to(ROOT)) for file in known]


def _files(path: Path, pattern: str) -> list[Path]:
    return sorted(path.rglob(pattern)) if path.is_dir() else [path]


def _changed_lines(source: str, mutant: str) -> range | None:
    """Return the lines of the statement that was changed, without its body; None for what runs when it is imported."""
    pairs = zip(source.splitlines(), mutant.splitlines(), strict=True)
    line = next(number for number, (old, new) in enumerate(pairs, 1) if old != new)
    around = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.stmt) and _first(node) <= line <= _last(node)
    ]
    functions = [node for node in around if isinstance(node, ast.FunctionDef) and line >= _first(node.body[0])]
    if not functions:
        return None
    inner = max(around, key=_first)
    body = getattr(inner, "body", None)
    return range(inner.lineno, (_first(body[0]) if body else _last(inner) + 1))


def _first(node: ast.stmt) -> int:
    return min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])


def _last(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _without_annotations(source: str) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
    return ast.unparse(tree)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", help=f"of {', '.join(TARGETS)}, or files of them; all unless given")
    parser.add_argument("--mutants", type=int, default=40, help="how many to test of each target")
    parser.add_argument("--seed", type=int, default=0, help="another seed draws other mutants")
    options = parser.parse_args()
    os.chdir(ROOT)
    for module in SHARED:
        importlib.import_module(module)
    rows = [check(name, *find_target(name), options.mutants, options.seed) for name in options.targets or TARGETS]
    print("\n| target | modules | points | mutants | equivalent | killed | of the others | 95 % interval |")
    print("| --- | --: | --: | --: | --: | --: | --: | --- |", *rows, sep="\n")


if __name__ == "__main__":
    main()
