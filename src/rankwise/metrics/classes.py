"""Metrics as torchmetrics classes: updated batch by batch, in any number of processes, and exact over all batches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rankwise.checks import (
    check_choice,
    check_ids,
    check_k,
    check_labels,
    check_same_shape,
    check_tensor,
    wide_dtype,
    with_float64,
)
from rankwise.lists import EMPTY_POLICIES, pack
from rankwise.metrics.metric import measure
from rankwise.metrics.names import create_metric
from rankwise.surrogates import Gain

try:
    from torchmetrics import Metric as TorchMetric
    from torchmetrics.utilities.data import dim_zero_cat
except ImportError:
    raise ImportError('the metric classes need torchmetrics: pip install "rankwise[metrics]"') from None

__all__ = [
    "AUROC",
    "NDCG",
    "AveragePrecision",
    "HitRate",
    "PAp",
    "PartialAUROC",
    "Precision",
    "RankingMetric",
    "Recall",
    "ReciprocalRank",
]


class RankingMetric(TorchMetric):
    """Registered metric over all batches, not the mean of batch values.

    Scores, labels and ids are kept until `compute()`, which gathers them from all processes, including those without a
    batch. An item that occurs twice (a sampler that fills up the last batch) counts once if `sample_ids` are given.

    Args:
        name: name of a registered metric, such as "ndcg@10".
        gain, ties, fpr_range: as for `create_metric`.
        empty: treatment of a list on which the metric is undefined: "skip", "zero", "one" or "error".
        **kwargs: arguments of torchmetrics.Metric (`process_group`, `sync_on_compute`, ...).

    Example:
        >>> metric = RankingMetric("recall@1")
        >>> metric.update([.9, .8], [1, 0], query_ids=[0, 1])
        >>> metric.update([.7, .95], [0, 1], query_ids=[0, 1])
        >>> metric.compute()
        tensor(1., dtype=torch.float64)
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    plot_lower_bound = 0.0
    plot_upper_bound = 1.0

    scores: list[Tensor]
    labels: list[Tensor]
    weights: list[Tensor]
    query_ids: list[Tensor]
    sample_ids: list[Tensor]
    identified: list[Tensor]

    def __init__(
        self,
        name: str,
        *,
        gain: Gain | None = None,
        ties: str | None = None,
        fpr_range: tuple[float, float] | None = None,
        empty: str = "skip",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.metric = create_metric(name, gain=gain, ties=ties, fpr_range=fpr_range)
        self.empty = check_choice("empty", empty, EMPTY_POLICIES)
        for state in ("scores", "labels", "weights", "query_ids", "sample_ids", "identified"):
            self.add_state(state, [], dist_reduce_fx="cat")

    def update(
        self,
        scores: object,
        labels: object,
        query_ids: object = None,
        sample_ids: object = None,
        mask: object = None,
        weights: object = None,
    ) -> None:
        """Add a batch.

        Args:
            scores: (N,), or (Q, L) one list per row.
            labels: the shape of `scores`.
            query_ids: (N,) id of the list of each item, across batches and processes, or (Q,) ids of the rows; without
                them the items of all batches are one list.
            sample_ids: the shape of `scores`, ids of the items; a repeated item of a list then counts once.
            mask: the shape of `scores`, False in the padding.
            weights: the shape of `scores`, item weights of 0 or more.
        """
        lists = pack(scores, labels, mask=mask, weights=weights).blocks[0]
        check_labels(lists.labels, self.metric.record.labels)
        shape = check_tensor("scores", scores).shape
        if query_ids is None:
            if len(shape) == 2:
                raise ValueError(f"query_ids: expected ids for the lists of scores {tuple(shape)}, got None")
            query_ids = torch.zeros(shape, dtype=torch.int64)
        queries = check_ids("query_ids", query_ids)
        if len(shape) == 2 and queries.shape == shape[:1]:
            queries = queries[:, None].expand(shape)
        check_same_shape("query_ids", queries, "scores", shape)
        samples = torch.zeros_like(queries) if sample_ids is None else check_ids("sample_ids", sample_ids)
        check_same_shape("sample_ids", samples, "scores", shape)
        parts = {
            "scores": lists.scores.detach(),
            "labels": lists.labels,
            "weights": torch.ones_like(lists.mask) if lists.weights is None else lists.weights,
            "query_ids": queries,
            "sample_ids": samples,
            "identified": torch.full_like(lists.mask, sample_ids is not None),
        }
        for state, dtype in _DTYPES.items():
            values = parts[state].to(lists.mask.device).reshape(lists.mask.shape)
            getattr(self, state).append(values[lists.mask].to(_narrowed(dtype, values.device)))

    def compute(self) -> Tensor:
        """Compute the mean over all lists, float64."""
        if not len(self.scores):
            return torch.tensor(float("nan"), dtype=wide_dtype(self.device), device=self.device)
        seen = {state: with_float64(dim_zero_cat(getattr(self, state))).to(dtype) for state, dtype in _DTYPES.items()}
        kept = _first_of_each(seen["query_ids"], seen["sample_ids"], seen["identified"].bool())
        scores, labels, weights, query_ids = (
            seen[state][kept] for state in ("scores", "labels", "weights", "query_ids")
        )
        even = bool((weights == 1).all())
        return measure(
            self.metric, scores, labels, query_ids=query_ids, weights=None if even else weights, empty=self.empty
        )

    def _sync_dist(self, *args: Any, **kwargs: Any) -> None:
        # Every process must gather tensors of the same dtype, also one without a batch.
        for state, dtype in _DTYPES.items():
            if not len(getattr(self, state)):
                setattr(self, state, [torch.empty(0, dtype=_narrowed(dtype, self.device), device=self.device)])
        super()._sync_dist(*args, **kwargs)


_DTYPES = {
    "scores": torch.float64,
    "labels": torch.float64,
    "weights": torch.float64,
    "query_ids": torch.int64,
    "sample_ids": torch.int64,
    "identified": torch.uint8,
}


def _narrowed(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """Return the dtype, or float32 for float64 on a device without it."""
    return wide_dtype(device) if dtype == torch.float64 else dtype


class _CutMetric(RankingMetric):
    """Base class of metrics with a cutoff k, or None for the whole list."""

    _name: str

    def __init__(self, k: int | None = None, *, ties: str | None = None, empty: str = "skip", **kwargs: Any) -> None:
        super().__init__(_cut(self._name, k), ties=ties, empty=empty, **kwargs)


class AveragePrecision(RankingMetric):
    """Average precision over all batches, see `average_precision`.

    Example:
        >>> metric = AveragePrecision()
        >>> metric.update([.9, .8, .7, .6], [1, 0, 1, 0])
        >>> metric.compute()
        tensor(0.8333, dtype=torch.float64)
    """

    def __init__(self, *, ties: str | None = None, empty: str = "skip", **kwargs: Any) -> None:
        super().__init__("ap", ties=ties, empty=empty, **kwargs)


class NDCG(RankingMetric):
    """NDCG over all batches, see `ndcg`.

    Example:
        >>> metric = NDCG(k=2)
        >>> metric.update([.9, .8, .7, .6], [0, 3, 1, 0])
        >>> metric.compute()
        tensor(0.5788, dtype=torch.float64)
    """

    def __init__(
        self,
        k: int | None = None,
        *,
        gain: Gain = "exp2",
        ties: str | None = None,
        empty: str = "skip",
        **kwargs: Any,
    ) -> None:
        super().__init__(_cut("ndcg", k), gain=gain, ties=ties, empty=empty, **kwargs)


class PAp(_CutMetric):
    """Micro-pAp@k over all batches, see `pap`.

    Example:
        >>> metric = PAp(k=2)
        >>> metric.update([.9, .8, .7, .6], [1, 0, 1, 0])
        >>> metric.compute()
        tensor(0.7500, dtype=torch.float64)
    """

    _name = "pap"


class Precision(_CutMetric):
    """Precision@k over all batches, see `precision`.

    Example:
        >>> metric = Precision(k=2)
        >>> metric.update([.9, .8, .7, .6], [1, 0, 1, 0])
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    _name = "precision"


class Recall(_CutMetric):
    """Recall@k over all batches, see `recall`.

    Example:
        >>> metric = Recall(k=2)
        >>> metric.update([.9, .8, .7, .6], [1, 0, 1, 0])
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    _name = "recall"


class HitRate(_CutMetric):
    """Hit rate@k over all batches, see `hit_rate`.

    Example:
        >>> metric = HitRate(k=2)
        >>> metric.update([.9, .8, .7, .6], [1, 0, 1, 0])
        >>> metric.compute()
        tensor(1., dtype=torch.float64)
    """

    _name = "hit"


class ReciprocalRank(_CutMetric):
    """Mean reciprocal rank (MRR) over all batches, see `reciprocal_rank`.

    Example:
        >>> metric = ReciprocalRank(k=2)
        >>> metric.update([.9, .8, .7, .6], [1, 0, 1, 0])
        >>> metric.compute()
        tensor(1., dtype=torch.float64)
    """

    _name = "rr"


class AUROC(RankingMetric):
    """AUROC over all batches, see `auroc`.

    Example:
        >>> metric = AUROC()
        >>> metric.update([.9, .8, .7, .6], [1, 0, 1, 0])
        >>> metric.compute()
        tensor(0.7500, dtype=torch.float64)
    """

    def __init__(self, *, ties: str | None = None, empty: str = "skip", **kwargs: Any) -> None:
        super().__init__("auroc", ties=ties, empty=empty, **kwargs)


class PartialAUROC(RankingMetric):
    """Partial AUROC over all batches, see `partial_auroc`.

    Example:
        >>> metric = PartialAUROC(fpr_range=(0., .5))
        >>> metric.update([.9, .8, .7, .6], [1, 0, 1, 0])
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    def __init__(
        self,
        *,
        fpr_range: tuple[float, float] = (0.0, 0.1),
        ties: str | None = None,
        empty: str = "skip",
        **kwargs: Any,
    ) -> None:
        super().__init__("pauroc", fpr_range=fpr_range, ties=ties, empty=empty, **kwargs)


def _cut(name: str, k: int | None) -> str:
    return name if check_k(k) is None else f"{name}@{k}"


def _first_of_each(query_ids: Tensor, sample_ids: Tensor, identified: Tensor) -> Tensor:
    """Return the mask of items to keep: those without an id, and the first of each (query, sample) pair."""
    if not bool(identified.any()):
        return torch.ones_like(identified)
    order = torch.argsort(sample_ids, stable=True)
    order = order[torch.argsort(query_ids[order], stable=True)]
    order = order[torch.argsort(identified[order].to(torch.uint8), stable=True)]
    again = torch.zeros_like(identified)
    same = (query_ids[order].diff() == 0) & (sample_ids[order].diff() == 0) & identified[order][:-1]
    again[order[1:]] = same
    return ~again
