"""Bounds: of 1 - AP on the same data by a loss, and on new data by theorem 2 of the paper of stable AP."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rankwise.audit.pools import Steps, make_pools, tell_left_out
from rankwise.checks import check_positive, check_share
from rankwise.losses import AUPRCLoss, ListLoss, StableAPLoss
from rankwise.metrics import average_precision

__all__ = ["Bound", "Bounds", "Generalisation", "GeneralisationBound", "bounds", "generalisation"]

TAUS = (0.01, 0.03, 0.1, 0.3, 1.0)


@dataclass(frozen=True)
class Bound:
    """An upper bound of 1 - AP at margin `tau`, the means over lists; `violations` counts lists where it fails.

    Attributes:
        soprc: the value of `AUPRCLoss` on the whole list, with its own prior and positives.
        stable: (q / 2) h(...) of Theorem 1, from `StableAPLoss` with weights by rank.
    """

    tau: float
    soprc: float
    stable: float
    soprc_violations: int
    stable_violations: int


@dataclass(frozen=True)
class Bounds:
    """Results of `bounds`: 1 - AP of the data (`truth`, the mean over `lists`), and a `Bound` per margin."""

    truth: float
    bounds: tuple[Bound, ...]
    lists: int
    left_out: int

    @property
    def violations(self) -> int:
        return sum(bound.soprc_violations + bound.stable_violations for bound in self.bounds)

    @property
    def sentence(self) -> str:
        """Return the result as one sentence for users."""
        if self.violations:
            return f"A bound fails in {self.violations} cases, which theory rules out: please report the data."
        usual = min(self.bounds, key=lambda bound: abs(math.log(bound.tau / 0.1)))
        tightest = min(self.bounds, key=lambda bound: bound.soprc)
        text = (
            f"On all of your lists both losses lie above 1 - AP, as proved; at tau = {usual.tau:g} AUPRCLoss by "
            f"{usual.soprc - self.truth:.3f}, so that bringing it down to x guarantees an AP of 1 - x on the data it "
            "is computed on"
        )
        if tightest.tau != usual.tau:
            text += f", and at tau = {tightest.tau:g} by only {tightest.soprc - self.truth:.3f}"
        if usual.stable >= 1:
            text += "; the bound of stable AP is above 1 and thus says nothing here"
        return f"{text}{tell_left_out(self.left_out)}."


def bounds(
    scores: object,
    labels: object,
    *,
    query_ids: object = None,
    taus: Sequence[float] = TAUS,
    eps: float = 0.1,
    on_progress: Callable[[float], None] | None = None,
) -> Bounds:
    """Compute the bounds of 1 - AP that the losses stand on, and check them.

    SOPRC: with the list's own prior and positives its value f is at least 1 - AP, because its surrogates lie above and
    below the indicator. Stable AP, Theorem 1:

        1 - AP <= (q / 2) h(rho / n+ * sum_i w(r_i) l_i),   q = pi / 2 + 2 (1 + rho B) / (1 + 2 rho B),

    rho = n- / n+, l_i the mean Huber loss of positive i, r_i its rank among the positives / n+, B the largest Huber
    loss within the range of the scores. Scores that spread wider than 1 are divided by their spread, as the losses do.

    Args:
        scores: (N,) of one list, or of many with `query_ids`. labels: (N,) 0 or 1.
        query_ids: (N,) which list each item belongs to.
        taus: margins of the Huber surrogate to look at.
        eps: of h, see `StableAPLoss`.
        on_progress: called now and then with the share of the work that is done.

    Example:
        >>> result = bounds([.9, .8, .7, .6], [1, 0, 1, 0], taus=[0.1])
        >>> round(result.truth, 3), round(result.bounds[0].soprc, 3), result.violations
        (0.167, 0.3, 0)

    Paper: Wen et al., NeurIPS 2022, equation (7); Wen et al., Chinese Journal of Computers 2025, theorem 1.
    """
    for tau in taus:
        check_positive("taus", tau)
    pools = make_pools(scores, labels, query_ids)
    scaled = pools.scores / pools.scores.std(correction=0).clamp_min(1)
    errors = 1 - average_precision(scaled, pools.labels, query_ids=pools.list_of_item, reduction="none")
    steps = Steps(2 * len(taus), on_progress)

    def measure(loss: ListLoss) -> Tensor:
        values: Tensor = loss.double()(scaled, pools.labels, query_ids=pools.list_of_item).detach()
        steps.done()
        return values

    results = []
    for tau in taus:
        soprc = measure(AUPRCLoss("batch", recall="batch", tau=tau, link="none", reduction="none"))
        stable_ap = StableAPLoss(
            "batch",
            tau=tau,
            eps=eps,
            weighting="rank",
            link="none",
            score_range=_range(scaled),
            reduction="none",
        )
        most = pools.counts[:, 1] / pools.counts[:, 0].double() * stable_ap.largest
        q = math.pi / 2 + 2 * (1 + most) / (1 + 2 * most)
        stable = q / 2 * measure(stable_ap)
        results.append(
            Bound(
                tau, float(soprc.mean()), float(stable.mean()), _violations(soprc, errors), _violations(stable, errors)
            )
        )
    return Bounds(float(errors.mean()), tuple(results), pools.size, pools.left_out)


def _violations(values: Tensor, errors: Tensor) -> int:
    return int((values < errors - 1e-9).sum())


def _range(scores: Tensor) -> tuple[float, float]:
    low, high = float(scores.min()), float(scores.max())
    return low, max(high, low + torch.finfo(torch.float32).eps)


@dataclass(frozen=True)
class GeneralisationBound:
    """The computable part of the bound of 1 - AP on new data at margin `tau`, for the list where it is smallest.

    Attributes:
        empirical: q^2 / 2 times the stable AP loss of the list.
        deviation: the term that falls with the number of examples.
        examples: how many examples of the same composition make `deviation` less than 1.
    """

    tau: float
    empirical: float
    deviation: float
    examples: float

    @property
    def total(self) -> float:
        return self.empirical + self.deviation


@dataclass(frozen=True)
class Generalisation:
    """Results of `generalisation`: 1 - AP of the data (`truth`, the mean over lists), and a bound per margin.

    `size` is the number of examples of the longest list.
    """

    truth: float
    bounds: tuple[GeneralisationBound, ...]
    confidence: float
    size: int
    lists: int
    left_out: int

    @property
    def sentence(self) -> str:
        """Return the result as one sentence for users."""
        best = min(self.bounds, key=lambda bound: bound.total)
        verdict = (
            "so it promises nothing, as 1 - AP never exceeds 1"
            if best.total >= 1
            else "if the complexity of your model added nothing"
        )
        return (
            f"The bound of stable AP for new data is at least {best.total:.3g} (tau = {best.tau:g}, confidence "
            f"{self.confidence:.0%}), {verdict}; 1 - AP here is {self.truth:.3f}. Its deviation term alone falls below "
            f"1 with {best.examples:.2g} examples, and you have {self.size:,}{tell_left_out(self.left_out)}."
        )


def generalisation(
    scores: object,
    labels: object,
    *,
    query_ids: object = None,
    taus: Sequence[float] = TAUS,
    eps: float = 0.1,
    a: float = 0.1,
    t: float = 2.0,
    confidence: float = 0.95,
    on_progress: Callable[[float], None] | None = None,
) -> Generalisation:
    """Compute what the generalisation bound of stable AP says of a model, from its scores on the training data.

    Theorem 2: with the given confidence 1 - delta, for one list of n independent examples,

        1 - AP on new data  <=  q^2 / 2 R  +  2 q^2 rho / eps * C  +  q^2 rho B_w B_l / (2 eps) sqrt(k log(1 / delta)),

    R the stable AP loss of the list, k = (2 + rho + 1 / rho) / (2 n), rho = n- / n+, B_l and B_w the largest values of
    the surrogate and of the weights. C, the Rademacher complexity of all models that could have been trained, cannot be
    had from one of them; it is left out here, and is at least 0. So the true bound is at least what is computed.

    The mean score of the positives is that of the list, not the unknown expectation. Scores that spread wider than 1
    are divided by their spread, as the losses do. Of several lists the one with the smallest bound counts.

    Args:
        scores: (N,) of one list, or of many with `query_ids`, on the data the model was trained with.
        labels: (N,) 0 or 1.
        query_ids: (N,) which list each item belongs to.
        taus: margins of the Huber surrogate to look at.
        eps, a, t: of the loss, see `StableAPLoss`.
        confidence: 1 - delta, in (0, 1).
        on_progress: called now and then with the share of the work that is done.

    Example:
        >>> labels = (torch.arange(1000) < 100).long()
        >>> result = generalisation(torch.randn(1000) + 5 * labels, labels, taus=[1.0])
        >>> result.bounds[0].total > 1000
        True

    Paper: Wen et al., Chinese Journal of Computers 2025, theorem 2.
    """
    for tau in taus:
        check_positive("taus", tau)
    for name, value in (("eps", eps), ("a", a)):
        check_positive(name, value)
    check_positive("t", t, zero=True)
    check_share("confidence", confidence)
    pools = make_pools(scores, labels, query_ids)
    scaled = pools.scores / pools.scores.std(correction=0).clamp_min(1)
    errors = 1 - average_precision(scaled, pools.labels, query_ids=pools.list_of_item, reduction="none")
    positives, negatives = pools.counts[:, 0].double(), pools.counts[:, 1].double()
    rho, size = negatives / positives, positives + negatives
    low, high = float(scaled.min()), float(scaled.max())
    steps = Steps(len(taus), on_progress)
    bounds = []
    for tau in taus:
        loss = StableAPLoss(
            "batch",
            tau=tau,
            eps=eps,
            a=a,
            t=t,
            link="none",
            update_rate=1.0,
            score_range=(low, max(high, low + torch.finfo(torch.float32).eps)),
            reduction="none",
        ).double()
        values = loss(scaled, pools.labels, query_ids=pools.list_of_item).detach()
        q = math.pi / 2 + 2 * (1 + rho * loss.largest) / (1 + 2 * rho * loss.largest)
        scale = q.square() * rho * ((1 + a) / a) ** t * loss.largest / (2 * eps)
        # The square of the deviation times n.
        numerator = scale.square() * (2 + rho + 1 / rho) / 2 * math.log(1 / (1 - confidence))
        empirical, deviation = q.square() / 2 * values, (numerator / size).sqrt()
        least = int((empirical + deviation).argmin())
        bounds.append(
            GeneralisationBound(tau, float(empirical[least]), float(deviation[least]), float(numerator[least]))
        )
        steps.done()
    return Generalisation(float(errors.mean()), tuple(bounds), confidence, int(size.max()), pools.size, pools.left_out)
