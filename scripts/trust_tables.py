"""Print what was tried as a table: rows by what was changed or saved, columns by kind, each cell passed of tried.

    python scripts/trust_tables.py metamorphic
    python scripts/trust_tables.py serialisation

Arguments behind the name go to pytest, such as -m '' for the slow tests, too.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

TABLES = {"metamorphic": "tests/metamorphic", "serialisation": "tests/test_serialisation.py"}
# What a test of each table calls its row and its column.
ROWS, COLUMNS = ("change", "way"), ("kind",)


class Collected:
    """Collects the outcome of each test by the row and the column of the table it belongs to."""

    def __init__(self) -> None:
        self.cells: dict[tuple[str, str], list[bool]] = defaultdict(list)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Any:
        report = yield
        if report.when == "call" and not report.skipped:
            given = getattr(item, "callspec", None)
            names = {} if given is None else given.params
            test = item.originalname.removeprefix("test_").replace("_", " ")
            row = next((str(names[name]) for name in ROWS if name in names), "")
            if "use" in names:
                row = f"{test}: {row}, {names['use']}" if row else f"{test}: {names['use']}"
            column = next((str(names[name]) for name in COLUMNS if name in names), "all")
            self.cells[row or test, column].append(report.passed)
        return report


def table(cells: dict[tuple[str, str], list[bool]]) -> str:
    """Return the cells as Markdown."""
    rows, columns = (list(dict.fromkeys(key[place] for key in cells)) for place in (0, 1))
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for row in rows:
        found = [cells.get((row, column), []) for column in columns]
        shown = [f"{sum(each)} of {len(each)}" if each else "-" for each in found]
        lines.append(f"| {row} | {' | '.join(shown)} |")
    return "\n".join(lines)


def main() -> int:
    name, *options = sys.argv[1:] or [""]
    if name not in TABLES:
        sys.exit(f"expected {' or '.join(TABLES)}, got {name!r}")
    collected = Collected()
    root = Path(__file__).resolve().parents[1]
    code = pytest.main([f"--rootdir={root}", str(root / TABLES[name]), "-q", *options], plugins=[collected])
    print(table(collected.cells))
    passed, tried = (sum(map(count, collected.cells.values())) for count in (sum, len))
    print(f"\n{passed} of {tried} as promised")
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
