"""Print branch coverage by package, and each module below 85 %: `python scripts/coverage_table.py coverage.json`."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path, PurePath

LOW = 85.0


def main(path: str) -> None:
    files = json.loads(Path(path).read_text(encoding="utf-8"))["files"]
    modules = {_module(file): _Count.read(found["summary"]) for file, found in files.items()}
    packages: defaultdict[str, _Count] = defaultdict(_Count)
    for module, count in modules.items():
        packages[module.split(".")[0]].add(count)
        packages["all"].add(count)
    low = {module: count for module, count in modules.items() if count.percent < LOW}
    _print_table("package", packages)
    print(f"\n{len(low)} of {len(modules)} modules are below {LOW:g} %\n")
    _print_table("module", low)


class _Count:
    """Statements and branches, and how many of them were run."""

    def __init__(self, run: int = 0, there: int = 0, statements: int = 0) -> None:
        self.run, self.there, self.statements = run, there, statements

    @classmethod
    def read(cls, summary: dict[str, int]) -> _Count:
        statements = summary["num_statements"]
        return cls(
            summary["covered_lines"] + summary["covered_branches"], statements + summary["num_branches"], statements
        )

    def add(self, other: _Count) -> None:
        self.run += other.run
        self.there += other.there
        self.statements += other.statements

    @property
    def percent(self) -> float:
        return 100.0 * self.run / self.there if self.there else 100.0


def _module(file: str) -> str:
    """Return the name of a module below the package: "losses.auprc" for ".../rankwise/losses/auprc.py"."""
    parts = PurePath(file).with_suffix("").parts
    below = parts[len(parts) - parts[::-1].index("rankwise") :]
    return ".".join(part for part in below if part != "__init__") or "rankwise"


def _print_table(kind: str, counts: dict[str, _Count]) -> None:
    print(f"| {kind} | statements | covered |\n| --- | --: | --: |")
    for name, count in sorted(counts.items(), key=lambda item: (item[0] == "all", item[0])):
        print(f"| {name} | {count.statements:,} | {count.percent:.1f} % |")


if __name__ == "__main__":
    main(*sys.argv[1:])
