"""Bias of mini-batch losses: their distance from the value on all the data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from rankwise.audit.pools import BatchAP, ExactAUPRC, Pools, Steps, make_pools, tell_left_out
from rankwise.checks import check_count
from rankwise.data.expectations import training_prior
from rankwise.losses import AUPRCLoss, GroupPrior, ListLoss, StableAPLoss

__all__ = ["Bias", "Composition", "Estimate", "bias"]

_SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2)
_GROWTH = (4, 16)


@dataclass(frozen=True)
class Estimate:
    """A loss on batches: `full` its value on all the data, `mean` and `std` of its values on the batches."""

    name: str
    full: float
    mean: float
    std: float

    @property
    def bias(self) -> float:
        return self.mean - self.full


@dataclass(frozen=True)
class Composition:
    """Bias and root mean square error of 1 - AP in batches of `positives` and `negatives`.

    `plain` is one minus the AP of the batch, `corrected` the estimate of SOPRC with the true prior.
    """

    positives: int
    negatives: int
    plain_bias: float
    corrected_bias: float
    plain_error: float
    corrected_error: float


@dataclass(frozen=True)
class Bias:
    """Results of `bias`.

    Attributes:
        truth: 1 - AP of all the data (mean over lists); prior: the share of positives (mean over lists).
        positives, negatives: of the batches that `estimates` are about.
        estimates: one per loss.
        compositions: batches of the same size with other shares of positives; best: that of the smallest error.
        larger: the best composition again in batches four and sixteen times as large, as far as the data go.
        lists, left_out: lists used, and lists without a positive or a negative.
    """

    truth: float
    prior: float
    positives: int
    negatives: int
    estimates: tuple[Estimate, ...]
    compositions: tuple[Composition, ...]
    larger: tuple[Composition, ...]
    lists: int
    left_out: int
    repeats: int

    @property
    def best(self) -> Composition:
        return _best(self.compositions)

    @property
    def sentence(self) -> str:
        """Return the result as one sentence for users."""
        best = self.best
        positives, negatives = _number(best.positives, "positive"), _number(best.negatives, "negative")
        text = (
            f"Use batches of {positives} and {negatives}{' of each list' if self.lists > 1 else ''} with "
            f"AUPRCLoss({training_prior(self.prior)}): with the true share, {self.prior:.2g}, as prior the estimate of "
            f"1 - AP is off by {best.corrected_bias:+.3f} on average, the AP of the batch by {best.plain_bias:+.3f}"
        )
        if self.larger:
            last = self.larger[-1]
            text += f"; batches of {last.positives + last.negatives} bring it to {last.corrected_bias:+.3f}"
        return f"{text}{tell_left_out(self.left_out)}."


def bias(
    scores: object,
    labels: object,
    *,
    query_ids: object = None,
    positives: int = 8,
    negatives: int = 56,
    repeats: int = 200,
    seed: int = 0,
    on_progress: Callable[[float], None] | None = None,
) -> Bias:
    """Compare the values of AP losses on batches with their values on all the data.

    Batches are drawn from each list without repeating an item; a list with fewer items than asked for gives all of
    them. Losses that remember see the batches one after the other.

    Args:
        scores: (N,) of one list, or of many with `query_ids`. labels: (N,) 0 or 1.
        query_ids: (N,) which list each item belongs to.
        positives, negatives: of a batch.
        repeats: how many batches.
        seed: which batches.
        on_progress: called now and then with the share of the work that is done.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> labels = (torch.arange(2000) < 100).long()
        >>> result = bias(torch.randn(2000, generator=generator) + labels, labels, repeats=20)
        >>> round(result.prior, 3), [round(each.bias, 1) for each in result.estimates[:2]]
        (0.05, [-0.3, -0.1])

    Paper: Wen et al., NeurIPS 2022, proposition 2 (with its sign corrected).
    """
    check_count("positives", positives)
    check_count("negatives", negatives)
    check_count("repeats", repeats, least=2)
    pools = make_pools(scores, labels, query_ids)
    choices = _choices(pools, positives, positives + negatives)
    steps = Steps((1 + len(choices) + len(_GROWTH)) * repeats, on_progress)

    def measure(losses: dict[str, ListLoss], composition: tuple[int, int]) -> list[Tensor]:
        """Return the values of each loss on all batches, (R,) each."""
        generator = torch.Generator().manual_seed(seed)
        values: list[list[Tensor]] = [[] for _ in losses]
        for _ in range(repeats):
            batches = pools.draw(*composition, generator)
            for loss, collected in zip(losses.values(), values, strict=True):
                collected.append(loss(batches.scores, batches.labels, mask=batches.mask, query_ids=pools.ids).detach())
            steps.done()
        return [torch.stack(collected).double() for collected in values]

    estimates = [
        Estimate(name, _on_everything(pools, loss), float(values.mean()), float(values.std()))
        for (name, loss), values in zip(
            _losses(pools).items(), measure(_losses(pools), (positives, negatives)), strict=True
        )
    ]
    truth = pools.error()

    def try_out(composition: tuple[int, int]) -> Composition:
        plain, corrected = (values - truth for values in measure(_exact(pools), composition))
        typical = (float(errors.square().mean().sqrt()) for errors in (plain, corrected))
        return Composition(*composition, float(plain.mean()), float(corrected.mean()), *typical)

    compositions = tuple(map(try_out, choices))
    best = _best(compositions)
    most = pools.counts.max(0).values.tolist()
    grown = ((times * best.positives, times * best.negatives) for times in _GROWTH)
    larger = tuple(try_out(each) for each in grown if each[0] <= most[0] and each[1] <= most[1])
    return Bias(
        truth=truth,
        prior=float(pools.priors.double().mean()),
        positives=positives,
        negatives=negatives,
        estimates=tuple(estimates),
        compositions=compositions,
        larger=larger,
        lists=pools.size,
        left_out=pools.left_out,
        repeats=repeats,
    )


def _number(count: int, name: str) -> str:
    return f"{count} {name}{'' if count == 1 else 's'}"


def _best(compositions: tuple[Composition, ...]) -> Composition:
    return min(compositions, key=lambda each: each.corrected_error)


def _exact(pools: Pools) -> dict[str, ListLoss]:
    return {
        "AP of the batch": BatchAP(),
        "SOPRC estimate, true prior": ExactAUPRC(GroupPrior(pools.priors)).double(),
    }


def _losses(pools: Pools) -> dict[str, ListLoss]:
    """Return new losses without state."""
    return {
        **_exact(pools),
        "AUPRCLoss, true prior": AUPRCLoss(GroupPrior(pools.priors)).double(),
        "AUPRCLoss, defaults": AUPRCLoss().double(),
        "StableAPLoss, defaults": StableAPLoss().double(),
    }


def _on_everything(pools: Pools, loss: ListLoss) -> float:
    return float(loss(pools.scores, pools.labels, query_ids=pools.list_of_item).detach())


def _choices(pools: Pools, positives: int, size: int) -> list[tuple[int, int]]:
    """Return the numbers of positives and negatives to try: those given, the natural ones, and a few shares, as far
    as they go.
    """
    natural = round(size * float(pools.priors.mean()))
    wanted = {positives, max(1, natural), *(round(size * share) for share in _SHARES)}
    most = int(pools.counts[:, 0].max())
    return [(count, size - count) for count in sorted(wanted) if 1 <= count < size and count <= max(most, positives)]
