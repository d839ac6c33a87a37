"""Average precision of a batch: Smooth-AP, blackbox AP, AP-loss and aLRP."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rankwise.checks import (
    check_finite,
    check_labels,
    check_positive,
    check_same_shape,
    check_tensor,
    first_order_only,
    full_precision,
    outside_graphs,
    outside_inference_mode,
)
from rankwise.distributed import gather_inputs
from rankwise.estimators.groups import Link
from rankwise.lists import Lists, PackedLists, Sides, pack, split_sides
from rankwise.losses.base import ListLoss, with_gradient
from rankwise.losses.baselines.shared import item_weights
from rankwise.pairs import pair_sums
from rankwise.registry import LossRecord
from rankwise.surrogates import PiecewiseStep, Sigmoid, Surrogate

__all__ = ["ALRPLoss", "APLoss", "BlackboxAPLoss", "SmoothAPLoss", "pair_updates", "soft_ranks"]


class SmoothAPLoss(ListLoss):
    """1 - AP with every comparison of two scores made smooth; the mean over the positives i of a list of

        N_i / (1 + P_i + N_i),

    P_i and N_i the sums of sigmoid((s_j - s_i) / temperature) over the other positives and over the negatives. Works
    for rows in any order and classes of any size.

    Args:
        temperature: width of the sigmoid; the paper's .01 is made for cosines.
        link: how scores come to about [-1, 1], see `AUPRCLoss`.
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
    """1 - AP exactly, of scores with a margin; the gradient says how the ranks answer to a change of the scores.

    With r the rank of an item among the n of its list over n, and r+ that among the positives over n, the value is the
    mean over the positives of 1 - r+ / r. Its derivative d with respect to r (r+ held fixed) moves the scores to
    s + strength d, they are ranked again, and the gradient is (r(s + strength d) - r(s)) / strength. Tied items share
    their mean rank, so the order of rows changes nothing.

    Args:
        strength: the paper's lambda: how far scores are moved to see what the ranks do.
        margin: positives are ranked with margin/2 less than their score and negatives with margin/2 more.
        link: how scores come to about [-1, 1], see `AUPRCLoss`.
        lists, empty, reduction: see `ListLoss`.

    Items of different weights have no rank; weights of 0 leave items out, others must be equal.

    Example:
        >>> scores = torch.tensor([0.9, 0.2, 0.4, 0.1], requires_grad=True)
        >>> value = BlackboxAPLoss()(scores, torch.tensor([1, 1, 0, 0]))
        >>> value.backward()
        >>> value.item(), bool(scores.grad[1] < 0 < scores.grad[2])
        (0.16666..., True)

    Paper: Rolinek et al., Optimizing Rank-Based Metrics with Blackbox Differentiation, CVPR 2020. The scores are moved
    for each list by itself, so that the other lists of a batch change nothing; the authors' code moves them the less
    the more lists there are.
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
        share = torch.zeros_like(scores).scatter_add_(1, sides.index, sides.share)
        precision = hits / torch.where(lists.mask, ranks, 1)
        slope = share * precision / torch.where(lists.mask, ranks, 1)
        moved = mean_ranks(scores + self.strength * slope, lists.mask) / size
        gradient = (moved - ranks) / self.strength
        values = (share * (1 - precision)).sum(1)
        reason = "its gradient is a difference of ranks, not a derivative"
        return with_gradient(values, lists.scores, gradient, type(self).__name__, reason), sides.valid


def mean_ranks(scores: Tensor, mask: Tensor) -> Tensor:
    """(Q, L) place of each item among those of its list, from 1 for the best; tied items share the mean of theirs."""
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
            "weights: expected equal weights (0 leaves an item out), because ranks know no others, got "
            f"some {(given.max() / given.min()).item():g} times as heavy as others of their list"
        )


class APLoss(ListLoss):
    """1 - AP, whose gradient is not a derivative: every pair moves by what it costs.

    A positive i and a negative j cost L_ij = H_ij / rank_i, where H_ij = H(s_i - s_j) is the step from 1 to 0 along a
    line over [-delta, delta], and rank_i = 1 + sum of H over all other items. The value is the mean over the positives
    of sum_j L_ij; the "gradient" of a positive is -sum_j L_ij / n+, that of a negative sum_i L_ij / n+. So a pair that
    is badly wrong, where the step is flat, still moves.

    Args:
        delta: half the width of the step; positives this much above a negative have won.
        link: how scores are changed first, see `AUPRCLoss`; the paper takes logits as they are.
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


class ALRPLoss(nn.Module):
    """Average localisation-recall-precision: AP-loss in which positives that stand badly in the image cost, too.

    A positive i at rank_i among all items, with N_i negatives above it, costs

        (N_i + sum of E_k over the positives k at or above i) / rank_i,

    E_k in [0, 1] how far its box is off; counts are by the step of `APLoss`. The value is the mean over positives. The
    gradient with respect to the errors E is the derivative, times value / (the part of the errors in the value), so
    that boxes and scores pull alike whatever the state of training. The "gradient" with respect to the scores moves
    every wrong pair by its share of what i would cost less if no other item stood above it: (cost_i - E_i / rank_i) /
    N_i times the step. Perfect boxes (E = 0) make it `APLoss`.

    Args:
        delta: half the width of the step; positives this much above a negative have won.

    Called as `loss(scores, labels, errors, mask=None)`, all of one shape; all items are one list, whatever the shape.
    Errors of negatives are not looked at. Without a positive or a negative it is a zero attached to the graph.

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

    @outside_graphs
    @outside_inference_mode
    def forward(self, scores: Tensor, labels: Tensor, errors: Tensor, *, mask: Tensor | None = None) -> Tensor:
        inputs = gather_inputs(lambda: _check_inputs(scores=scores, labels=labels, errors=errors, mask=mask))
        scores, labels, errors, mask = inputs.values()
        with full_precision(scores.device.type):
            kind = torch.promote_types(torch.promote_types(scores.dtype, errors.dtype), torch.float32)
            (lists,) = pack(scores.to(kind), labels, mask=mask).blocks
            check_labels(lists.labels, "binary", lists.mask)
            sides = split_sides(lists)
            missed = errors.to(kind)[None].gather(1, sides.index) * sides.mask
            _check_errors(missed)
            return self._value(lists, sides, missed)

    def _value(self, lists: Lists, sides: Sides, errors: Tensor) -> Tensor:
        positives = lists.scores.detach().gather(1, sides.index)
        with torch.no_grad():
            above, rank = soft_ranks(lists, sides, self.step)
        at_or_above = errors / 2 + pair_sums(
            positives, positives, self.step, weights=errors, anchor_mask=sides.mask, other_mask=sides.mask
        )
        places = (at_or_above / rank * sides.share).sum(1)
        with torch.no_grad():
            costs = (above + at_or_above) / rank
            saved = (costs - errors / rank) * sides.share
            gradient = pair_updates(lists, sides, self.step, torch.where(above > 0, saved / above, 0))
            value = (costs * sides.share).sum(1)
            balance = value / places.clamp_min(torch.finfo(places.dtype).tiny)
        # Its value is `value`, its gradient that of the errors, balanced.
        placed = value + balance * (places - places.detach())
        name, reason = type(self).__name__, "its gradients are updates of pairs and of balanced errors, not derivatives"
        placed = first_order_only(placed, name, reason)
        total = with_gradient(placed.detach(), lists.scores, gradient, name, reason) + placed - placed.detach()
        return (total * sides.valid).sum()


def _check_inputs(**given: object) -> dict[str, Tensor | None]:
    """Return the inputs as tensors, all items one list."""
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
    """The negatives above each positive and its rank among all items, (Q, A) each, by weight.

    A positive counts for itself in full; step(0) must be 1/2. Over the positives only: Q x A x L pairs, in chunks that
    need no memory to speak of.
    """
    positives = lists.scores.gather(1, sides.index)
    weights = None if lists.weights is None else lists.weights.to(positives.dtype)
    own = sides.mask.to(positives.dtype) if weights is None else weights.gather(1, sides.index) * sides.mask
    above = pair_sums(
        positives, lists.scores, step, weights=weights, anchor_mask=sides.mask, other_mask=sides.negatives.mask
    )
    among = pair_sums(positives, positives, step, weights=own, anchor_mask=sides.mask, other_mask=sides.mask)
    # The sum over all positives holds the positive itself with half of its weight.
    rank = above + among + torch.where(sides.mask, own / 2, 1)
    return above, rank


def pair_updates(lists: Lists, sides: Sides, step: Surrogate, costs: Tensor) -> Tensor:
    """The update (Q, L) in which a positive i and a negative j move apart by costs_i step(s_i - s_j).

    Args:
        lists: the scores; sides: their positives and negatives.
        step: how wrong a pair is, from 0 to 1.
        costs: (Q, A) what a pair of positive i costs when it is wrong; 0 outside `sides.mask`.
    """
    positives, weights = lists.scores.detach().gather(1, sides.index), item_weights(lists)
    # How the weighted sum over anchors of the step changes with the weight of a negative is that negative's share.
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
    return pushed.mul(weights).masked_fill_(lists.relevant, 0).scatter_add_(1, sides.index, -costs * sums.detach())


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
        advice="a gradient that does not vanish for hopeless items",
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
