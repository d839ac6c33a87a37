"""Losses for the average precision of a batch: Smooth-AP, blackbox AP, AP-loss and aLRP."""

from __future__ import annotations

import torch
from torch import Tensor

from rankwise.checks import (
    NumberedModule,
    check_finite,
    check_labels,
    check_positive,
    check_same_shape,
    check_tensor,
    first_order_only,
    full_precision,
    in_graphs,
    outside_inference_mode,
)
from rankwise.distributed import gather_inputs
from rankwise.estimators.groups import Link
from rankwise.lists import Lists, PackedLists, Sides, anchors_that_count, pack, put_back, split_sides, take
from rankwise.losses.base import ListLoss, with_gradient
from rankwise.losses.baselines.shared import item_weights
from rankwise.pairs import pair_sums, pair_sums_within
from rankwise.registry import LossRecord
from rankwise.sorting import filled
from rankwise.surrogates import PiecewiseStep, Sigmoid, Surrogate

__all__ = ["ALRPLoss", "APLoss", "BlackboxAPLoss", "SmoothAPLoss", "pair_updates", "soft_ranks"]


class SmoothAPLoss(ListLoss):
    """Smooth AP loss: 1 - AP with sigmoids for comparisons of scores. The mean over the positives i of a list of

        N_i / (1 + P_i + N_i),

    where P_i and N_i are the sums of sigmoid((s_j - s_i) / temperature) over the other positives and over the
    negatives. Rows may be in any order and classes of any size.

    Args:
        temperature: width of the sigmoid; the paper's .01 is made for cosines.
        link: map of scores to about [-1, 1], see `AUPRCLoss`.
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> import torch
        >>> SmoothAPLoss()(torch.tensor([0.9, 0.4, 0.6, 0.1]), torch.tensor([1, 1, 0, 0]))
        tensor(0.1667)

    Paper: Brown et al., Smooth-AP: Smoothing the Path Towards Large-Scale Image Retrieval, ECCV 2020.
    """

    remembers = ()

    def __init__(
        self,
        temperature: float = 0.01,
        *,
        link: str = "scale",
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        self.step = Sigmoid(temperature)
        self.link = Link(link)

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = self.link(packed, group_ids).map(self._block_values)
        return values, valid

    def _block_values(self, lists: Lists) -> tuple[Tensor, Tensor]:
        sides = split_sides(lists)
        above, rank = soft_ranks(lists, sides, self.step)
        return (above / rank * sides.share).sum(1), sides.valid


class BlackboxAPLoss(ListLoss):
    """Exact 1 - AP of scores with a margin; the gradient is a finite difference of ranks.

    With r the rank of an item in its list of n items, divided by n, and r+ its rank among the positives, divided by n,
    the value is the mean over the positives of 1 - r+ / r. With d its derivative with respect to r (r+ constant), the
    scores s + strength d are ranked again, and the gradient is (r(s + strength d) - r(s)) / strength. Tied items share
    their mean rank, so the result does not depend on the order of rows.

    Args:
        strength: the paper's lambda: step of the scores in the finite difference.
        margin: positives are ranked with margin/2 less than their score and negatives with margin/2 more.
        link: map of scores to about [-1, 1], see `AUPRCLoss`.
        lists, empty, reduction: see `ListLoss`.

    Ranks ignore weights: weights of 0 mask items, all others must be equal.

    Example:
        >>> scores = torch.tensor([0.9, 0.2, 0.4, 0.1], requires_grad=True)
        >>> value = BlackboxAPLoss()(scores, torch.tensor([1, 1, 0, 0]))
        >>> value.backward()
        >>> value.item(), bool(scores.grad[1] < 0 < scores.grad[2])
        (0.16666..., True)

    Paper: Rolinek et al., Optimizing Rank-Based Metrics with Blackbox Differentiation, CVPR 2020. The step is taken for
    each list by itself, so that it does not depend on the other lists of a batch; the authors' code takes smaller steps
    for more lists.
    """

    remembers = ()

    def __init__(
        self,
        strength: float = 4.0,
        margin: float = 0.02,
        *,
        link: str = "scale",
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        self.strength = check_positive("strength", strength)
        self.margin = check_positive("margin", margin, zero=True)
        self.link = Link(link)

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        for lists in packed.blocks:
            _check_equal_weights(lists)
        values, valid = self.link(packed, group_ids).map(self._block_values)
        return values, valid

    def _block_values(self, lists: Lists) -> tuple[Tensor, Tensor]:
        sides = split_sides(lists)
        positive = lists.relevant & lists.mask
        scores = lists.scores.detach() + self.margin * (0.5 - positive.to(lists.scores.dtype))
        size = lists.mask.sum(1, keepdim=True).clamp_min(1)
        ranks, hits = mean_ranks(scores, lists.mask) / size, mean_ranks(scores, positive) / size
        share = put_back(sides.share, sides.index, scores.shape[1])
        precision = hits / torch.where(lists.mask, ranks, 1)
        slope = share * precision / torch.where(lists.mask, ranks, 1)
        moved = mean_ranks(scores + self.strength * slope, lists.mask) / size
        gradient = (moved - ranks) / self.strength
        values = (share * (1 - precision)).sum(1)
        reason = "its gradient is a difference of ranks, not a derivative"
        return with_gradient(values, lists.scores, gradient, type(self).__name__, reason), sides.valid


def mean_ranks(scores: Tensor, mask: Tensor) -> Tensor:
    """Compute the rank of each item in its list, (Q, L), from 1 for the best; tied items share their mean rank."""
    depth = -scores
    keys = depth.masked_fill(~mask, torch.inf).sort(dim=1).values
    before, until = torch.searchsorted(keys, depth), torch.searchsorted(keys, depth, right=True)
    return ((before + until + 1) / 2).to(scores.dtype).masked_fill(~mask, 0)


def _check_equal_weights(lists: Lists) -> None:
    if lists.weights is None or not bool(lists.mask.any()):
        return
    given = lists.weights[lists.mask]
    if bool((given != given[0]).any()):
        raise ValueError(
            "weights: expected equal weights (0 leaves an item out), because ranks are unweighted, got "
            f"some {(given.max() / given.min()).item():g} times as large as others of their list"
        )


class APLoss(ListLoss):
    """AP loss with error-driven updates: 1 - AP, with the errors of pairs in place of a derivative.

    A positive i and a negative j have the error L_ij = H_ij / rank_i, where H_ij = H(s_i - s_j) falls linearly from 1
    to 0 over [-delta, delta], and rank_i = 1 + sum of H over all other items. The value is the mean over the positives
    of sum_j L_ij; the "gradient" of a positive is -sum_j L_ij / n+, that of a negative sum_i L_ij / n+. So even a pair
    in the flat part of the step gets a gradient.

    Args:
        delta: half the width of the step; a pair this far apart has no error.
        link: map of scores, see `AUPRCLoss`; the paper uses unchanged logits.
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> scores = torch.tensor([3.0, -3.0, 0.0], requires_grad=True)
        >>> value = APLoss()(scores, torch.tensor([1, 1, 0]))
        >>> value.backward()
        >>> value.item(), scores.grad
        (0.16666..., tensor([ 0.0000, -0.1667,  0.1667]))

    Paper: Chen et al., Towards Accurate One-Stage Object Detection with AP-Loss, CVPR 2019, without the interpolated
    precision.
    """

    remembers = ()

    def __init__(
        self,
        delta: float = 1.0,
        *,
        link: str = "none",
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        self.step = PiecewiseStep(check_positive("delta", delta))
        self.link = Link(link)

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = self.link(packed, group_ids).map(self._block_values)
        return values, valid

    def _block_values(self, lists: Lists) -> tuple[Tensor, Tensor]:
        sides = split_sides(lists)
        with torch.no_grad():
            above, rank = soft_ranks(lists, sides, self.step)
            gradient = pair_updates(lists, sides, self.step, sides.share / rank)
        values = (above / rank * sides.share).sum(1)
        reason = "its gradient is an update of pairs, not a derivative"
        return with_gradient(values, lists.scores, gradient, type(self).__name__, reason), sides.valid


class ALRPLoss(NumberedModule):
    """Average localisation-recall-precision loss: AP-loss with localisation errors of the positives.

    The error of a positive i at rank_i among all items, with N_i negatives above it, is

        (N_i + sum of E_k over the positives k at or above i) / rank_i,

    where E_k in [0, 1] is the localisation error of its box; N_i and rank_i use the step of `APLoss`. The value is the
    mean over positives. The gradient with respect to E is the derivative, times value / (the part of E in the value),
    so that boxes and scores have equal weight throughout training. The "gradient" with respect to the scores of a pair
    is its share of the decrease of i's error if no other item were above it: (error_i - E_i / rank_i) / N_i times the
    step. With perfect boxes (E = 0) this is `APLoss`.

    Args:
        delta: half the width of the step; a pair this far apart has no error.

    Called as `loss(scores, labels, errors, mask=None)`, all of one shape; all items form one list. Errors of negatives
    are ignored. Without a positive or a negative the value is a zero attached to the graph.

    Example:
        >>> scores = torch.tensor([2.0, -2.0, 0.0], requires_grad=True)
        >>> errors = torch.tensor([0.1, 0.5, 0.0], requires_grad=True)
        >>> value = ALRPLoss()(scores, torch.tensor([1, 1, 0]), errors)
        >>> value.backward()
        >>> round(value.item(), 4), scores.grad
        (0.3167, tensor([ 0.0000, -0.1833,  0.1833]))

    Paper: Oksuz et al., A Ranking-based, Balanced Loss Function Unifying Classification and Localisation in Object
    Detection, NeurIPS 2020; the balance is that of the batch instead of the last epoch's.
    """

    def __init__(self, delta: float = 1.0) -> None:
        super().__init__()
        self.step = PiecewiseStep(check_positive("delta", delta))

    def extra_repr(self) -> str:
        return f"step={self.step}"

    @in_graphs
    @outside_inference_mode
    def forward(self, scores: Tensor, labels: Tensor, errors: Tensor, *, mask: Tensor | None = None) -> Tensor:
        inputs = gather_inputs(lambda: _check_inputs(scores=scores, labels=labels, errors=errors, mask=mask))
        scores, labels, errors, mask = inputs.values()
        with full_precision(scores.device.type):
            kind = torch.promote_types(torch.promote_types(scores.dtype, errors.dtype), torch.float32)
            (lists,) = pack(scores.to(kind), labels, mask=mask).blocks
            check_labels(lists.labels, "binary", lists.mask)
            sides = split_sides(lists)
            missed = take(errors.to(kind)[None], sides.index) * sides.mask
            _check_errors(missed)
            return self._value(lists, sides, missed)

    def _value(self, lists: Lists, sides: Sides, errors: Tensor) -> Tensor:
        positives = take(lists.scores.detach(), sides.index)
        with torch.no_grad():
            above, rank = soft_ranks(lists, sides, self.step)
        at_or_above = errors / 2 + pair_sums(
            positives, positives, self.step, weights=errors, anchor_mask=sides.mask, other_mask=sides.mask
        )
        localisation = (at_or_above / rank * sides.share).sum(1)
        with torch.no_grad():
            costs = (above + at_or_above) / rank
            saved = (costs - errors / rank) * sides.share
            gradient = pair_updates(lists, sides, self.step, torch.where(above > 0, saved / above, 0))
            value = (costs * sides.share).sum(1)
            balance = value / localisation.clamp_min(torch.finfo(localisation.dtype).tiny)
        # This has the value of the loss and the balanced gradient for the errors.
        balanced = value + balance * (localisation - localisation.detach())
        name, reason = type(self).__name__, "its gradients are updates of pairs and of balanced errors, not derivatives"
        balanced = first_order_only(balanced, name, reason)
        total = with_gradient(balanced.detach(), lists.scores, gradient, name, reason) + balanced - balanced.detach()
        return (total * sides.valid).sum()


def _check_inputs(**given: object) -> dict[str, Tensor | None]:
    """Return the inputs as flat tensors of one list."""
    inputs = {name: None if value is None else check_tensor(name, value) for name, value in given.items()}
    shape = check_tensor("scores", inputs["scores"]).shape
    for name, tensor in inputs.items():
        if tensor is not None:
            check_same_shape(name, tensor, "scores", shape)
    return {name: None if tensor is None else tensor.flatten() for name, tensor in inputs.items()}


def _check_errors(errors: Tensor) -> None:
    check_finite("errors", errors)
    if bool(((errors < 0) | (errors > 1)).any()):
        wrong = errors[(errors < 0) | (errors > 1)]
        raise ValueError(f"errors: expected numbers from 0 to 1, got {wrong[0].item():g} ({len(wrong)} of them)")


def soft_ranks(lists: Lists, sides: Sides, step: Surrogate) -> tuple[Tensor, Tensor]:
    """Compute the weight of the negatives above each positive, and its rank among all items, (Q, A) each.

    In the padding both are any numbers, and the rank is not 0.

    A positive counts itself with its full weight; step(0) must be 1/2. These are Q x A x L pairs, computed in chunks of
    bounded memory.
    """
    above, total = _sums_of_all(lists, sides, step) if sides.index is None else _sums_of_sides(lists, sides, step)
    # The sum over all items includes the positive itself with half of its weight.
    if lists.weights is None:
        return above, total + 0.5
    half = take(lists.weights, sides.index).to(total.dtype) / 2
    return above, total + torch.where(sides.mask, half, filled((), 1.0, half.dtype, half.device))


def _sums_of_sides(lists: Lists, sides: Sides, step: Surrogate) -> tuple[Tensor, Tensor]:
    """Compute the sums of steps from each positive to the negatives and to all items, (Q, A) each, side by side."""
    positives, anchors = take(lists.scores, sides.index), anchors_that_count(sides.index, sides.mask)
    weights = None if lists.weights is None else lists.weights.to(positives.dtype)
    own = sides.mask.to(positives.dtype) if weights is None else take(weights, sides.index) * sides.mask
    above = pair_sums_within(
        lists.scores, sides.index, step, weights=weights, anchor_mask=anchors, other_mask=sides.negatives
    )
    # Positives in the padding have a weight of 0.
    return above, above + pair_sums(positives, positives, step, weights=own, anchor_mask=anchors)


def _sums_of_all(lists: Lists, sides: Sides, step: Surrogate) -> tuple[Tensor, Tensor]:
    """Compute `_sums_of_sides` for all items as anchors, (Q, L): both sums as one of 2 Q lists, in half the kernels."""
    anchors = anchors_that_count(None, sides.mask)
    weights = torch.cat([lists.mask ^ lists.relevant, lists.mask]).to(lists.scores.dtype)
    if lists.weights is not None:
        weights = weights * lists.weights.to(weights.dtype).repeat(2, 1)
    sums = pair_sums_within(
        lists.scores.repeat(2, 1),
        None,
        step,
        weights=weights,
        anchor_mask=None if anchors is None else anchors.repeat(2, 1),
    )
    above, total = sums.view(2, *lists.scores.shape).unbind()
    return above, total


def pair_updates(lists: Lists, sides: Sides, step: Surrogate, costs: Tensor) -> Tensor:
    """Compute the update (Q, L) in which a positive i and a negative j move apart by costs_i step(s_i - s_j).

    Args:
        lists: the scores; sides: their positives and negatives.
        step: error of a pair, from 0 to 1.
        costs: (Q, A) weight of the pairs of positive i; 0 outside `sides.mask`.
    """
    positives, weights = take(lists.scores.detach(), sides.index), item_weights(lists)
    # The derivative of the weighted sums in the weight of a negative is the update of that negative.
    with torch.enable_grad():
        counted = weights.clone().requires_grad_()
        sums = pair_sums(
            positives,
            lists.scores.detach(),
            step,
            weights=counted,
            anchor_mask=sides.mask,
            other_mask=sides.negatives.mask,
        )
        (pushed,) = torch.autograd.grad(sums, counted, costs)
    return pushed.mul(weights).masked_fill_(lists.relevant, 0) + put_back(
        -costs * sums.detach(), sides.index, weights.shape[1]
    )


RECORDS = (
    LossRecord(
        name="smooth-ap",
        summary="average precision of the batch, its steps made sigmoids",
        build=SmoothAPLoss,
        role="baseline",
        paper="Brown et al., ECCV 2020",
        advice="retrieval with large batches",
    ),
    LossRecord(
        name="blackbox-ap",
        summary="exact average precision, its gradient from a second ranking",
        build=BlackboxAPLoss,
        role="baseline",
        paper="Rolinek et al., CVPR 2020",
        advice="a gradient that does not vanish for positives of the lowest ranks",
    ),
    LossRecord(
        name="ap-loss",
        summary="average precision by error-driven updates",
        build=APLoss,
        role="baseline",
        paper="Chen et al., CVPR 2019",
        advice="detection; badly wrong pairs still move",
    ),
)
