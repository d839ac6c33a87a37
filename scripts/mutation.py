"""Change one operator, number or condition of a module at a time and list the changes that no test notices.

    python scripts/mutation.py --mutants 100 rankwise.lists rankwise.ranks

cosmic-ray makes the mutants; those that change annotations only are left out, and a random sample with a fixed seed is
tested. Each mutant runs in a forked process, so torch is imported once, and the files on disk stay as they are.
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
from itertools import islice
from pathlib import Path
from types import ModuleType

import pytest
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).resolve().parents[1]
# The test files that state what each module does, the cheapest first.
TESTS = {
    "rankwise.estimators.groups": ["estimators", "losses/test_auprc.py"],
    "rankwise.lists": ["test_lists.py", "metrics/test_inputs.py", "losses/test_auprc.py", "losses/test_contract.py"],
    "rankwise.losses.auprc": ["losses/test_auprc.py", "losses/test_contract.py"],
    "rankwise.metrics._ndcg": ["metrics/test_ndcg.py", "metrics/test_contract.py", "fuzz/test_metrics.py"],
    "rankwise.ranks": ["test_ranks.py", "metrics/test_ndcg.py", "metrics/test_ap.py", "metrics/test_contract.py"],
}
# Those of cosmic-ray's operators whose mutants are no plain errors of type, which every test would notice.
OPERATORS = re.compile(
    r"core/(ReplaceBinaryOperator_((Add|Sub|Mul|Div)_(Add|Sub|Mul|Div)|BitAnd_BitOr|BitOr_BitAnd)"
    r"|ReplaceComparisonOperator_((Eq|NotEq|[LG]tE?)_(Eq|NotEq|[LG]tE?)|Is_IsNot|IsNot_Is)"
    r"|ReplaceUnaryOperator_Delete_.*|AddNot|Replace(True|False|And|Or|Break|Continue)With.*"
    r"|NumberReplacer|ZeroIterationForLoop)"
)
# Imported once, before the processes fork.
SHARED = ("torch", "torchmetrics", "sklearn.metrics", "hypothesis.strategies")
CPU_SECONDS = 120
PYTEST = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore::pytest.PytestAssertRewriteWarning"]


class Mutated(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Import one module from the given source instead of its file."""

    def __init__(self, name: str, path: Path, source: str) -> None:
        self.name, self.path, self.source = name, path, source

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_file_location(name, self.path, loader=self) if name == self.name else None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self.source, self.path, "exec"), module.__dict__)  # noqa: S102


def mutants(source: str) -> Iterator[str]:
    """Yield in random order every source that differs from the given one at one point and in what it does."""
    nodes = list(ast_nodes(get_ast(source)))
    operators = [get_operator(name)() for name in operator_names() if OPERATORS.fullmatch(name)]
    points = [
        (operator, occurrence)
        for operator in operators
        for occurrence in range(sum(len(list(operator.mutation_positions(node))) for node in nodes))
    ]
    random.Random(0).shuffle(points)  # noqa: S311
    seen = {_without_annotations(source)}
    for operator, occurrence in points:
        mutant = mutate_code(source, operator, occurrence)
        try:
            meaning = _without_annotations(mutant)
        except SyntaxError:  # the * before keyword-only arguments was taken for a product
            continue
        if meaning not in seen:
            seen.add(meaning)
            yield mutant


def survives(name: str, path: Path, source: str, tests: Sequence[str]) -> bool:
    """Return whether all tests pass with this source, in a process of its own."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        sys.meta_path.insert(0, Mutated(name, path, source))
        code = 1
        try:
            code = int(pytest.main([*PYTEST, *tests]))
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


def check(name: str, limit: int) -> int:
    """Print the mutants of one module that survive its tests, and return how many they are."""
    path = ROOT / "src" / Path(*name.split(".")).with_suffix(".py")
    source, tests = path.read_text(encoding="utf-8"), [f"tests/{file}" for file in TESTS[name]]
    if not survives(name, path, source, tests):
        sys.exit(f"{name}: its tests fail without any change")
    sample = list(islice(mutants(source), limit))
    survivors = [mutant for mutant in sample if survives(name, path, mutant, tests)]
    for mutant in sorted(survivors):
        lines = difflib.unified_diff(source.splitlines(), mutant.splitlines(), lineterm="", n=0)
        print(*(line for line in lines if not line.startswith(("---", "+++"))), sep="\n")
    print(f"{name}: {len(survivors)} of {len(sample)} mutants survived", flush=True)
    return len(survivors)


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
    parser.add_argument("modules", nargs="*", help=f"of {', '.join(TESTS)}; all unless given")
    parser.add_argument("--mutants", type=int, default=40, help="how many to test of each module")
    options = parser.parse_args()
    os.chdir(ROOT)
    for module in SHARED:
        importlib.import_module(module)
    print(f"{sum(check(name, options.mutants) for name in options.modules or TESTS)} mutants survived in all")


if __name__ == "__main__":
    main()
