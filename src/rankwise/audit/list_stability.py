"""How far replacing one training example moves the trained model, against the number of examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rankwise.audit.pools import Steps
from rankwise.audit.stability import PLAIN, SOPRC, STABLE, slope
from rankwise.checks import check_count, check_finite, check_labels, check_positive, check_same_shape, check_tensor
from rankwise.losses import AUPRCLoss, ListLoss, StableAPLoss
from rankwise.metrics import average_precision

__all__ = ["Distance", "ListStability", "list_stability"]

SIZES = (40, 160, 640)
HALF_PLAIN = "plain AP loss, recall fixed"
FLOORED = "SOPRC, recall floor 1/3"


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
    """

    name: str
    sizes: tuple[int, ...]
    positives: tuple[float, ...]
    negatives: tuple[float, ...]
    positive_error: tuple[float, ...]
    negative_error: tuple[float, ...]
    length: tuple[float, ...]
    ap: tuple[float, ...]

    @property
    def slopes(self) -> tuple[float, float]:
        """Of log distance against log N, for positives and negatives: -1 is a distance of 1 / N."""
        return slope(self.sizes, self.positives), slope(self.sizes, self.negatives)


@dataclass(frozen=True)
class ListStability:
    """What `list_stability` found: a `Distance` per loss."""

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
        """What it means for a user."""
        ours, plain, half = (self.of(name) for name in (SOPRC, PLAIN, HALF_PLAIN))
        return (
            f"Replacing one of {round(ours.sizes[-1] * self.share)} positives moves a model trained with SOPRC by "
            f"{ours.positives[-1]:.1%} of its weights, one trained with the plain AP loss by "
            f"{plain.positives[-1]:.1%}, or {half.positives[-1]:.1%} when no gradient flows through the recall; ten "
            f"times the data divide that of SOPRC by {10 ** -ours.slopes[0]:.0f}."
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
    sizes: Sequence[int] = SIZES,
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
        >>> found = list_stability(sizes=[40, 320], models=20, steps=20)
        >>> found.of("SOPRC").positives[1] < found.of("SOPRC").positives[0]
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
    found: dict[str, list[list[float]]] = {name: [] for name in builders}
    for size in sizes:
        counts = round(size * share), size - round(size * share)
        samples = _with_one_replaced(rows, kinds, counts, models, generator)
        order = int(torch.randint(2**31, (1,), generator=generator))
        for name, build in builders.items():
            trained = [
                _train(start, rows[sample], counts, (positives, negatives), build(), steps, learning_rate, order, work)
                for sample in samples
            ]
            found[name].append(_summary(trained, rows, kinds))
    return ListStability(
        tuple(
            Distance(name, tuple(sizes), *(tuple(column) for column in zip(*per_size, strict=True)))
            for name, per_size in found.items()
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
    """Data sets as rows of numbers of examples, (models, N), positives first; the same with a positive replaced, and
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
) -> Tensor:
    """Linear models, one per data set: (M, N, D) to (M, D)."""
    models, _, width = data.shape
    weights = start.clone().requires_grad_()
    labels = torch.tensor([1, 0]).repeat_interleave(torch.tensor(batch)).expand(models, -1)
    ids = torch.arange(models)
    generator = torch.Generator().manual_seed(order)
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
        with torch.no_grad():
            weights -= learning_rate * (2 * step + 1) / (step + 1) ** 2 * gradient
        work.done()
    return weights.detach()


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
