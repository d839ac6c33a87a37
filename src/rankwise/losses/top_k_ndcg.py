"""K-SONG: NDCG of the first k items, from a few items of each list."""

from __future__ import annotations

import torch
from torch import Tensor

from rankwise.checks import check_choice, check_positive
from rankwise.estimators.thresholds import ThresholdTracker
from rankwise.gains import Gain
from rankwise.lists import Lists, every
from rankwise.losses.compositional import CompositionalLoss
from rankwise.losses.gradients import first_order_only
from rankwise.losses.ndcg import discounted, surrogate_ranks
from rankwise.losses.samples import Sample
from rankwise.losses.statistics import ListStatistics
from rankwise.registry import LossRecord
from rankwise.surrogates import SquaredHinge

__all__ = ["TopKNDCGLoss"]


class TopKNDCGLoss(CompositionalLoss):
    """1 - NDCG@k: as `NDCGLoss`, with each relevant item weighted by how surely it stands among the first k.

        1 - 1/Z_k * sum over relevant i of psi(s_i - lambda) gain_i / log2(1 + r_i + shift)

    with psi(x) = 1 / (1 + exp(-x / temperature)) and lambda the score that separates the first k items from the rest.
    Lists of at most k items need no such selection: psi is 1 there. About in [0, 1].

    Args:
        k: the cutoff of the metric, 1 or more.
        statistics: of the lists of the training data. None: every batch holds whole lists, and lambda is exact.
        selector_gradient: "stopped" treats psi as a fixed weight (the paper's practical estimator); "full" also follows
            how scores move psi and lambda (the theoretical one).
        temperature: width of psi.
        threshold_tau, threshold_norm: smoothness of lambda, see `ThresholdTracker`.
        threshold_step: step size of the remembered lambda, relative to the spread of the scores; threshold_rate: update
            rate of its curvature. Only with `statistics`.
        margin, gain, discount_shift, update_rate, self_weight: see `NDCGLoss`.
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> loss = TopKNDCGLoss(k=2)
        >>> scores = torch.tensor([0.2, 0.9, 0.1, 0.3], requires_grad=True)
        >>> loss(scores, torch.tensor([2, 0, 1, 0])).backward()
        >>> bool(scores.grad[0] < 0 < scores.grad[1])
        True

    Paper: Qiu et al., ICML 2022 (K-SONG), with its misprints corrected.
    """

    remembers = ("k", "surrogate.margin", "gain", "self_weight")

    def __init__(
        self,
        k: int = 10,
        statistics: ListStatistics | None = None,
        *,
        selector_gradient: str = "stopped",
        temperature: float = 0.5,
        threshold_tau: float = 0.01,
        threshold_norm: float = 1e-6,
        threshold_step: float = 0.25,
        threshold_rate: float = 0.1,
        margin: float = 1.0,
        gain: Gain = "exp2",
        discount_shift: float = 0.0,
        update_rate: float = 0.1,
        self_weight: str = "sample",
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(
            statistics,
            gain=gain,
            update_rate=update_rate,
            self_weight=self_weight,
            lists=lists,
            empty=empty,
            reduction=reduction,
            k=k,
        )
        self.surrogate = SquaredHinge(check_positive("margin", margin))
        self.discount_shift = check_positive("discount_shift", discount_shift, zero=True)
        self.selector_gradient = check_choice("selector_gradient", selector_gradient, ("stopped", "full"))
        self.temperature = check_positive("temperature", temperature)
        self.thresholds = ThresholdTracker(
            k, tau=threshold_tau, tau_norm=threshold_norm, step_size=threshold_step, update_rate=threshold_rate
        )

    def inner(self, lists: Lists, sample: Sample) -> Tensor:
        return surrogate_ranks(lists, sample, self.surrogate)

    def outer(self, lists: Lists, sample: Sample, inner: Tensor, group_ids: Tensor | None) -> Tensor:
        gained = sample.gains * self._selected(lists, sample, group_ids)
        value = 1 - discounted(gained, inner + self.discount_shift).sum(1) / sample.ideal
        return first_order_only(value, type(self).__name__, "its gradient holds the threshold of the top k fixed")

    def _selected(self, lists: Lists, sample: Sample, group_ids: Tensor | None) -> Tensor:
        """psi of each relevant item, (Q, A)."""
        long = sample.valid & (sample.size > self.thresholds.k)
        scores = lists.scores.gather(1, sample.places)
        share = lists.mask.to(scores.dtype) if sample.stands_for is None else sample.stands_for
        share = share / share.sum(1, keepdim=True).clamp_min(torch.finfo(share.dtype).tiny)
        if every(long):
            return self._above(scores, lists.scores, share, sample.size, group_ids)
        selected = torch.ones_like(scores)
        if not bool(long.any()):
            return selected
        groups = None if group_ids is None else group_ids[long]
        some = self._above(scores[long], lists.scores[long], share[long], sample.size[long], groups)
        return selected.index_put((long,), some)

    def _above(self, relevant: Tensor, scores: Tensor, share: Tensor, size: Tensor, group_ids: Tensor | None) -> Tensor:
        """psi of the relevant items (Q, A) of lists of more than k items, from the scores (Q, L) of all."""
        threshold = self.thresholds(scores, share, size, None if self.totals is None else group_ids)
        if self.selector_gradient == "stopped":
            above = relevant.detach() - threshold.value[:, None]
        else:
            moves = (self.thresholds.pull(scores, share, threshold) * (scores - scores.detach())).sum(1)
            above = relevant - (threshold.value + moves)[:, None]
        return torch.sigmoid(above / self.temperature)


RECORDS = (
    LossRecord(
        name="top-k-ndcg",
        aliases=("k-song",),
        summary="NDCG@k of graded lists, whole or sampled",
        build=TopKNDCGLoss,
        role="paper",
        labels="grades",
        paper="Qiu et al., ICML 2022 (K-SONG)",
    ),
)
