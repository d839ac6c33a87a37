"""Stability: the change of a loss, and of a trained model, when one example is replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rankwise.audit.pools import Steps, make_pools
from rankwise.checks import check_count, check_finite, check_labels, check_positive, check_same_shape, check_tensor
from rankwise.losses import AUPRCLoss, ListLoss, StableAPLoss
from rankwise.metrics import average_precision

__all__ = ["Change", "Distance", "ListStability", "Stability", "list_stability", "slope", "stability"]

SIZES = (64, 256, 1024, 4096)
PLAIN, SOPRC, STABLE = "plain AP loss", "SOPRC", "stable AP"
_RANDOM = 6  # examples to replace, and examples to put there, besides the lowest and the highest
TRAINING_SIZES = (40, 160, 640)
HALF_PLAIN = "plain AP loss, recall fixed"
FLOORED = "SOPRC, recall floor 1/3"


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
        """Return the slope of log change against log n: -1 is a change of 1 / n, 0 one that does not fall at all."""
        return slope(self.sizes, self.worst)


@dataclass(frozen=True)
class Stability:
    """The result of `stability`: a `Change` per loss, in lists with a `share` of positives."""

    changes: tuple[Change, ...]
    share: float
    tau: float
    repeats: int

    @property
    def sentence(self) -> str:
        """Return the meaning of the result for a user."""
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
        >>> result = stability(torch.randn(600) + labels, labels, sizes=[32, 128], repeats=3)
        >>> [change.name for change in result.changes]
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
    """Return the slope of the straight line through log values against log sizes.

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
    indices = of_kind.nonzero().squeeze(1)
    own = drawn[indices]
    some = indices[torch.randint(len(indices), (_RANDOM,), generator=generator)]
    victims = torch.cat([indices[own.argmin()][None], indices[own.argmax()][None], some])
    newcomers = torch.cat([torch.stack(torch.aminmax(everything)), _draw(pool, _RANDOM, generator)])
    pairs = torch.cartesian_prod(torch.arange(len(victims)), torch.arange(len(newcomers)))
    lists = drawn.repeat(len(pairs), 1)
    lists[torch.arange(len(pairs)), victims[pairs[:, 0]]] = newcomers[pairs[:, 1]]
    return lists


@dataclass(frozen=True)
class Distance:
    """Mean distances between models trained with one loss on data sets that differ in one example.

    Attributes:
        sizes: N, examples in a data set.
        positives, negatives: (per size) the mean distance when a positive (epsilon+) or a negative (epsilon-) was
            replaced, as a share of the mean length of the weights.
        positive_error, negative_error: standard errors of these.
        length: (per size) the mean length of the weights.
        ap: (per size) mean average precision of the models on all the data.
        steepest: (per size) the longest gradient of a batch in the training of all models.
    """

    name: str
    sizes: tuple[int, ...]
    positives: tuple[float, ...]
    negatives: tuple[float, ...]
    positive_error: tuple[float, ...]
    negative_error: tuple[float, ...]
    length: tuple[float, ...]
    ap: tuple[float, ...]
    steepest: tuple[float, ...]

    @property
    def slopes(self) -> tuple[float, float]:
        """Of log distance against log N, for positives and negatives: -1 is a distance of 1 / N."""
        return slope(self.sizes, self.positives), slope(self.sizes, self.negatives)


@dataclass(frozen=True)
class ListStability:
    """Results of `list_stability`: a `Distance` per loss."""

    distances: tuple[Distance, ...]
    positives: int
    negatives: int
    models: int
    steps: int
    synthetic: bool

    def of(self, name: str) -> Distance:
        return next(distance for distance in self.distances if distance.name == name)

    @property
    def sentence(self) -> str:
        """Return the result as one sentence for users."""
        ours, plain, half = (self.of(name) for name in (SOPRC, PLAIN, HALF_PLAIN))
        return (
            f"Replacing one of {round(ours.sizes[-1] * self.share)} positives moves a model trained with SOPRC by "
            f"{ours.positives[-1]:.1%} of its weights, one trained with the plain AP loss by "
            f"{plain.positives[-1]:.1%}, or {half.positives[-1]:.1%} when no gradient flows through the recall; ten "
            f"times the data divide that of SOPRC by {10 ** -ours.slopes[0]:.0f}."
        )

    def estimation_errors(self, name: str) -> tuple[float, ...]:
        """Return the bound of theorem 1 for each size: the loss of new data exceeds that of training data by at most

            G (n+ epsilon+ + n- epsilon-)

        on average, with the numbers n+ and n- of a batch. G, the longest gradient that is possible, is taken from the
        trainings, and is thus rather too small. AP losses are at most 1, so a bound of 1 or more says nothing.
        """
        distance = self.of(name)
        moved = zip(distance.positives, distance.negatives, distance.length, distance.steepest, strict=True)
        return tuple(
            steepest * length * (self.positives * positive + self.negatives * negative)
            for positive, negative, length, steepest in moved
        )

    @property
    def share(self) -> float:
        """Of positives in the data sets."""
        return self.positives / (self.positives + self.negatives)


def list_stability(
    features: object = None,
    labels: object = None,
    *,
    positives: int = 4,
    negatives: int = 12,
    sizes: Sequence[int] = TRAINING_SIZES,
    models: int = 200,
    steps: int = 100,
    learning_rate: float = 0.5,
    tau: float = 1.0,
    seed: int = 0,
    on_progress: Callable[[float], None] | None = None,
) -> ListStability:
    """Train linear models on pairs of data sets that differ in one example and measure how far apart they end.

    All start from the same rough model (weights of length 1/2 along the difference of the class means), and both of a
    pair see the same batches in the same order. SGD with the step sizes of the theory, `learning_rate * (2 t + 1) /
    (t + 1)^2`.

    The plain AP loss is the AP of the batch with the surrogates of SOPRC, trained as a whole; with "recall fixed" no
    gradient flows through the recall. What SOPRC adds to the latter is the memory of the positives, which lets the
    recall become smaller than a batch can show; a recall floor limits that.

    Args:
        features: (N, D) rows to draw data sets from (their columns are standardised), with labels: (N,) 0 or 1. Without
            them, rows of 4 normal numbers, of mean 0 for negatives and 1 for positives.
        positives, negatives: of a batch; the data sets have the same proportion.
        sizes: examples in a data set.
        models: pairs of data sets for each size, loss and kind of example.
        steps: of training.
        learning_rate: of the first step.
        tau: margin of the Huber surrogate, for all losses.
        seed: of everything random.
        on_progress: called now and then with the share of the work that is done.

    Example:
        >>> result = list_stability(sizes=[40, 320], models=20, steps=20)
        >>> result.of("SOPRC").positives[1] < result.of("SOPRC").positives[0]
        True

    Paper: Wen et al., NeurIPS 2022, definition 1 and theorems 2 and 3.
    """
    for name, value in (("positives", positives), ("negatives", negatives), ("steps", steps)):
        check_count(name, value)
    check_count("models", models, least=2)
    check_positive("learning_rate", learning_rate)
    share = positives / (positives + negatives)
    if len(sizes) < 2:
        raise ValueError(f"sizes: expected at least two, got {tuple(sizes)}")
    for size in sizes:
        check_count("sizes", size)
        if not 1 <= round(size * share) < size:
            raise ValueError(f"sizes: expected room for both kinds at a share of {share:.3g}, got {size}")
    generator = torch.Generator().manual_seed(seed)
    rows, kinds = _synthetic(generator) if features is None else _checked(features, labels)
    builders: dict[str, Callable[[], ListLoss]] = {
        PLAIN: lambda: _batch_loss(tau, recall_gradient="full"),
        HALF_PLAIN: lambda: _batch_loss(tau, recall_gradient="stopped"),
        SOPRC: lambda: AUPRCLoss(share, tau=tau, link="none", reduction="sum"),
        FLOORED: lambda: AUPRCLoss(share, recall_floor=1 / 3, tau=tau, link="none", reduction="sum"),
        STABLE: lambda: StableAPLoss(tau=tau, link="none", reduction="sum"),
    }
    start = _rough_model(rows, kinds).expand(models, -1)
    work = Steps(len(sizes) * len(builders) * 3 * steps, on_progress)
    results: dict[str, list[list[float]]] = {name: [] for name in builders}
    for size in sizes:
        counts = round(size * share), size - round(size * share)
        samples = _with_one_replaced(rows, kinds, counts, models, generator)
        order = int(torch.randint(2**31, (1,), generator=generator))
        for name, build in builders.items():
            trained = [
                _train(start, rows[sample], counts, (positives, negatives), build(), steps, learning_rate, order, work)
                for sample in samples
            ]
            models_of, steepest = zip(*trained, strict=True)
            results[name].append([*_summary(list(models_of), rows, kinds), max(steepest)])
    return ListStability(
        tuple(
            Distance(name, tuple(sizes), *(tuple(column) for column in zip(*per_size, strict=True)))
            for name, per_size in results.items()
        ),
        positives,
        negatives,
        models,
        steps,
        features is None,
    )


def _with_one_replaced(
    rows: Tensor, kinds: Tensor, counts: tuple[int, int], models: int, generator: torch.Generator
) -> list[Tensor]:
    """Return data sets as rows of example indices, (models, N), positives first; copies with one positive replaced; and
    with a negative replaced."""
    pools = [(kinds == kind).nonzero().squeeze(1) for kind in (1, 0)]
    drawn = [
        pool[torch.randint(len(pool), (models, count + 1), generator=generator)]
        for pool, count in zip(pools, counts, strict=True)
    ]
    (positives, new_positive), (negatives, new_negative) = ((each[:, :-1], each[:, -1:]) for each in drawn)
    return [
        torch.cat([positives, negatives], 1),
        torch.cat([new_positive, positives[:, 1:], negatives], 1),
        torch.cat([positives, negatives[:, :-1], new_negative], 1),
    ]


def _train(
    start: Tensor,
    data: Tensor,
    counts: tuple[int, int],
    batch: tuple[int, int],
    loss: ListLoss,
    steps: int,
    learning_rate: float,
    order: int,
    work: Steps,
) -> tuple[Tensor, float]:
    """Train linear models, one per data set, (M, N, D) to (M, D); return the longest gradient of a batch, too."""
    models, _, width = data.shape
    weights = start.clone().requires_grad_()
    labels = torch.tensor([1, 0]).repeat_interleave(torch.tensor(batch)).expand(models, -1)
    ids = torch.arange(models)
    generator = torch.Generator().manual_seed(order)
    steepest = 0.0
    for step in range(steps):
        chosen = torch.cat(
            [
                torch.randint(low, high, (models, count), generator=generator)
                for low, high, count in ((0, counts[0], batch[0]), (counts[0], sum(counts), batch[1]))
            ],
            1,
        )
        inputs = data.gather(1, chosen[:, :, None].expand(-1, -1, width))
        scores = torch.einsum("mbd,md->mb", inputs, weights)
        (gradient,) = torch.autograd.grad(loss(scores, labels, query_ids=ids), weights)
        steepest = max(steepest, float(gradient.norm(dim=1).max()))
        with torch.no_grad():
            weights -= learning_rate * (2 * step + 1) / (step + 1) ** 2 * gradient
        work.done()
    return weights.detach(), steepest


def _rough_model(rows: Tensor, kinds: Tensor) -> Tensor:
    difference = rows[kinds == 1].mean(0) - rows[kinds == 0].mean(0)
    return 0.5 * torch.nn.functional.normalize(difference, dim=0)


def _batch_loss(tau: float, *, recall_gradient: str) -> ListLoss:
    return AUPRCLoss("batch", recall="batch", recall_gradient=recall_gradient, tau=tau, link="none", reduction="sum")


def _summary(trained: list[Tensor], rows: Tensor, kinds: Tensor) -> list[float]:
    base, *replaced = trained
    length = float(base.norm(dim=1).mean())
    distances = [(other - base).norm(dim=1) / max(length, 1e-12) for other in replaced]
    means = [float(distance.mean()) for distance in distances]
    errors = [float(distance.std()) / len(distance) ** 0.5 for distance in distances]
    scores = base @ rows.T
    return [*means, *errors, length, float(average_precision(scores, kinds.expand_as(scores)))]


def _synthetic(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    kinds = (torch.arange(4000) < 1000).long()
    return torch.randn(4000, 4, generator=generator) + kinds[:, None], kinds


def _checked(features: object, labels: object) -> tuple[Tensor, Tensor]:
    rows = check_tensor("features", features).detach().float()
    if rows.ndim != 2 or not len(rows):
        raise ValueError(f"features: expected shape (N, D) with at least one row, got {tuple(rows.shape)}")
    check_finite("features", rows)
    if labels is None:
        raise ValueError("labels: expected the labels of the features, got None")
    kinds = check_tensor("labels", labels)
    check_same_shape("labels", kinds, "one label per row of features", rows.shape[:1])
    check_labels(kinds, "binary")
    kinds = kinds.long()
    if kinds.min() == kinds.max():
        raise ValueError("labels: expected both a 1 and a 0, got one kind only")
    return (rows - rows.mean(0)) / rows.std(0, correction=0).clamp_min(1e-12), kinds
