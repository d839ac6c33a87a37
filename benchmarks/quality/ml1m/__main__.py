"""Which loss ranks the films of MovieLens-1M best? `python -m benchmarks.quality.ml1m [--slow] [--minutes M]`.

Needs `movielens-1m-implicit` under RANKWISE_DATA. Every cell is added to results.csv as soon as it is known, so a run
that was stopped goes on where it was; RESULTS.md is written from that file at the end, with a dash for what has not
been run. `--slow` adds the losses over all pairs; `--fresh` starts over.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.quality.ml1m.methods import METHODS, SCORERS
from benchmarks.quality.ml1m.plan import SEEDS, Key, cells, load_split, run_cell
from benchmarks.quality.ml1m.results import Results
from benchmarks.quality.ml1m.table import write_table

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--slow", action="store_true", help="also the losses that look at every pair")
    parser.add_argument("--minutes", type=float, default=None, help="begin no further cell after so long")
    parser.add_argument("--users", type=Path, default=Path("build/ml1m"), help="where to keep the values of users")
    parser.add_argument("--fresh", action="store_true", help="forget the cells that are already there")
    given = parser.parse_args()
    results = Results(HERE / "results.csv", given.users, fresh=given.fresh)
    started, split = time.perf_counter(), load_split()

    def run(key: Key, method: object) -> None:
        late = given.minutes is not None and time.perf_counter() - started > 60 * given.minutes
        if key in results or late:
            return
        found, users = run_cell(split, key, method)  # type: ignore[arg-type]
        results.add(key, found, users)
        print(
            f"{key.scorer:<22}{key.method:<22}{key.setting:<7g} seed {key.seed:2d}  validation {found.validation:.4f}  "
            f"train {found.train:.4f}  test {found.ndcg_20:.4f}  {found.seconds:.0f} s",
            flush=True,
        )

    for key, method in cells(slow=given.slow):
        run(key, method)
    for scorer in SCORERS:
        for each in METHODS:
            best = results.chosen(scorer, each.name, SEEDS[0])
            for seed in SEEDS[1:] if best is not None else ():
                run(Key(scorer, each.name, best.setting, seed), each)
    text = write_table(results)
    (HERE / "RESULTS.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
