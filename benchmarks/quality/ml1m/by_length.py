"""For which users is which scorer better? `python -m benchmarks.quality.ml1m.by_length`.

Reads what `python -m benchmarks.quality.ml1m` left in `build/ml1m`: test NDCG@20 of each user with the chosen settings,
by how many films the user is known to have seen. Writes `by_length.md` beside this file.
"""

from __future__ import annotations

from pathlib import Path

import torch

from benchmarks.quality.grid.results import Results
from benchmarks.quality.ml1m.__main__ import PLAN, load_split, odd_films

LISTS = Path("build", "ml1m")
SHARES = (0.25, 0.5, 0.75)


def main() -> None:
    split = load_split("all")
    known = torch.bincount(split.train.users, minlength=len(split.train.user_names))
    cuts = torch.quantile(known.double(), torch.tensor(SHARES, dtype=torch.float64))
    quarter = torch.bucketize(known.double(), cuts)
    folder = Path(__file__).parent
    results = Results(folder / "results.csv", LISTS, PLAN.metrics)
    bounds = [int(known[quarter == part].max()) for part in range(len(SHARES) + 1)]
    lines = [
        "`python -m benchmarks.quality.ml1m.by_length`: test NDCG@20 by the number of films a user is known to have "
        "seen, a quarter of the users each.",
        "",
        "| scorer | loss | " + " | ".join(f"up to {bound:,}" for bound in bounds) + " |",
        "|---|---|" + "--:|" * len(bounds),
    ]
    for scorer, method in PLAN.rows:
        tried = results.tried(scorer, method)
        values = results.per_list(results.final(tried[0], PLAN.seeds)) if tried else None
        if values is not None:
            means = (values[quarter == part].nanmean().item() for part in range(len(bounds)))
            lines.append(f"| {scorer} | {method} | " + " | ".join(f"{mean:.4f}" for mean in means) + " |")
    parts = (split.part(name) for name in ("train", "test"))
    pairs = [torch.bincount(part.items, minlength=len(part.item_names)) for part in parts]
    odd = (f"{split.train.item_names[film]} ({pairs[0][film]:,} / {pairs[1][film]:,})" for film in odd_films())
    lines += ["", "The films left out of the column others (pairs to learn from / to test on): " + ", ".join(odd) + "."]
    text = "\n".join(lines) + "\n"
    (folder / "by_length.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
