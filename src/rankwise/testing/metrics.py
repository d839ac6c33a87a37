"""Contract of every metric; `check_metric` runs it on yours."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rankwise.lists import pack
from rankwise.metrics.metric import Metric, measure_lists
from rankwise.metrics.names import create_metric

__all__ = ["check_metric"]

_TOLERANCE = 1e-12


def check_metric(metric: str | Metric, *, seed: int = 0) -> None:
    """Check a metric against the contract; raise AssertionError that names the property that does not hold.

    Values depend neither on the order of the items, nor on the width of the padding, nor on the other lists, nor on a
    strictly increasing transform of the scores; ties, lists of one class, huge and half-precision scores have values in
    [0, 1] or none; an item of weight 2 equals two items, and an item of weight 0 a masked one.

    Args:
        metric: a name of the registry, or a metric made by `create_metric` or by hand.
        seed: of the random lists.

    Example:
        >>> check_metric("ndcg@10")
    """
    made = create_metric(metric) if isinstance(metric, str) else metric
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, check in _PROPERTIES.items():
            subject = _Subject(made, name, torch.Generator().manual_seed(seed))
            check(subject)


@dataclass(frozen=True)
class _Subject:
    """The metric under test, the property in question, and lists to try it on."""

    metric: Metric
    property: str
    generator: torch.Generator

    def lists(self, size: int = 40, length: int = 12, *, tied: bool = True) -> tuple[Tensor, Tensor]:
        """(size, length) scores and labels, lists without a relevant and without an irrelevant item among them."""
        scores = torch.randn(size, length, generator=self.generator)
        if tied:
            scores = (2 * scores).round() / 2
        highest = 2 if self.metric.record.labels == "binary" else 5
        labels = torch.randint(highest, (size, length), generator=self.generator)
        labels[0], labels[1] = 0, 1
        return scores, labels

    def values(self, scores: Tensor, labels: Tensor, **options: Any) -> Tensor:
        values, _ = measure_lists(pack(scores, labels, **options), [self.metric])
        return values[self.metric.name]

    def same(self, actual: Tensor, expected: Tensor) -> None:
        close = torch.isclose(actual, expected, rtol=0, atol=_TOLERANCE, equal_nan=True)
        self.holds(
            actual.shape == expected.shape and bool(close.all()),
            f"{int((~close).sum())} of {close.numel()} lists differ, first {actual[~close][:1].tolist()} "
            f"instead of {expected[~close][:1].tolist()}",
        )

    def holds(self, condition: bool, what: str) -> None:
        if not condition:
            raise AssertionError(f"{self.metric.name}: {self.property}: {what}")


def _permutation(subject: _Subject) -> None:
    # Under "stable" the order of tied items counts by definition.
    scores, labels = subject.lists(tied=subject.metric.ties != "stable")
    order = torch.rand(scores.shape, generator=subject.generator).argsort(1)
    moved = subject.values(scores.gather(1, order), labels.gather(1, order))
    subject.same(moved, subject.values(scores, labels))


def _padding(subject: _Subject) -> None:
    scores, labels = subject.lists()
    expected = subject.values(scores, labels)
    for width in (1, 9):
        filler = torch.randn(len(scores), width, generator=subject.generator) * 100
        mask = torch.ones(len(scores), scores.shape[1] + width, dtype=torch.bool)
        mask[:, scores.shape[1] :] = False
        padded = subject.values(torch.cat([scores, filler], 1), torch.cat([labels, filler.gt(0).long()], 1), mask=mask)
        subject.same(padded, expected)


def _other_lists(subject: _Subject) -> None:
    scores, labels = subject.lists()
    expected = subject.values(scores, labels)
    subject.same(torch.cat([subject.values(s, y) for s, y in zip(scores, labels, strict=True)]), expected)
    query_ids = torch.arange(len(scores)).repeat_interleave(scores.shape[1]) * 1000 - 7
    subject.same(subject.values(scores.flatten(), labels.flatten(), query_ids=query_ids), expected)


def _increasing_transform(subject: _Subject) -> None:
    scores, labels = subject.lists()
    expected = subject.values(scores, labels)
    transforms: dict[str, Callable[[Tensor], Tensor]] = {
        "shift": lambda s: s - 1000,
        "scale": lambda s: s * 0.125,
        "exp": lambda s: s.double().exp(),
        "sigmoid": lambda s: s.double().sigmoid(),
        "cube": lambda s: s.double() ** 3,
    }
    for transform in transforms.values():
        subject.same(subject.values(transform(scores), labels), expected)


def _ties(subject: _Subject) -> None:
    scores, labels = subject.lists(tied=False)
    constant = subject.values(torch.zeros_like(scores), labels)
    if subject.metric.ties != "stable":
        subject.same(subject.values(torch.zeros_like(scores), labels.flip(1)), constant)
    subject.same(subject.values(torch.zeros_like(scores), labels), subject.values(-torch.zeros_like(scores), labels))
    in_range = torch.isnan(constant) | ((constant >= 0) & (constant <= 1 + _TOLERANCE))
    subject.holds(bool(in_range.all()), f"constant scores have the value {constant[~in_range][:1].tolist()}")


def _one_class(subject: _Subject) -> None:
    scores, labels = subject.lists()
    for label in (0, 1):
        values = subject.values(scores, torch.full_like(labels, label))
        known = torch.isnan(values) | ((values >= 0) & (values <= 1 + _TOLERANCE))
        subject.holds(bool(known.all()), f"lists of {label} only have the value {values[~known][:1].tolist()}")
        alike = torch.isnan(values).any() == torch.isnan(values).all()
        subject.holds(bool(alike), f"some lists of {label} only are undefined and some are not")


def _huge_scores(subject: _Subject) -> None:
    scores, labels = subject.lists()
    subject.same(subject.values(scores * 1e30, labels), subject.values(scores, labels))


def _half_precision(subject: _Subject) -> None:
    scores, labels = subject.lists()
    expected = subject.values(scores, labels)
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        subject.same(subject.values(scores.to(dtype), labels), expected)


def _weights(subject: _Subject) -> None:
    scores, labels = subject.lists()
    counts = torch.randint(2, scores.shape, generator=subject.generator)
    if subject.metric.record.takes_item_weights:
        counts = torch.randint(4, scores.shape, generator=subject.generator)
    counts[:, 0] = 1
    weighted = subject.values(scores, labels, weights=counts.double())
    width = int(counts.max())
    copies = torch.arange(width) < counts[..., None]
    many = (values[..., None].expand(copies.shape).flatten(1) for values in (scores, labels))
    subject.same(weighted, subject.values(*many, mask=copies.flatten(1)))
    subject.same(subject.values(scores, labels, weights=torch.ones_like(scores)), subject.values(scores, labels))


_PROPERTIES: dict[str, Callable[[_Subject], None]] = {
    "the order of the items changes nothing": _permutation,
    "the width of the padding changes nothing": _padding,
    "the other lists change nothing": _other_lists,
    "an increasing transform of the scores changes nothing": _increasing_transform,
    "tied scores have a value that does not depend on the input order": _ties,
    "lists of one class have a value in [0, 1] or none": _one_class,
    "huge scores change nothing": _huge_scores,
    "half-precision scores change nothing": _half_precision,
    "weight 2 is the item twice and weight 0 its absence": _weights,
}
