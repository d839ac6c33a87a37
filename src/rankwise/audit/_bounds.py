"""Upper bounds of 1 - AP that the losses guarantee, and their slack."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rankwise.audit.pools import Steps, make_pools, tell_left_out
from rankwise.checks import check_positive
from rankwise.losses import AUPRCLoss, ListLoss, StableAPLoss
from rankwise.metrics import average_precision

__all__ = ["Bound", "Bounds", "bounds"]

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
