"""Which loss ranks the positives of imbalanced tables best? `python -m benchmarks.quality.tabular`.

Five folds, three seeds. Every network is the same MLP 64-64, trained for the same number of steps on batches of the
same size with AdamW and a cosine schedule. Each run chooses on a validation part of its fold among four candidates:
four learning rates, or two with two settings for the losses that have a width. The runs of a loss on a table are
trained side by side (see `ensemble`).

When a loss has done a table, its rows are added to `benchmarks/quality/tabular.csv`; an interrupted benchmark goes on
where it was. At the end (or with --report alone) the tables are written to `benchmarks/quality/tabular.md`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.progress import Progress

from benchmarks.quality.tabular.contenders import BATCH, CURVE, NEURAL, Neural, boosting, run
from benchmarks.quality.tabular.results import BOOSTING, Row, Rows, tables
from benchmarks.quality.tabular.tables import CHOICE, FOLDS, TABLES, cut, load

SEEDS = (0, 1, 2)
BOOSTING_RATES = (0.01, 0.03, 0.1, 0.3)
NAMES = [*(neural.loss for neural in NEURAL), BOOSTING]
FOLDER = Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--tables", nargs="+", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--losses", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--report", action="store_true", help="only write the tables from the rows there are")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the results are kept")
    asked = parser.parse_args()
    rows = Rows(asked.folder / "tabular.csv")
    for table in () if asked.report else asked.tables:
        for contender in (*NEURAL, BOOSTING):
            name = contender if isinstance(contender, str) else contender.loss
            if name in asked.losses and not any(key[:2] == (table, name) for key in rows.rows):
                _fill(rows, table, contender)
    report = _report(Rows(rows.path))
    (asked.folder / "tabular.md").write_text(report, encoding="utf-8")
    print(report)


def _fill(rows: Rows, table: str, contender: Neural | str) -> None:
    """All runs of a contender on a table."""
    name = contender if isinstance(contender, str) else contender.loss
    splits = [cut(load(table), fold) for fold in range(FOLDS)]
    # Boosting draws nothing at random here: one seed tells all.
    keys = [(fold, seed) for seed in (SEEDS if isinstance(contender, Neural) else SEEDS[:1]) for fold in range(FOLDS)]
    started = time.perf_counter()
    if isinstance(contender, Neural):
        with Progress(transient=True) as progress:
            bar = progress.add_task(f"{table}, {name}", total=4 * CURVE[-1])
            found = run(contender, [(seed, splits[fold]) for fold, seed in keys], lambda: progress.advance(bar))
    else:
        found = [boosting(splits[fold], BOOSTING_RATES) for fold, _ in keys]
    rows.add([Row(table, name, fold, seed, each) for (fold, seed), each in zip(keys, found, strict=True)])
    mean = sum(each.test for each in found) / len(found)
    seconds = time.perf_counter() - started
    print(f"[{len(rows.rows)}/{_whole()}] {table}, {name}: test AP {mean:.3f}, {seconds:.0f} s", flush=True)


def _whole() -> int:
    return len(TABLES) * FOLDS * (len(NEURAL) * len(SEEDS) + 1)


def _report(rows: Rows) -> str:
    settings = [
        f"- {neural.loss}: {' or '.join(_words(setting) for setting in neural.settings)}; learning rate from "
        f"{', '.join(f'{rate:g}' for rate in neural.rates)}; batches "
        + ("like the data" if neural.positives is None else f"of {neural.positives} positives in {BATCH}")
        for neural in NEURAL
    ]
    unfinished = "" if len(rows.rows) == _whole() else f" **Unfinished: {len(rows.rows)} of {_whole()} runs.**"
    return "\n".join(
        [
            f"`python -m benchmarks.quality.tabular`: {FOLDS} folds x {len(SEEDS)} seeds, MLP 64-64, {CURVE[-1]} "
            f"steps, batches of {BATCH}, AdamW, cosine schedule. Every run chooses among four candidates by its "
            f"validation AP (gradient boosting among the learning rates {BOOSTING_RATES}).{unfinished}",
            "",
            CHOICE,
            "",
            "Candidates:",
            "",
            *settings,
            "",
            tables(rows, list(TABLES)),
            "",
        ]
    )


def _words(setting: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in setting.items()) or "as by default"


if __name__ == "__main__":
    main()
