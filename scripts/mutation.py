"""Change one operator, number or condition of the code at a time and list the changes that no test notices.

    python scripts/mutation.py --mutants 40 losses lists metrics/_ndcg.py

cosmic-ray makes the mutants; those that change annotations only are left out. A target is a package or some modules. A
random sample of its mutants with a fixed seed, in proportion to the mutants of each module, runs the target's tests.
Each mutant runs in a forked process, so torch is imported once, and the files on disk stay as they are. The table has
the share of mutants that were killed with its 95 % interval (Wilson).
"""

from __future__ import annotations

import argparse
import ast
import difflib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import random
import re
import resource
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from math import sqrt
from pathlib import Path
from types import ModuleType

import pytest
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "rankwise"
# Of each target its modules, below the package, and the tests that state what they do, the cheapest first.
TARGETS = {
    "losses": (["losses"], ["losses"]),
    "metrics": (["metrics"], ["metrics", "fuzz/test_metrics.py"]),
    "estimators": (
        ["estimators"],
        ["estimators", "losses/test_auprc.py", "losses/test_sampled_lists.py", "fuzz/test_estimators.py"],
    ),
    "pairs": (["pairs"], ["pairs", "losses/test_auprc.py", "losses/test_contract.py"]),
    "lists": (
        ["lists.py", "ranks.py"],
        ["test_lists.py", "test_ranks.py", "metrics/test_inputs.py", "metrics/test_ap.py", "metrics/test_ndcg.py",
         "losses/test_auprc.py", "losses/test_contract.py", "metrics/test_contract.py"],
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
    """Return every operator and occurrence that changes the module, in random order."""
    nodes = list(ast_nodes(get_ast(path.read_text(encoding="utf-8"))))
    operators = [get_operator(name)() for name in operator_names() if OPERATORS.fullmatch(name)]
    found = [
        (operator, occurrence)
        for operator in operators
        for occurrence in range(sum(len(list(operator.mutation_positions(node))) for node in nodes))
    ]
    random.Random(0).shuffle(found)  # noqa: S311
    return found


def mutants(path: Path) -> Iterator[str]:
    """Yield in random order every source that differs from the module's at one point and in what it does."""
    source = path.read_text(encoding="utf-8")
    seen = {_without_annotations(source)}
    for operator, occurrence in points(path):
        mutant = mutate_code(source, operator, occurrence)
        try:
            meaning = _without_annotations(mutant)
        except SyntaxError:  # the * before keyword-only arguments was taken for a product
            continue
        if meaning not in seen:
            seen.add(meaning)
            yield mutant


def sample(modules: Sequence[Path], limit: int) -> list[tuple[Path, str]]:
    """Return mutants of these modules, of each in proportion to the points where it can be changed."""
    left = {path: mutants(path) for path in modules}
    drawn: list[tuple[Path, str]] = []
    choice = random.Random(0)  # noqa: S311
    while len(drawn) < limit and left:
        (path,) = choice.choices(list(left), [len(points(path)) for path in left])
        mutant = next(left[path], None)
        if mutant is None:
            del left[path]
        else:
            drawn.append((path, mutant))
    return drawn


def survives(path: Path, source: str, tests: Sequence[str], seconds: int) -> tuple[bool, float]:
    """Return whether all tests pass with this source, in a process of its own, and the CPU seconds it took."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        sys.meta_path.insert(0, Mutated(path, source))
        code = 1
        try:
            # Those named after the module first.
            first = [each for each in tests if path.stem.strip("_") in Path(each).stem]
            code = int(pytest.main([*PYTEST, *OTHER_PROCESSES, *first, *(each for each in tests if each not in first)]))
        finally:
            os._exit(code)
    _, status, usage = os.wait4(child, 0)
    return status == 0, usage.ru_utime + usage.ru_stime


def check(name: str, modules: Sequence[Path], tests: Sequence[str], limit: int) -> str:
    """Print the mutants of a target that survive its tests, and return its row of the table."""
    quiet, seconds = survives(modules[0], modules[0].read_text(encoding="utf-8"), tests, 3600)
    if not quiet:
        sys.exit(f"{name}: its tests fail without any change")
    tried = sample(modules, limit)
    # A mutant may loop for ever.
    survivors = [each for each in tried if survives(*each, tests, int(2 * seconds) + 30)[0]]
    for path, mutant in sorted(survivors):
        lines = difflib.unified_diff(
            path.read_text(encoding="utf-8").splitlines(), mutant.splitlines(), lineterm="", n=0
        )
        print(path.relative_to(SOURCE), *(line for line in lines if not line.startswith(("---", "+++"))), sep="\n")
    low, high = interval(len(tried) - len(survivors), len(tried))
    killed = f"{1 - len(survivors) / len(tried):.1%} | {low:.0%} to {high:.0%}"
    row = f"| {name} | {len(modules)} | {sum(len(points(each)) for each in modules):,} | {len(tried)} | {killed} |"
    print(row, flush=True)
    return row


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
    options = parser.parse_args()
    os.chdir(ROOT)
    for module in SHARED:
        importlib.import_module(module)
    rows = [check(name, *find_target(name), options.mutants) for name in options.targets or TARGETS]
    print("\n| target | modules | points | mutants tried | killed | 95 % interval |")
    print("| --- | --: | --: | --: | --: | --- |", *rows, sep="\n")


if __name__ == "__main__":
    main()
