"""Do the two gradients of K-SONG reach the same NDCG? `python -m benchmarks.quality.mq2008.selector [--seeds N]`.

Five folds of MQ2008, the scorer of `python -m benchmarks.quality.mq2008` with its first setting, whole lists and lists
of at most 2 relevant and 3 irrelevant documents a step; learned from the training sections and judged on the validation
section, NDCG@10 for k = 10. Writes `selector.md` beside this file.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.quality.mq2008.__main__ import FOLDS, QUERIES, SETTINGS, load, make_problem
from rankwise.data import TableSchema
from rankwise.metrics import compare
from rankwise.training import fit

LISTS: dict[str, dict[str, Any]] = {"whole lists": {}, "samples of 2 + 3": {"relevant": 2, "irrelevant": 3}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    torch.set_num_threads(1)
    lines = [
        "`python -m benchmarks.quality.mq2008.selector`: K-SONG 10 on MQ2008, validation NDCG@10, five folds x "
        f"{seeds} seeds; the difference is full minus stopped over the same queries, each the mean over seeds.",
        "",
        "| batches hold | stopped | full | difference | 95 % interval | p |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name, drawn in LISTS.items():
        stopped, full = (
            torch.cat([mean_over_seeds(fold, gradient, drawn, seeds) for fold in FOLDS])
            for gradient in ("stopped", "full")
        )
        found = compare(full, stopped)
        low, high = found.interval
        lines.append(
            f"| {name} | {found.mean_b:.4f} | {found.mean_a:.4f} | {found.difference:+.4f} | "
            f"{low:+.4f} to {high:+.4f} | {found.p_value:.2g} |"
        )
        print(lines[-1], flush=True)
    Path(__file__).with_suffix(".md").write_text("\n".join(lines) + "\n")


def mean_over_seeds(fold: str, gradient: str, drawn: dict[str, Any], seeds: int) -> Tensor:
    """Return NDCG@10 of each query of the validation section that has one."""
    split = load(fold, "train")
    loss = {"name": "k-song", "k": 10, "selector_gradient": gradient}
    problem = make_problem(loss, ("ndcg@10",), *SETTINGS[0]).changed(batches={"queries": QUERIES, **drawn})
    values = []
    for seed in range(seeds):
        model = fit(problem, TableSchema.of(split.train), split, seed=seed).model
        values.append(problem.evaluate(model, split.part("validation")).per_query["ndcg@10"])
    mean = torch.stack(values).mean(0)
    return mean[torch.isfinite(mean)]


if __name__ == "__main__":
    main()
