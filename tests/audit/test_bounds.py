"""The bounds that the losses stand on: by the definition, and never broken."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oracles.auprc import average_precision
from oracles.pairs import one_sided_huber
from rankwise.audit import bounds

# Few distinct scores: many ties.
cases = st.integers(2, 16).flatmap(
    lambda n: st.tuples(
        st.lists(
            st.one_of(st.integers(-4, 4).map(lambda s: s / 4), st.floats(-1, 1, width=32)), min_size=n, max_size=n
        ),
        st.lists(st.integers(0, 1), min_size=n, max_size=n).filter(lambda y: 0 < sum(y) < len(y)),
    )
)


def theorem(positives, negatives, tau, eps):
    """(q / 2) h(rho / n+ sum w(r_i) l_i), METHODS 2.1, in plain loops."""
    rho = len(negatives) / len(positives)
    largest = 1 + 2 * max(max(positives + negatives) - min(positives + negatives), 1.2e-7) / tau
    total = 0.0
    for p in positives:
        r = sum(q >= p for q in positives) / len(positives)
        tail = (1 + rho * largest) / (r + rho * largest)
        weight = 1 / (2 * math.sqrt(r - r * r)) if r <= 0.5 + 1e-9 else tail
        each = [float(one_sided_huber(torch.tensor(p - n, dtype=torch.float64), tau)) for n in negatives]
        total += weight * sum(each) / len(each)
    x = rho / len(positives) * total
    q = math.pi / 2 + 2 * (1 + rho * largest) / (1 + 2 * rho * largest)
    return q / 2 * math.sqrt(eps**2 + x / (1 + x))


@given(cases, st.sampled_from([0.03, 0.3]))
def test_the_chain_of_theorem_1_is_computed_as_defined_and_holds(case, tau):
    scores, labels = case
    positives = [s for s, y in zip(scores, labels, strict=True) if y]
    negatives = [s for s, y in zip(scores, labels, strict=True) if not y]
    found = bounds(scores, labels, taus=[tau])
    truth = 1 - average_precision(positives, negatives)
    assert found.truth == pytest.approx(truth, abs=1e-9)
    assert found.bounds[0].stable == pytest.approx(theorem(positives, negatives, tau, 0.1), rel=1e-6)
    assert found.bounds[0].stable >= truth - 1e-9
    assert found.bounds[0].soprc >= truth - 1e-9
    assert found.violations == 0


def test_lists_are_bounded_one_by_one():
    generator = torch.Generator().manual_seed(0)
    queries = torch.arange(600) % 20
    labels = (torch.rand(600, generator=generator) < 0.3).long()
    scores = torch.tanh(torch.randn(600, generator=generator) + labels)  # no spread above 1: nothing is scaled
    together = bounds(scores, labels, query_ids=queries, taus=[0.1])
    assert together.lists == 20
    assert together.violations == 0
    alone = [bounds(scores[queries == q], labels[queries == q], taus=[0.1]) for q in range(20)]
    assert together.truth == pytest.approx(sum(each.truth for each in alone) / 20)
    assert together.bounds[0].soprc == pytest.approx(sum(each.bounds[0].soprc for each in alone) / 20, rel=1e-6)


def test_the_sentence_says_what_the_numbers_say():
    found = bounds([0.9, 0.8, 0.3, 0.1], [1, 0, 1, 0])
    usual = next(bound for bound in found.bounds if bound.tau == 0.1)
    assert f"by {usual.soprc - found.truth:.3f}" in found.sentence
    assert ("says nothing" in found.sentence) == (usual.stable >= 1)


def test_equal_scores_are_no_trouble():
    found = bounds([0.5] * 6, [1, 0, 0, 0, 0, 1])
    assert found.truth == pytest.approx(2 / 3)
    assert found.violations == 0


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="taus: expected a finite number > 0"):
        bounds([0.1, 0.2], [1, 0], taus=[0.0])
