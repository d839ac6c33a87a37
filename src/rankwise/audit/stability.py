"""How far replacing one example moves the value of a loss, against the number of examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rankwise.audit.pools import Steps, make_pools
from rankwise.checks import check_count, check_positive
from rankwise.losses import AUPRCLoss, ListLoss, StableAPLoss

__all__ = ["Change", "Stability", "slope", "stability"]

SIZES = (64, 256, 1024, 4096)
PLAIN, SOPRC, STABLE = "plain AP loss", "SOPRC", "stable AP"

_RANDOM = 6  # examples to replace, and examples to put there, besides the lowest and the highest


@dataclass(frozen=True)
class Change:
    """The largest change of a loss found by replacing one positive, and one negative, for each of `sizes`.

    `value` is the mean value of the loss before that, at the largest size: a loss near its upper end has no room left
    to move, and little gradient.
    """

    name: str
    sizes: tuple[int, ...]
    positives: tuple[float, ...]
    negatives: tuple[float, ...]
    value: float

    @property
    def worst(self) -> tuple[float, ...]:
        return tuple(map(max, self.positives, self.negatives))

    @property
    def slope(self) -> float:
        """Of log change against log n: -1 is a change of 1 / n, 0 one that does not fall at all."""
        return slope(self.sizes, self.worst)


@dataclass(frozen=True)
class Stability:
    """What `stability` found: a `Change` per loss, in lists with a `share` of positives."""

    changes: tuple[Change, ...]
    share: float
    tau: float
    repeats: int

    @property
    def sentence(self) -> str:
        """What it means for a user."""
        plain, stable = (next(each for each in self.changes if each.name == name) for name in (PLAIN, STABLE))
        return (
            f"Among {plain.sizes[-1]} examples one bad one can move the plain AP loss by {plain.worst[-1]:.3f} and the "
            f"stable AP loss by {stable.worst[-1]:.3f}; twice as many examples divide that by {2**-plain.slope:.1f} "
            f"and {2**-stable.slope:.1f}."
        )


def stability(
    scores: object,
    labels: object,
    *,
    positives: int = 8,
    negatives: int = 56,
    sizes: Sequence[int] = SIZES,
    tau: float = 0.1,
    repeats: int = 20,
    seed: int = 0,
    on_progress: Callable[[float], None] | None = None,
) -> Stability:
    """Look for the bounded-difference constants of AP losses: replace one example in the worst way.

    From lists drawn from the data the lowest, the highest and some random examples are replaced, each by one with the
    lowest or highest score of all the data (as a broken or mislabelled example may have) and by random ones of its
    kind. The largest change over all of that and all repeats counts; it is a lower estimate of the true constant.

    Args:
        scores, labels: (N,) a pool to draw lists from; labels 0 or 1.
        positives, negatives: their proportion in the lists.
        sizes: lengths of the lists.
        tau: margin of the Huber surrogate, for all losses.
        repeats: lists of each size.
        seed: of everything random.
        on_progress: called now and then with the share of the work that is done.

    Example:
        >>> labels = (torch.arange(600) < 100).long()
        >>> found = stability(torch.randn(600) + labels, labels, sizes=[32, 128], repeats=3)
        >>> [change.name for change in found.changes]
        ['plain AP loss', 'SOPRC', 'stable AP']

    Paper: Wen et al., Chinese Journal of Computers 2025, definition 1 and lemma 1.
    """
    check_count("positives", positives)
    check_count("negatives", negatives)
    check_count("repeats", repeats)
    check_positive("tau", tau)
    if len(sizes) < 2:
        raise ValueError(f"sizes: expected at least two, got {tuple(sizes)}")
    share = positives / (positives + negatives)
    for size in sizes:
        check_count("sizes", size)
        if not 1 <= round(size * share) < size:
            raise ValueError(f"sizes: expected lists long enough for both kinds at a share of {share:.3g}, got {size}")
    pools = make_pools(scores, labels)
    everything = pools.scores / pools.scores.std(correction=0).clamp_min(1)
    kinds = everything[pools.labels == 1], everything[pools.labels == 0]
    losses = _losses(everything, pools.labels, share, tau)
    generator = torch.Generator().manual_seed(seed)
    steps = Steps(len(sizes) * repeats, on_progress)
    worst = np.zeros((len(losses), 2, len(sizes)))
    level = np.zeros(len(losses))
    for column, size in enumerate(sizes):
        counts = round(size * share), size - round(size * share)
        list_labels = torch.tensor([1, 0]).repeat_interleave(torch.tensor(counts))
        for _ in range(repeats):
            drawn = torch.cat([_draw(kind, count, generator) for kind, count in zip(kinds, counts, strict=True)])
            for kind in range(2):
                lists = _replacements(drawn, list_labels == 1 - kind, kinds[kind], everything, generator)
                for row, measure in enumerate(losses.values()):
                    values = measure(torch.cat([drawn[None], lists]), list_labels)
                    change = float((values[1:] - values[0]).abs().max())
                    worst[row, kind, column] = max(worst[row, kind, column], change)
                    level[row] += float(values[0]) / (2 * repeats) * (size == sizes[-1])
            steps.done()
    changes = (
        Change(name, tuple(sizes), tuple(of_positives.tolist()), tuple(of_negatives.tolist()), float(value))
        for name, (of_positives, of_negatives), value in zip(losses, worst, level, strict=True)
    )
    return Stability(tuple(changes), share, tau, repeats)


def slope(sizes: Sequence[int], values: Sequence[float]) -> float:
    """Of the straight line through log values against log sizes.

    Example:
        >>> round(slope([10, 100], [1.0, 0.1]), 6)
        -1.0
    """
    return float(np.polyfit(np.log(sizes), np.log(np.maximum(values, 1e-12)), 1)[0])


Measure = Callable[[Tensor, Tensor], Tensor]


def _losses(everything: Tensor, labels: Tensor, share: float, tau: float) -> dict[str, Measure]:
    """Values (K,) of lists (K, n). SOPRC remembers the positives of all the data; the others know the list alone."""
    plain = AUPRCLoss("batch", recall="batch", tau=tau, link="none", reduction="none").double()
    soprc = AUPRCLoss(share, tau=tau, link="none", reduction="none").double()
    soprc(everything, labels)
    soprc.eval()
    score_range = float(everything.min()), max(float(everything.max()), float(everything.min()) + 1e-6)
    stable = StableAPLoss(tau=tau, link="none", score_range=score_range, reduction="none").double()

    def alone(loss: ListLoss) -> Measure:
        return lambda lists, of: loss(lists, of.expand(lists.shape)).detach()

    def remembering(loss: ListLoss) -> Measure:
        return lambda lists, of: loss(
            lists, of.expand(lists.shape), group_ids=torch.zeros(len(lists), dtype=torch.int64)
        ).detach()

    return {PLAIN: alone(plain), SOPRC: remembering(soprc), STABLE: alone(stable)}


def _draw(pool: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Without repeating an item as long as there are enough."""
    if count <= len(pool):
        return pool[torch.randperm(len(pool), generator=generator)[:count]]
    return pool[torch.randint(len(pool), (count,), generator=generator)]


def _replacements(
    drawn: Tensor, of_kind: Tensor, pool: Tensor, everything: Tensor, generator: torch.Generator
) -> Tensor:
    """The list again and again, (K, n), each time with one example of a kind replaced."""
    places = of_kind.nonzero().squeeze(1)
    own = drawn[places]
    some = places[torch.randint(len(places), (_RANDOM,), generator=generator)]
    victims = torch.cat([places[own.argmin()][None], places[own.argmax()][None], some])
    newcomers = torch.cat([torch.stack(torch.aminmax(everything)), _draw(pool, _RANDOM, generator)])
    pairs = torch.cartesian_prod(torch.arange(len(victims)), torch.arange(len(newcomers)))
    lists = drawn.repeat(len(pairs), 1)
    lists[torch.arange(len(pairs)), victims[pairs[:, 0]]] = newcomers[pairs[:, 1]]
    return lists
