"""Pointwise baselines: squared error, cross entropy, focal loss, LDAM."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from rankwise.checks import check_choice, check_positive, check_share
from rankwise.estimators.groups import Link
from rankwise.lists import Lists, PackedLists
from rankwise.losses.base import ListLoss, bound
from rankwise.losses.baselines.shared import item_weights, weighted_mean
from rankwise.registry import LossRecord
from rankwise.surrogates import gain_function

__all__ = [
    "BalancedCrossEntropyLoss",
    "BinaryCrossEntropyLoss",
    "FocalLoss",
    "LDAMLoss",
    "SquaredErrorLoss",
    "check_counts",
    "counts_of",
]


class BinaryCrossEntropyLoss(ListLoss):
    """Binary cross entropy of logits, averaged over the items of each list.

    Example:
        >>> import torch
        >>> BinaryCrossEntropyLoss()(torch.tensor([0.0, 0.0]), torch.tensor([1, 0]))
        tensor(0.6931)
    """

    itemwise = True

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = packed.map(lambda lists: weighted_mean(_item_losses(lists), item_weights(lists)))
        return values, valid


class BalancedCrossEntropyLoss(ListLoss):
    """Binary cross entropy of logits with class weights, lower for the more frequent class.

    A weighted mean over the items of each list: an item of a class (positive or negative) with n items has the weight

        (1 - beta) / (1 - beta^n),

    the inverse of the class's effective number. With beta = 1 that is 1 / n: half of the loss comes from the positives
    and half from the negatives. As beta goes to 0 it becomes plain cross entropy. A list of one class counts too.

    Args:
        beta: in (0, 1]; the paper tries .9, .99, .999 and .9999.
        counts: (negatives, positives) of the data set; None takes those of each list.
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> import torch
        >>> BalancedCrossEntropyLoss()(torch.tensor([0.0, 0.0, 0.0]), torch.tensor([1, 0, 0]))
        tensor(0.6931)

    Paper: Cui et al., Class-Balanced Loss Based on Effective Number of Samples, CVPR 2019, equation (6).
    """

    def __init__(
        self,
        beta: float = 1.0,
        *,
        counts: tuple[int, int] | None = None,
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        self.beta = check_share("beta", beta, open_end=False)
        self.counts = check_counts(counts)

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = packed.map(self._block_values)
        return values, valid

    def _block_values(self, lists: Lists) -> tuple[Tensor, Tensor]:
        weights = item_weights(lists)
        if self.beta == 1 and self.counts is None:
            # Sums of weights instead of counts, so that an item of weight 2 equals two items.
            positive = weights * (lists.labels == 1)
            return weighted_mean(_item_losses(lists), _share(positive) + _share(weights - positive))
        counts, _ = counts_of(lists, self.counts)
        effective = counts if self.beta == 1 else (1 - self.beta**counts) / (1 - self.beta)
        return weighted_mean(_item_losses(lists), weights / effective)


def _item_losses(lists: Lists) -> Tensor:
    return binary_cross_entropy_with_logits(lists.scores, lists.labels.to(lists.scores.dtype), reduction="none")


def _share(weights: Tensor) -> Tensor:
    """Divide each weight by the sum of its list."""
    return weights / weights.sum(1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)


class FocalLoss(ListLoss):
    """Focal loss: cross entropy of logits with lower weights for well-classified items, averaged over each list.

        a (1 - p)^gamma (-log p),

    where p is the probability of the true label, and a = alpha for positives and 1 - alpha for negatives.

    Args:
        gamma: exponent of the weight of well-classified items; 0 is cross entropy.
        alpha: the weight of positives, in (0, 1).
        per: "item" takes the mean over items; "positive" divides the sum over items by the number of positives (at
            least 1), as in detection, where nearly all items are easy negatives.
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> FocalLoss()(torch.tensor([0.0, -4.0]), torch.tensor([1, 0]))
        tensor(0.0217)

    Paper: Lin et al., Focal Loss for Dense Object Detection, ICCV 2017.
    """

    def __init__(
        self,
        gamma: float = 2.0,
        alpha: float = 0.25,
        *,
        per: str = "item",
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        self.gamma = check_positive("gamma", gamma, zero=True)
        self.alpha = check_share("alpha", alpha)
        self.per = check_choice("per", per, ("item", "positive"))

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = packed.map(self._block_values)
        return values, valid

    def _block_values(self, lists: Lists) -> tuple[Tensor, Tensor]:
        positive = lists.labels == 1
        towards_truth = torch.where(positive, lists.scores, -lists.scores)
        # log p = -softplus(-z) and log (1 - p) = -softplus(z): no logarithm of 0.
        losses = torch.exp(-self.gamma * softplus(towards_truth)) * softplus(-towards_truth)
        losses, weights = losses * torch.where(positive, self.alpha, 1 - self.alpha), item_weights(lists)
        if self.per == "item":
            return weighted_mean(losses, weights)
        return (losses * weights).sum(1) / (weights * positive).sum(1).clamp_min(1), weights.sum(1) > 0


class LDAMLoss(ListLoss):
    """Cross entropy with a margin per class, larger for the rarer one; averaged over the items of each list.

        log(1 + exp(-scale (z - margin))),   margin = max_margin (n_rarer / n)^(1/4),

    where z is the score of a positive or minus the score of a negative, and n the number of items of its class.

    Args:
        max_margin: the margin of the rarer class.
        scale: factor of scores minus margins; made for scores in [-1, 1].
        counts: (negatives, positives) of the data set; None takes those of each list.
        link: map of scores to [-1, 1], see `AUPRCLoss`; the paper's scores are cosines (`link="none"`).
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> loss = LDAMLoss(counts=(10_000, 1))
        >>> loss(torch.tensor([0.7, -0.7]), torch.tensor([1, 0]))
        tensor(0.0214)

    Paper: Cao et al., Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss, NeurIPS 2019; its two
    classes share one score here.
    """

    remembers = ()

    def __init__(
        self,
        max_margin: float = 0.5,
        scale: float = 30.0,
        *,
        counts: tuple[int, int] | None = None,
        link: str = "tanh",
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        self.max_margin = check_positive("max_margin", max_margin, zero=True)
        self.scale = check_positive("scale", scale)
        self.counts = check_counts(counts)
        self.link = Link(link)

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = self.link(packed, group_ids).map(self._block_values)
        return values, valid

    def _block_values(self, lists: Lists) -> tuple[Tensor, Tensor]:
        own, rarer = counts_of(lists, self.counts)
        margins = self.max_margin * (rarer / own) ** 0.25
        towards_truth = torch.where(lists.labels == 1, lists.scores, -lists.scores)
        return weighted_mean(softplus(-self.scale * (towards_truth - margins)), item_weights(lists))


class SquaredErrorLoss(ListLoss):
    """Weighted mean of `(s_i - t_i)^2` over the items of a list, in the dtype of the scores.

    Args:
        target: the regression target t: the "grades" y, or their "gains" 2^y - 1.
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> import torch
        >>> SquaredErrorLoss(target="gains")(torch.tensor([2.0, 0.0]), torch.tensor([2, 0]))
        tensor(0.5000)

    Paper: Cossock and Zhang, Subset ranking using regression, COLT 2006.
    """

    label_kind = "grades"

    def __init__(
        self, target: str = "grades", *, lists: str = "rows", empty: str = "skip", reduction: str = "mean"
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        self.target = check_choice("target", target, ("grades", "gains"))

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        gain = gain_function("exp2" if self.target == "gains" else "linear")

        def mean_square(lists: Lists) -> tuple[Tensor, Tensor]:
            dtype = lists.scores.dtype
            # Clamped so that a sum of squares does not overflow.
            errors = bound(lists.scores - gain(lists.labels).to(dtype), torch.finfo(dtype).max ** 0.4)
            return weighted_mean(errors.square(), item_weights(lists))

        values, valid = packed.map(mean_square)
        return values, valid


def check_counts(counts: object) -> tuple[int, int] | None:
    """Check the argument `counts`, (negatives, positives) of the data set or None, and return it."""
    if counts is None:
        return None
    pair = tuple(counts) if isinstance(counts, tuple | list) else ()
    if len(pair) != 2 or not all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in pair):
        raise ValueError(f"counts: expected two whole numbers > 0, (negatives, positives), got {counts!r}")
    return pair[0], pair[1]


def counts_of(lists: Lists, counts: tuple[int, int] | None) -> tuple[Tensor, Tensor]:
    """Return the number of items of each item's class, (Q, L), and of the rarer class, (Q, 1), at least 1.

    These are the `counts` of the data set, or those of each list if they are None.
    """
    positive = lists.labels == 1
    if counts is None:
        positives, items = (positive & lists.mask).sum(1, keepdim=True), lists.mask.sum(1, keepdim=True)
        negatives = items - positives
    else:
        negatives, positives = (torch.full_like(lists.positions[:, None], n) for n in counts)
    dtype = lists.scores.dtype
    negatives, positives = negatives.clamp_min(1).to(dtype), positives.clamp_min(1).to(dtype)
    return torch.where(positive, positives, negatives), torch.minimum(positives, negatives)


RECORDS = (
    LossRecord(
        name="cross-entropy",
        aliases=("ce",),
        summary="binary cross entropy of logits",
        build=BinaryCrossEntropyLoss,
        role="baseline",
        shift_invariant=False,
        advice="the first thing to try; gives probabilities",
    ),
    LossRecord(
        name="balanced-cross-entropy",
        aliases=("balanced-ce",),
        summary="binary cross entropy with positives and negatives weighing the same",
        build=BalancedCrossEntropyLoss,
        role="baseline",
        shift_invariant=False,
        advice="few positives, batches drawn like the data",
    ),
    LossRecord(
        name="class-balanced-cross-entropy",
        aliases=("class-balanced-ce",),
        summary="binary cross entropy weighed by the effective number of each kind",
        build=partial(BalancedCrossEntropyLoss, 0.999),
        role="baseline",
        shift_invariant=False,
        paper="Cui et al., CVPR 2019",
        advice="between plain and balanced; pass the `counts` of the data",
    ),
    LossRecord(
        name="focal",
        summary="cross entropy that cares less for items already right",
        build=FocalLoss,
        role="baseline",
        shift_invariant=False,
        paper="Lin et al., ICCV 2017",
        advice="very many easy negatives (detection)",
    ),
    LossRecord(
        name="ldam",
        summary="cross entropy with a wider margin for the rarer kind",
        build=LDAMLoss,
        role="baseline",
        shift_invariant=False,
        paper="Cao et al., NeurIPS 2019",
        advice="long-tailed classes; pass the `counts` of the data",
    ),
    LossRecord(
        name="squared-error",
        aliases=("mse",),
        summary="squared distance of scores from grades or gains, item by item",
        build=SquaredErrorLoss,
        role="baseline",
        labels="grades",
        shift_invariant=False,
        paper="Cossock and Zhang, COLT 2006",
    ),
)
