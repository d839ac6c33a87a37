"""Which loss ranks MovieLens-100K best by micro-pAp@k? `python -m benchmarks.quality.ml100k [--data FOLDER]`.

Needs MovieLens-100K (`u.data`) in FOLDER, or in `movielens-100k` under RANKWISE_DATA. Every cell (seed, k, method) is
added to results.csv as soon as it is known, so a run that was stopped goes on where it was; RESULTS.md is written from
that file at the end. `--fresh` starts over.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.find import find_data
from benchmarks.quality.ml100k.features import cut_rated_films, read_rated_films
from benchmarks.quality.ml100k.methods import METHODS
from benchmarks.quality.ml100k.plan import CUTOFFS, SEEDS, train_cell, train_start
from benchmarks.quality.ml100k.results import Results
from benchmarks.quality.ml100k.table import write_table

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", type=Path, default=None, help="folder with u.data of MovieLens-100K")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many seeds")
    parser.add_argument("--fresh", action="store_true", help="forget the cells that are already there")
    given = parser.parse_args()
    folder = given.data or find_data("movielens-100k")

    results = Results(HERE / "results.csv", fresh=given.fresh)
    seeds = SEEDS[: given.seeds]
    cells = [(seed, k, method) for seed in seeds for k in CUTOFFS for method in METHODS]
    missing = [cell for cell in cells if not results.has(cell[0], cell[1], cell[2].name)]
    print(f"{len(cells) - len(missing)} of {len(cells)} cells are there", flush=True)
    if missing:
        films, started = read_rated_films(folder), time.perf_counter()
        split, start, last = None, None, None
        for done, (seed, k, method) in enumerate(missing, 1):
            if last is None or last[0] != seed:
                split = cut_rated_films(films, seed)
            if last != (seed, k):
                start = train_start(split, k)
            last = (seed, k)
            cell = train_cell(split, start, k, method)
            results.add(seed, k, method.name, cell)
            left = (time.perf_counter() - started) / done * (len(missing) - done)
            print(
                f"{done}/{len(missing)}  seed {seed}  k {k:2d}  {method.name:<24} test {cell.test:.4f}  "
                f"about {left / 60:.0f} min left",
                flush=True,
            )
    text = write_table(results, seeds)
    (HERE / "RESULTS.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
