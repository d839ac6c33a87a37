"""Exact retrieval metrics: every item is a query for the others of its class, computed block by block."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import normalize

from rankwise.checks import check_choice, check_finite, check_ids, check_same_shape, check_tensor, with_float64
from rankwise.deprecation import renamed_argument
from rankwise.lists import EMPTY_POLICIES
from rankwise.metrics._evaluate import Evaluation, collect
from rankwise.metrics.metric import Metric
from rankwise.metrics.names import create_metrics
from rankwise.metrics.top_k import HIT, RECALL
from rankwise.ranks import Positives, locate
from rankwise.sorting import sort_values

__all__ = ["evaluate_retrieval"]

# Similarities per block. Beyond 32 MiB the allocator returns the memory of a block to the system after each call.
_BLOCK = 8_000_000
# If there are many blocks, each may be twice as large: after each matrix product the threads of torch spin for some
# milliseconds and slow down the sort.
_MANY_BLOCKS = 6
# Products of numbers between 2^-20 and 2^20 in size neither overflow nor underflow, in float32 too.
_SAFE_EXPONENT = 20
# The retrieval literature calls the hit rate recall.
_RECALL = replace(HIT, definition=f"hit rate (recall@k in the retrieval literature): {HIT.definition}")


@renamed_argument("gallery_embeddings", "reference_embeddings", removed_in="0.3")
@renamed_argument("gallery_labels", "reference_labels", removed_in="0.3")
@renamed_argument("distance", "similarity", removed_in="0.3")
def evaluate_retrieval(
    embeddings: object,
    labels: object,
    metrics: str | Metric | Iterable[str | Metric] = ("map", "map@r", "recall@1", "recall@10"),
    *,
    reference_embeddings: object = None,
    reference_labels: object = None,
    similarity: str = "cosine",
    block_size: int | None = None,
    empty: str = "skip",
    confidence: float = 0.95,
    bootstrap: int = 1000,
    seed: int = 0,
) -> Evaluation:
    """Rank references (the gallery) for every query embedding; an item of the query's class is relevant.

    Without references every item is a query against all the others. The arguments are named as in `EmbeddingLoss`.
    Rankings are complete: only similarities are sorted, and relevant items are located in them by binary search. Ties
    are averaged (mAP: one threshold). `recall@k` is the name of the hit rate `hit@k` in the retrieval literature: 1 if
    any relevant item is among the first k. It is not the share of the relevant items.

    Args:
        embeddings: (N, d) queries.
        labels: (N,) integer class of each query.
        metrics: names such as "map", "map@r", "recall@1", "precision@5", "mrr", "r-precision", or metrics from
            `create_metric`; all of binary labels.
        reference_embeddings: (M, d) items to rank; None ranks the other queries.
        reference_labels: (M,) integer classes of the references.
        similarity: "cosine", "dot" or "euclidean" (minus the distance).
        block_size: queries per block; None gives blocks of similarities of about 32 MiB.
        empty: treatment of a query without a relevant item: "skip", "zero", "one" or "error".
        confidence, bootstrap, seed: options of the intervals over queries, as in `evaluate`.

    Returns:
        An `Evaluation`, one value per query; `tied` is the share of queries with a relevant item that is tied.

    Example:
        >>> points = torch.tensor([[1., 0.], [.9, .1], [0., 1.], [.9, .8]])
        >>> evaluate_retrieval(points, torch.tensor([0, 0, 1, 1]), ["mrr", "recall@1"], bootstrap=0).means["recall@1"]
        0.75
    """
    made = [_retrieval_metric(metric) for metric in create_metrics(metrics)]
    check_choice("similarity", similarity, ("cosine", "dot", "euclidean"))
    check_choice("empty", empty, EMPTY_POLICIES)
    if block_size is not None and (isinstance(block_size, bool) or not isinstance(block_size, int) or block_size < 1):
        raise ValueError(f"block_size: expected a whole number of at least 1 or None, got {block_size!r}")
    queries, gallery = _check_both(embeddings, labels, reference_embeddings, reference_labels)
    rows = block_size or _rows_per_block(len(queries.classes), len(gallery.classes))
    parts: dict[str, list[Tensor]] = {metric.name: [] for metric in made}
    tied = []
    for located in _located(queries, gallery, similarity, rows, {metric.ties for metric in made}):
        for metric in made:
            parts[metric.name].append(metric.per_list(located[metric.ties]))  # type: ignore[arg-type]
        tied.append(located[made[0].ties].positives.tied)
    values = {name: torch.cat(part) for name, part in parts.items()}
    return collect(made, values, torch.cat(tied), empty=empty, confidence=confidence, bootstrap=bootstrap, seed=seed)


@dataclass(frozen=True)
class _Items:
    points: Tensor
    classes: Tensor


@dataclass(frozen=True)
class _BinaryLists:
    """Subset of `RankedLists` that metrics of binary labels read."""

    positives: Positives
    ties: str


def _retrieval_metric(metric: Metric) -> Metric:
    if metric.record.labels != "binary":
        raise ValueError(f"metrics: expected metrics of binary labels for retrieval, got {metric.name!r}")
    if metric.ties == "stable":
        raise ValueError(f'ties: expected "average" or "pessimistic" for retrieval, got "stable" for {metric.name!r}')
    return replace(metric, record=_RECALL) if metric.record is RECALL else metric


def _check_both(
    embeddings: object, labels: object, reference_embeddings: object, reference_labels: object
) -> tuple[_Items, _Items]:
    queries = _check("embeddings", embeddings, "labels", labels)
    if (reference_embeddings is None) != (reference_labels is None):
        raise ValueError("reference_labels: expected together with reference_embeddings, got one without the other")
    if reference_embeddings is None:
        return queries, queries
    gallery = _check("reference_embeddings", reference_embeddings, "reference_labels", reference_labels)
    if gallery.points.shape[1] != queries.points.shape[1]:
        expected, got = queries.points.shape[1], gallery.points.shape[1]
        raise ValueError(f"reference_embeddings: expected {expected} dimensions, got {got}")
    return queries, _Items(gallery.points.to(queries.points), gallery.classes.to(queries.classes))


def _check(name: str, points: object, label_name: str, labels: object) -> _Items:
    tensor = with_float64(check_tensor(name, points).detach())
    if tensor.ndim != 2 or not tensor.is_floating_point() or not tensor.numel():
        raise ValueError(f"{name}: expected floats of shape (N, d), got {tensor.dtype} {tuple(tensor.shape)}")
    check_finite(name, tensor)
    classes = check_ids(label_name, labels).to(tensor.device)
    check_same_shape(label_name, classes, f"one class for each of {name}", tensor.shape[:1])
    return _Items(tensor if tensor.dtype == torch.float64 else tensor.float(), classes)


def _rows_per_block(queries: int, gallery: int) -> int:
    numbers = min(max(_BLOCK, queries * gallery // _MANY_BLOCKS), 2 * _BLOCK)
    return max(16, numbers // max(1, gallery))


def _located(
    queries: _Items, gallery: _Items, similarity: str, rows: int, policies: Iterable[str]
) -> Iterator[dict[str, _BinaryLists]]:
    """Yield, block by block, the ranks of the relevant items of each query under each tie policy."""
    by_class = torch.argsort(gallery.classes, stable=True)
    classes = gallery.classes[by_class]
    start, stop = (torch.searchsorted(classes, queries.classes, right=right) for right in (False, True))
    without_self = queries is gallery
    size = len(classes) - int(without_self)
    keys_of = _key_function(queries.points, gallery.points, similarity)
    # One buffer for all blocks: allocating each anew would take a tenth of the time.
    space = gallery.points.new_empty(min(rows, len(queries.classes)), len(classes))
    for first in range(0, len(queries.classes), rows):
        keys = keys_of(slice(first, first + rows), space[: len(queries.classes) - first])
        if without_self:
            keys.diagonal(first).fill_(float("inf"))
        begin, end = start[first : first + rows, None], stop[first : first + rows, None]
        index = begin + torch.arange(int((end - begin).max()), device=keys.device)
        own = keys.gather(1, by_class[index.clamp_max(len(classes) - 1)]).masked_fill_(index >= end, float("inf"))
        own, valid = _present(sort_values(own))
        keys = sort_values(keys, in_place=True)
        sizes = torch.full((len(keys),), size, device=keys.device)
        yield {
            ties: _BinaryLists(locate(keys, own, valid, sizes, pessimistic=ties == "pessimistic"), ties)
            for ties in policies
        }


def _key_function(queries: Tensor, gallery: Tensor, similarity: str) -> Callable[[slice, Tensor], Tensor]:
    """Return a function that writes sort keys (rows, M) of some queries into a buffer, most similar items first."""
    if similarity == "cosine":
        queries, gallery = (
            normalize(_rescale(points, points.abs().amax(1, keepdim=True))) for points in (queries, gallery)
        )
    else:
        largest = torch.maximum(queries.abs().max(), gallery.abs().max())
        queries, gallery = _rescale(queries, largest), _rescale(gallery, largest)
    if similarity == "euclidean":
        # |g|^2 - 2 q.g orders like |q - g|^2. Centred on the mean of the gallery it has the least cancellation.
        middle = gallery.mean(0)
        queries, gallery = queries - middle, gallery - middle
        length = gallery.square().sum(1)
        return lambda some, out: torch.addmm(length, queries[some], gallery.T, alpha=-2, out=out)
    negated = -queries
    return lambda some, out: torch.mm(negated[some], gallery.T, out=out)


def _rescale(points: Tensor, largest: Tensor) -> Tensor:
    """Divide the points by a power of 2 near `largest` if their products would overflow or underflow.

    This is exact, and changes no ranking: a common factor of all points keeps the order of distances and products, and
    a factor of each point keeps cosines.
    """
    exponent = torch.frexp(largest).exponent
    if bool((exponent.abs() <= _SAFE_EXPONENT).all()):
        return points
    most = int(math.log2(torch.finfo(points.dtype).max)) - 1
    # The exponent is a float, because older versions of torch compute 2 to an integer power in float32.
    return torch.ldexp(points, -exponent.clamp(-most, most).to(points.dtype))


def _present(own: Tensor) -> tuple[Tensor, Tensor]:
    """Drop the columns that are padding in every row, and return the mask of relevant items."""
    valid = own < float("inf")
    width = int(valid.any(0).sum())
    return own[:, :width].contiguous(), valid[:, :width]
