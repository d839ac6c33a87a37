"""Figures over the lists of a run: curves along the ranking, histograms of scores, lists to look at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from rankwise.lists import Lists, pack
from rankwise.metrics.metric import measure_lists
from rankwise.metrics.names import METRICS, create_metrics
from rankwise.problems.inspection import Inspection, SeenLists, spread_over
from rankwise.ranks import rank

__all__ = ["ListFigures", "Top", "figures_of", "lists_by_value", "random_order", "top_of", "worst_of"]

# So much is looked at for the curves and histograms; all of it where there is no more.
LISTS, CELLS, SCORES, EQUALS = 2000, 2**22, 200_000, 300
POSITIONS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 30, 50, 75, 100)
LEVELS = 50
# A random order is drawn until so many lists were ordered, each at most so often.
ORDERS, MOST_ORDERS = 2000, 1000


@dataclass(frozen=True)
class ListFigures:
    """Of the lists looked at.

    Attributes:
        looked: how many lists these are; counted: those among them that have a relevant item.
        along, height: the curve along the ranking: recall and mean precision there, or positions and NDCG down to them.
        relevant, irrelevant: (N,) scores of the two kinds, samples where there are very many.
    """

    looked: int
    counted: int
    along: Tensor
    height: Tensor
    relevant: Tensor
    irrelevant: Tensor


@dataclass(frozen=True)
class Top:
    """The first items of a list: their columns, scores and labels.

    Besides, how many items and relevant ones it has, and where the first relevant one stands (from 1; 0 for nowhere).
    """

    number: int
    columns: list[int]
    scores: list[float]
    labels: list[float]
    items: int
    relevant: int
    first: int


def figures_of(inspection: Inspection) -> ListFigures:
    """Look at all lists, or at two thousand evenly spread, once."""
    chosen = spread_over(len(inspection.evaluation.query_ids), LISTS)
    by_precision = inspection.curve == "precision"
    parts: list[Tensor] = []
    kinds: tuple[list[Tensor], list[Tensor]] = ([], [])
    longest, one = 0, len(chosen) == 1
    along = torch.arange(1, LEVELS + 1, dtype=torch.float64) / LEVELS
    blocks = list(_blocks(inspection, chosen))
    for numbers in blocks:
        seen = inspection.look(numbers)
        mask = torch.ones_like(seen.scores, dtype=torch.bool) if seen.mask is None else seen.mask
        for kind, where in zip(kinds, (seen.labels > 0, seen.labels <= 0), strict=True):
            values = seen.scores[where & mask]
            kind.append(values[spread_over(len(values), max(100, SCORES // len(blocks)))])
        longest = max(longest, int(mask.sum(1).max()))
        if by_precision:
            total = None if inspection.relevant is None else inspection.relevant[numbers]
            if one:
                count = int((seen.labels > 0).logical_and(mask).sum()) if total is None else int(total)
                along = (spread_over(count, 4 * LEVELS) + 1).double() / max(1, count)
            parts.append(_precision(seen, mask, along, total))
        else:
            parts.append(_ndcg(seen, mask))
    values = torch.cat(parts)
    if by_precision:  # from the start, as precise as at the first one found
        along, values = torch.cat([along.new_zeros(1), along]), torch.cat([values[:, :1], values], 1)
    else:
        within = [index for index, position in enumerate(POSITIONS) if position <= max(longest, 1)]
        along, values = torch.tensor(POSITIONS, dtype=torch.float64)[within], values[:, within]
    counted = int((~values[:, 0].isnan()).sum())
    return ListFigures(len(chosen), counted, along, values.nanmean(0), torch.cat(kinds[0]), torch.cat(kinds[1]))


def random_order(inspection: Inspection, names: Iterable[str]) -> dict[str, float]:
    """Return by name what each metric reaches on average if the items of every list are ordered at random.

    Metrics that are not those of lists, such as those of boxes, are left out.
    """
    if inspection.relevant is not None:
        return {}
    known = [name for name in names if name.partition("@")[0] in METRICS or name in METRICS]
    metrics = create_metrics(known) if known else []
    chosen = spread_over(len(inspection.evaluation.query_ids), LISTS)
    generator = torch.Generator().manual_seed(0)
    values: dict[str, list[Tensor]] = {metric.name: [] for metric in metrics}
    for numbers in _blocks(inspection, chosen) if metrics else ():
        seen = inspection.look(numbers)
        mask = torch.ones_like(seen.scores, dtype=torch.bool) if seen.mask is None else seen.mask
        times = max(1, min(MOST_ORDERS, ORDERS // len(chosen), CELLS // max(1, seen.scores.numel())))
        scores = torch.rand((times * len(seen.scores), seen.scores.shape[1]), generator=generator)
        for kind, labels in (("grades", seen.labels), ("binary", (seen.labels > 0).long())):
            if of_kind := [metric for metric in metrics if metric.record.labels == kind]:
                lists = pack(scores, labels.repeat(times, 1), mask=mask.repeat(times, 1))
                for name, of_metric in measure_lists(lists, of_kind)[0].items():
                    values[name].append(of_metric)
    return {name: float(torch.cat(of_metric).nanmean()) for name, of_metric in values.items() if of_metric}


def lists_by_value(inspection: Inspection, metric: str) -> Tensor:
    """Return the numbers of the lists on which the metric is defined, worst first."""
    values = inspection.evaluation.per_query[metric]
    order = torch.argsort(values, stable=True)
    return order[~values[order].isnan()]


def worst_of(inspection: Inspection, metric: str, count: int) -> list[int]:
    """Return the indices of the `count` worst lists, worst first; ties by the rank of the first relevant item.

    Of very many equals some hundreds are looked at, evenly spread.
    """
    order, values = lists_by_value(inspection, metric), inspection.evaluation.per_query[metric]
    if len(order) <= count:
        return order.tolist()
    limit = values[order[count - 1]]
    below, equal = order[values[order] < limit], order[values[order] == limit]
    some = equal[spread_over(len(equal), EQUALS)].tolist()
    lowest = sorted(some, key=lambda number: -top_of(inspection, number, 0).first)
    return [*below.tolist(), *lowest][:count]


def top_of(inspection: Inspection, number: int, count: int) -> Top:
    """Return the first `count` items of a list."""
    seen = inspection.look(torch.tensor([number]))
    mask = torch.ones_like(seen.labels[0], dtype=torch.bool) if seen.mask is None else seen.mask[0]
    columns = seen.scores[0].masked_fill(~mask, -torch.inf).argsort(descending=True, stable=True)[: int(mask.sum())]
    labels = seen.labels[0]
    relevant = int((labels > 0).logical_and(mask).sum())
    if inspection.relevant is not None:
        relevant = int(inspection.relevant[number])
    hits = (labels[columns] > 0).nonzero()
    shown = columns[:count]
    return Top(
        number,
        shown.tolist(),
        seen.scores[0][shown].tolist(),
        labels[shown].tolist(),
        int(mask.sum()),
        relevant,
        int(hits[0]) + 1 if len(hits) else 0,
    )


def _blocks(inspection: Inspection, chosen: Tensor) -> Iterator[Tensor]:
    if not len(chosen):
        return
    width = inspection.look(chosen[:1]).scores.shape[1]
    yield from chosen.split(max(1, CELLS // max(1, width)))


def _precision(seen: SeenLists, mask: Tensor, along: Tensor, total: Tensor | None) -> Tensor:
    """Return the precision at each level of recall, (B, levels); NaN for a list without relevant items."""
    lists = Lists(seen.scores, ((seen.labels > 0) & mask).long(), mask, None, torch.arange(len(mask)))
    positives = rank(lists).positives
    count = positives.count if total is None else total.double()
    precision = torch.nn.functional.pad(positives.hits_end / positives.end, (0, 1))
    # Rounding must not ask for one more item than a share means.
    wanted = (along * count[:, None] - 1e-9).ceil().long() - 1
    index = wanted.clamp_min(0).where(wanted < positives.count[:, None], precision.shape[1] - 1)
    return precision.gather(1, index).masked_fill(count[:, None] == 0, torch.nan)


def _ndcg(seen: SeenLists, mask: Tensor) -> Tensor:
    """Compute the NDCG of the first so many items, (B, positions)."""
    metrics = create_metrics([f"ndcg@{position}" for position in POSITIONS])
    values, _ = measure_lists(pack(seen.scores, seen.labels, mask=mask), metrics)
    return torch.stack(list(values.values()), 1)
