"""Pairwise AUROC: the share of pairs of a positive and a negative in the wrong order."""

from __future__ import annotations

from torch import Tensor

from rankwise.checks import check_choice, check_positive
from rankwise.lists import Lists, PackedLists
from rankwise.losses.base import ListLoss
from rankwise.losses.links import Link
from rankwise.losses.sides import split_sides
from rankwise.registry import LossRecord
from rankwise.surrogates import OneSidedHuber, Sigmoid, Surrogate

__all__ = ["PairwiseAUROCLoss"]

SURROGATES = ("sigmoid", "huber")


class PairwiseAUROCLoss(ListLoss):
    """1 - AUROC, made smooth: the mean of a surrogate of s_i - s_j over all positives i and negatives j of a list.

    Args:
        surrogate: "sigmoid", 1 / (1 + exp(x / tau)), or "huber", the one-sided Huber of width tau. Long lists take
            O(n) or O(n log n), see `rankwise.pairs`.
        tau: width of the surrogate.
        link: how scores come to about [-1, 1], see `AUPRCLoss`.
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> import torch
        >>> PairwiseAUROCLoss()(torch.tensor([0.9, -0.4, 0.6, -0.9]), torch.tensor([1, 1, 0, 0]))
        tensor(0.2635)

    Paper: Yan et al., Optimizing Classifier Performance via an Approximation to the Wilcoxon-Mann-Whitney Statistic,
    ICML 2003.
    """

    remembers = ()

    def __init__(
        self,
        surrogate: str = "sigmoid",
        tau: float = 0.1,
        *,
        link: str = "scale",
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        check_choice("surrogate", surrogate, SURROGATES)
        check_positive("tau", tau)
        self.surrogate: Surrogate = Sigmoid(tau) if surrogate == "sigmoid" else OneSidedHuber(tau)
        self.link = Link(link)

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = self.link(packed, group_ids).map(self._block_values)
        return values, valid

    def _block_values(self, lists: Lists) -> tuple[Tensor, Tensor]:
        sides = split_sides(lists)
        wrong = sides.mean_over_negatives(lists, self.surrogate)
        return (wrong * sides.share).sum(1), sides.valid


RECORDS = (
    LossRecord(
        name="pairwise-auroc",
        aliases=("auroc",),
        summary="area under the ROC curve, over all pairs",
        build=PairwiseAUROCLoss,
        role="baseline",
        paper="Yan et al., ICML 2003",
        advice="all thresholds matter alike, not the top of the ranking",
    ),
)
