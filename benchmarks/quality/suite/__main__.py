"""`python -m benchmarks.quality.suite --kind tabular`: ours beside the practitioner's choices, on many data sets.

Development data decide defaults; confirmation data are for reporting. Each result is cached, so a run resumes where
it was. CPU seconds are of one process; set OMP_NUM_THREADS=1 to compare them.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch

from benchmarks.quality.suite.cells import Cell, Cells, default_cache
from benchmarks.quality.suite.report import report

KINDS = ("tabular", "mixed", "images", "search", "recommendation", "labels")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=KINDS, default="tabular")
    parser.add_argument("--half", choices=["development", "confirmation"], default="development")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="folder of cached results")
    parser.add_argument("--redo", action="append", default=[], help="a contender to run anew; may be repeated")
    parser.add_argument("--without", action="append", default=[], help="a contender to leave out; may be repeated")
    parser.add_argument(
        "--data", action="append", default=[], help="a data set to run; may be repeated; by default all"
    )
    parser.add_argument("--ours", help="the contender that the others are compared with; by default that of the kind")
    parser.add_argument("--cuts", type=int, default=3, help="folds of five to test on, at least 2")
    options = parser.parse_args()
    torch.set_num_threads(1)
    kind = importlib.import_module(f"benchmarks.quality.suite.{options.kind}")
    contenders = [name for name in kind.CONTENDERS if name not in options.without]
    data = [name for name in kind.data_sets(options.half) if not options.data or name in options.data]
    if missing := set(options.data) - set(data):
        parser.error(f"--data: expected one of {', '.join(kind.data_sets(options.half))}, got {missing.pop()!r}")
    cells = Cells(options.cache / f"{options.kind}.csv", redo=frozenset(options.redo))
    for cut in range(options.cuts):
        for name in data:
            for contender in contenders:
                if (name, contender, cut) not in cells:
                    cells.add(_run(kind, name, contender, cut))
    results = {}
    for contender in contenders:
        found = [[cells[name, contender, cut] for cut in range(options.cuts)] for name in data]
        results[contender] = (
            np.array([[cell.value for cell in row] for row in found]),
            np.array([[cell.cpu_seconds for cell in row] for row in found]),
        )
    print(f"{options.kind}, {options.half}: {len(data)} data sets x {options.cuts} cuts\n")
    print(report(results, data, ours=options.ours or kind.OURS, metric=kind.METRIC))


def _run(kind: object, data: str, contender: str, cut: int) -> Cell:
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = kind.evaluate(data, contender, cut)  # type: ignore[attr-defined]
    seconds = time.process_time() - begin
    print(f"{data}, {contender}, cut {cut}: {value:.4f} in {seconds:.1f} CPU s", file=sys.stderr, flush=True)
    return Cell(data, contender, cut, value, seconds)


if __name__ == "__main__":
    main()
