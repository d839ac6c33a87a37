"""SOPRC: loss for the area under the precision-recall curve, from mini-batches of any composition."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rankwise.checks import check_choice, check_positive, check_range, check_share, first_order_only
from rankwise.estimators import QuantileTracker, interpolate_quantiles
from rankwise.estimators.groups import COSINES, RANGES, Link, Prior, as_prior
from rankwise.lists import Lists, PackedLists, Sides, anchors_that_count, split_sides, take
from rankwise.losses.base import ListLoss
from rankwise.pairs import mean_over_negatives, pair_sums
from rankwise.registry import LossRecord
from rankwise.surrogates import OneSidedHuber, OneSidedTanh, Surrogate

__all__ = ["AUPRCLoss", "SemiVarianceLoss"]


class AUPRCLoss(ListLoss):
    """Smooth loss for 1 - AUPRC (average precision), with the prior of the data instead of the batch's.

    The value of a list is the mean over its positives i of

        x / (1 + x),   x = (1 - prior) / prior * FPR_i / TPR_i,

    where FPR_i is the mean of the one-sided Huber surrogate of s_i - s_j over the negatives j of the batch, and TPR_i
    the share of positives above s_i, from running quantiles V of the group's positive scores. In [0, 1]; 0 is perfect.

    Args:
        prior: the share of positives to assume: a number, one per group (tensor or `GroupPrior`), "batch", or a
            `PriorSchedule`. The true share (`data_prior(labels)`) makes the value unbiased. But if it is very small,
            nearly every positive starts with a precision near 0, and training stalls. Start with .1, or with a
            schedule from .5 down to the true share.
        tau: margin of the Huber surrogate; a pair this far apart has a loss of 0.
        tau_recall: width of the step in the recall estimate.
        recall: "quantiles" keeps V between batches; "batch" uses the batch's positives only (no state).
        quantiles: the number of running quantiles per group.
        update_rate: weight of the new batch in V.
        recall_floor: smallest recall of a positive, in (0, 1). None means 1 / (quantiles + 1), or the share of one
            positive among those of the batch with `recall="batch"`. Larger values, up to 1/3, give
            smoother training for groups with few positives (retrieval), at the price of bias.
        recall_gradient: "stopped" or "full": whether the gradient flows through the recall.
        link: map of scores to about [-1, 1], the range that the margins are made for: "scale" (division by the running
            spread, for logits; cosines and probabilities pass unchanged), "none", "tanh", "sigmoid".
        score_range: lowest and highest possible score after the link, which the extrapolated ends of V never leave.
            None: (-1, 1) for cosines (`EmbeddingLoss`) and "tanh", (0, 1) for "sigmoid", else none.
        lists, empty, reduction: see `ListLoss`; `lists="columns"` takes (B, C) outputs as one list per class.

    Example:
        >>> loss = AUPRCLoss(prior=0.1)
        >>> scores = torch.tensor([0.9, 0.2, 0.4, 0.1], requires_grad=True)
        >>> value = loss(scores, torch.tensor([1, 1, 0, 0]))
        >>> value.backward()
        >>> bool(scores.grad[1] < 0 < scores.grad[2]), loss.skipped
        (True, 0)

    Paper: Wen et al., Exploring the Algorithm-Dependent Generalization of AUPRC Optimization with List Stability,
    NeurIPS 2022, equations (7) to (9), with its misprints corrected.
    """

    remembers = ("link.kind",)

    def __init__(
        self,
        prior: float | str | Tensor | Prior = 0.1,
        *,
        tau: float = 0.1,
        tau_recall: float = 0.001,
        recall: str = "quantiles",
        quantiles: int = 100,
        update_rate: float = 0.1,
        recall_floor: float | None = None,
        recall_gradient: str = "stopped",
        link: str = "scale",
        score_range: Sequence[float] | None = None,
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        self.prior = as_prior(prior)
        self.precision_surrogate: Surrogate = OneSidedHuber(check_positive("tau", tau))
        self.recall_surrogate: Surrogate = OneSidedTanh(check_positive("tau_recall", tau_recall))
        check_choice("recall", recall, ("quantiles", "batch"))
        self.tracker = QuantileTracker(quantiles, update_rate) if recall == "quantiles" else None
        self.recall_floor = None if recall_floor is None else check_share("recall_floor", recall_floor)
        self.recall_gradient = check_choice("recall_gradient", recall_gradient, ("stopped", "full"))
        self.link = Link(link)
        self.score_range = RANGES.get(link) if score_range is None else check_range("score_range", score_range)

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        sides = [split_sides(lists) for lists in packed.blocks]
        valid = packed.join([side.valid for side in sides])
        negatives_per_positive = self.prior.odds(lambda: packed.join([side.rate for side in sides]), group_ids)
        blocks = self.link(packed, group_ids).blocks
        positives = [take(lists.scores, side.index) for lists, side in zip(blocks, sides, strict=True)]
        quantiles: Tensor | None = None
        if self.tracker is not None:
            observed = [
                interpolate_quantiles(
                    scores.detach(),
                    side.padding,
                    self.tracker.count,
                    bounds=COSINES if self.score_range is None and lists.cosines else self.score_range,
                    weights=None if lists.weights is None else side.share,
                )
                for lists, scores, side in zip(blocks, positives, sides, strict=True)
            ]
            quantiles = self.tracker(packed.join(observed), valid, group_ids)
        values = []
        for lists, side, scores in zip(blocks, sides, positives, strict=True):
            recall = self._recall(scores, None if quantiles is None else packed.select_block(quantiles, lists), side)
            false_positives = mean_over_negatives(lists, side, self.precision_surrogate)
            odds = packed.column(negatives_per_positive, lists) * false_positives / recall
            # Keeps x / (1 + x) from becoming inf / inf.
            odds = odds.clamp_max(1e30)
            values.append((odds / (1 + odds) * side.share).sum(1))
        reason = "its gradient holds the recall fixed, or the running quantiles"
        return first_order_only(packed.join(values), type(self).__name__, reason), valid

    def _recall(self, positives: Tensor, quantiles: Tensor | None, side: Sides) -> Tensor:
        """Compute the share of positives at or above each one, (Q, A); a positive counts itself, so it is not 0."""
        if self.recall_gradient == "stopped":
            positives = positives.detach()
        if quantiles is None:
            share, surrogate = side.share, self.recall_surrogate
            above = pair_sums(positives, positives.detach(), surrogate, weights=share, anchor_mask=side.padding)
            own = share if self.recall_floor is None else self.recall_floor * (1 - above)
            recall = (own + above).clamp_min(torch.finfo(above.dtype).tiny)
            return recall if side.padding is None else recall.where(side.padding, 1)
        count = quantiles.shape[1]
        floor = 1 / (count + 1) if self.recall_floor is None else self.recall_floor
        above = pair_sums(
            positives, quantiles, self.recall_surrogate, anchor_mask=anchors_that_count(side.index, side.padding)
        )
        return floor + above * ((1 - floor) / count)


class SemiVarianceLoss(ListLoss):
    """Penalty for positives below the mean positive and negatives above the mean negative of each list.

        positive / n+ * sum over s_i < mu+ of (s_i - mu+)^2  +  negative / n- * sum over s_j > mu- of (s_j - mu-)^2

    Add it to a loss with `SumLoss(loss, SemiVarianceLoss(3, 15))`. For linked scores about 1e19 apart the value is
    infinite in float32, but the gradient is right.

    Args:
        positive: weight of the first sum; negative: weight of the second.
        link: as in the loss it is added to, see `AUPRCLoss`.
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> SemiVarianceLoss(1.0, 1.0)(torch.tensor([0.8, 0.4, 0.1, 0.3]), torch.tensor([1, 1, 0, 0]))
        tensor(0.0250)

    Paper: Wen et al., NeurIPS 2022, equation (9).
    """

    remembers = ()

    def __init__(
        self,
        positive: float = 1.0,
        negative: float = 5.0,
        *,
        link: str = "scale",
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        self.positive = check_positive("positive", positive, zero=True)
        self.negative = check_positive("negative", negative, zero=True)
        self.link = Link(link)

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = self.link(packed, group_ids).map(self._block_values)
        return values, valid

    def _block_values(self, lists: Lists) -> tuple[Tensor, Tensor]:
        items = lists.mask.to(lists.scores.dtype) if lists.weights is None else lists.weights.to(lists.scores.dtype)
        positives = items * (lists.labels == 1)
        negatives = items - positives
        spread = self.positive * _half_variance(-lists.scores, positives)
        spread = spread + self.negative * _half_variance(lists.scores, negatives)
        return spread, (positives.sum(1) > 0) & (negatives.sum(1) > 0)


def _half_variance(scores: Tensor, weights: Tensor) -> Tensor:
    """Compute the mean square of the scores' distances above their weighted mean, (Q, L) to (Q,)."""
    if not scores.shape[1]:
        return scores.sum(1)
    share = weights / weights.sum(1, keepdim=True).clamp_min(torch.finfo(scores.dtype).tiny)
    # Relative to the highest score, so that the mean of equal scores is exact.
    highest = scores.detach().masked_fill(weights == 0, -torch.inf).amax(1, keepdim=True)
    depths = scores - highest.masked_fill(highest.isinf(), 0)
    above = (depths - (depths * share).sum(1, keepdim=True)).clamp_min(0)
    # Weighted before the square: a term of share 0 is then 0, not inf * 0.
    return (above * share.sqrt()).square().sum(1)


RECORDS = (
    LossRecord(
        name="auprc",
        aliases=("soprc",),
        summary="average precision (area under the precision-recall curve), from batches of any composition",
        build=AUPRCLoss,
        role="paper",
        paper="Wen et al., NeurIPS 2022 (SOPRC)",
    ),
    LossRecord(
        name="semi-variance",
        summary="add-on: pulls low positives and high negatives towards the mean of their kind",
        build=SemiVarianceLoss,
        role="paper",
        paper="Wen et al., NeurIPS 2022, equation (9)",
    ),
)
