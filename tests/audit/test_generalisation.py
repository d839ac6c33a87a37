"""The generalisation bounds: equal to the theorems as printed, term by term, and honest about their size."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oracles.pairs import one_sided_huber
from rankwise.audit import generalisation, list_stability

cases = st.integers(2, 12).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(-4, 4).map(lambda s: s / 4), min_size=n, max_size=n).filter(lambda s: len(set(s)) > 1),
        st.lists(st.integers(0, 1), min_size=n, max_size=n).filter(lambda y: 0 < sum(y) < len(y)),
    )
)


def huber(x, tau):
    return float(one_sided_huber(torch.tensor(x, dtype=torch.float64), tau))


def theorem_2(positives, negatives, tau, eps, a, t, delta):
    """The first and the last term of theorem 2, in plain loops."""
    n, rho = len(positives) + len(negatives), len(negatives) / len(positives)
    largest_l = 1 + 2 * (max(positives + negatives) - min(positives + negatives)) / tau
    largest_w = ((1 + a) / a) ** t
    mean = sum(positives) / len(positives)
    total = 0.0
    for p in positives:
        weight = ((1 + a) / (huber(p - mean, tau) / largest_l + a)) ** t
        total += weight * sum(huber(p - z, tau) for z in negatives) / len(negatives)
    x = rho * total / len(positives)
    q = math.pi / 2 + 2 * (1 + rho * largest_l) / (1 + 2 * rho * largest_l)
    first = q**2 / 2 * math.sqrt(eps**2 + x / (1 + x))
    scale = q**2 * rho * largest_w * largest_l / (2 * eps)
    return first, scale * math.sqrt((2 + rho + 1 / rho) / (2 * n) * math.log(1 / delta))


@given(cases, st.sampled_from([0.1, 1.0]))
def test_the_terms_are_those_of_theorem_2(case, tau):
    scores, labels = case
    sides = [[s for s, y in zip(scores, labels, strict=True) if y == kind] for kind in (1, 0)]
    found = generalisation(scores, labels, taus=[tau], eps=0.2, a=0.3, t=1.5, confidence=0.9).bounds[0]
    first, last = theorem_2(*sides, tau, 0.2, 0.3, 1.5, 0.1)
    assert found.empirical == pytest.approx(first, rel=1e-6)
    assert found.deviation == pytest.approx(last, rel=1e-6)
    assert found.total == pytest.approx(first + last, rel=1e-6)


def test_so_many_examples_bring_the_deviation_to_1():
    scores, labels = [0.9, 0.2, 0.5, 0.1], [1, 0, 1, 0]
    few = generalisation(scores, labels, taus=[0.3]).bounds[0]
    many = generalisation(scores * 50, labels * 50, taus=[0.3]).bounds[0]
    assert many.deviation == pytest.approx(few.deviation / math.sqrt(50), rel=1e-9)
    assert few.examples == pytest.approx(many.examples, rel=1e-9)
    assert few.deviation * math.sqrt(4 / few.examples) == pytest.approx(1, rel=1e-9)


def test_of_several_lists_the_one_with_the_smallest_bound_counts():
    generator = torch.Generator().manual_seed(0)
    scores, labels = torch.rand(90, generator=generator), (torch.arange(90) % 3 == 0).long()
    queries = (torch.arange(90) >= 30).long()
    together = generalisation(scores, labels, query_ids=queries, taus=[0.3])
    # The range of the scores, which B_l comes from, is that of all lists.
    assert together.size == 60
    assert together.lists == 2
    assert together.bounds[0].deviation < generalisation(scores[:30], labels[:30], taus=[0.3]).bounds[0].deviation * 2


def test_a_bound_above_1_is_said_to_promise_nothing():
    labels = (torch.arange(400) < 100).long()
    scores = torch.randn(400, generator=torch.Generator().manual_seed(0)) + 8 * labels
    found = generalisation(scores, labels)
    assert found.truth < 0.01
    assert "promises nothing" in found.sentence
    assert "400" in found.sentence
    assert min(bound.total for bound in found.bounds) > 1


def test_a_loose_setting_of_very_many_examples_is_not_called_empty():
    labels = torch.arange(2_000_000) % 2
    found = generalisation(labels.double(), labels, taus=[0.5], t=0.0, confidence=0.5)
    assert found.bounds[0].total < 1
    assert "if the complexity of your model added nothing" in found.sentence


@pytest.mark.parametrize(
    "options, message",
    [
        ({"taus": [0.0]}, "taus: expected a finite number > 0"),
        ({"eps": 0.0}, "eps: expected a finite number > 0"),
        ({"a": -1.0}, "a: expected a finite number > 0"),
        ({"confidence": 1.0}, r"confidence: expected a number in \(0, 1\)"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        generalisation([0.1, 0.2], [1, 0], **options)


def test_the_bound_of_the_estimation_error_is_the_product_of_theorem_1():
    found = list_stability(sizes=[40, 320], models=10, steps=10)
    for name in ("SOPRC", "stable AP"):
        distance = found.of(name)
        expected = [
            distance.steepest[i] * distance.length[i] * (4 * distance.positives[i] + 12 * distance.negatives[i])
            for i in range(2)
        ]
        assert list(found.estimation_errors(name)) == pytest.approx(expected)
        assert all(value > 0 for value in distance.steepest)
