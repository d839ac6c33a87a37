"""The results of all folds together: figures with intervals over queries, and paired differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import torch
from torch import Tensor

from benchmarks.quality.grid.plan import Plan
from benchmarks.quality.grid.results import Results
from rankwise.metrics import compare
from rankwise.metrics.bootstrap import interval, list_replicates

__all__ = ["write_folds"]


@dataclass(frozen=True)
class Row:
    """A method on all folds.

    Attributes:
        method: its name.
        ours: whether it is one of the library's own losses.
        settings: those chosen, one a fold.
        tried: settings run in each fold.
        figures: means over folds and seeds.
        seeds: the first metric of each seed, the mean over folds.
        queries: the first metric of every query of the five test sections, the mean over seeds.
    """

    method: str
    ours: bool
    settings: str
    tried: int
    figures: dict[str, float]
    seeds: list[float]
    queries: Tensor


def write_folds(plan: Plan, results: Results) -> str:
    """The whole page."""
    first, *others = plan.metrics
    rows = [row for name in dict.fromkeys(name for _, name in plan.rows) if (row := _row(plan, results, name))]
    lines = [
        plan.about,
        "",
        f"| loss | {first} | 95 % interval | seeds | {' | '.join(others)} | validation | train | tried | chosen |",
        "|---|--:|--:|--:|" + "--:|" * len(others) + "--:|--:|--:|---|",
    ]
    for row in sorted(rows, key=lambda row: -row.figures[first]):
        low, high = _interval(row.queries)
        shown = " | ".join(f"{row.figures[name]:.4f}" for name in (*others, "validation", "train"))
        seeds = f"{len(row.seeds)}: {min(row.seeds):.4f} to {max(row.seeds):.4f}"
        lines.append(
            f"| {row.method} | {row.figures[first]:.4f} | {low:.3f} to {high:.3f} | {seeds} | {shown} | "
            f"{row.tried} | {row.settings} |"
        )
    lines += [
        "",
        "Means over the folds; intervals by bootstrap over the queries; seeds: how many, and the lowest and highest "
        f"{first} of one. validation and train: {first} there, the first of the runs that were chosen. chosen: how "
        "often which learning rate and weight decay (trees: leaves).",
    ]
    ours = [row for row in rows if row.ours]
    if ours:
        best = max(ours, key=lambda row: row.figures["validation"])
        lines += ["", *_differences(first, best, [row for row in rows if row is not best])]
    return "\n".join(lines) + "\n"


def _row(plan: Plan, results: Results, method: str) -> Row | None:
    """None if a fold is missing; a seed counts if it was run in all folds."""
    chosen = [results.tried(fold, method) for fold in plan.scorers]
    if not all(chosen):
        return None
    seeds = [seed for seed in plan.seeds if all(results.final(tried[0], [seed]) for tried in chosen)]
    keys = [results.final(tried[0], seeds) for tried in chosen]
    queries = [results.per_list(fold) for fold in keys]
    if any(values is None for values in queries):
        return None
    final = [results[key] for fold in keys for key in fold]
    figures = {name: fmean(found[name] for found in final) for name in (*plan.metrics, "train")}
    figures["validation"] = fmean(results[tried[0]]["validation"] for tried in chosen)
    by_seed = [fmean(results[fold[place]][plan.metrics[0]] for fold in keys) for place in range(len(seeds))]
    settings = [f"{tried[0].rate:g}, {tried[0].decay:g}" for tried in chosen]
    counted = "; ".join(f"{settings.count(each)} x {each}" for each in sorted(set(settings)))
    values = torch.cat([found for found in queries if found is not None])
    return Row(
        method,
        method in {each.name for each in plan.methods if each.ours},
        counted,
        len(chosen[0]),
        figures,
        by_seed,
        values[torch.isfinite(values)],
    )


def _interval(values: Tensor) -> tuple[float, float]:
    drawn = list_replicates(values.double()[:, None], torch.ones(len(values)), 2000, np.random.default_rng(0))
    return interval(drawn, 0.95)


def _differences(metric: str, best: Row, others: Sequence[Row]) -> list[str]:
    lines = [
        f"{best.method} (of the NDCG losses the best on validation) minus each other: test {metric} of the same "
        "queries, each the mean over seeds, with 95 % bootstrap intervals and a paired permutation test:",
        "",
        "| against | difference | 95 % interval | p | queries better / worse |",
        "|---|--:|--:|--:|--:|",
    ]
    for row in others:
        found = compare(best.queries, row.queries)
        low, high = found.interval
        lines.append(
            f"| {row.method} | {found.difference:+.4f} | {low:+.4f} to {high:+.4f} | {found.p_value:.2g} | "
            f"{found.wins} / {found.losses} |"
        )
    return lines
