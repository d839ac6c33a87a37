"""The baselines of pAp@k against their definitions."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oracles import pap as oracle
from rankwise.losses import PApLoss
from rankwise.losses.baselines import GreedyTopKLoss, HingePartialAUCLoss, PrecisionAtKLoss
from rankwise.metrics import pap, precision
from rankwise.testing import check_loss

lists_of_scores = st.integers(3, 9).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(-2000, 2000).map(lambda s: s / 1001), min_size=n, max_size=n, unique=True),
        st.lists(st.integers(0, 1), min_size=n, max_size=n).filter(lambda y: 0 < sum(y) < len(y)),
    )
)


def compare(loss, case, definition):
    """Value and gradient against those of plain loops; where two terms are equal either gradient will do."""
    leaves = [torch.tensor(s, dtype=torch.float64, requires_grad=True) for s in case[0]]
    positives = [s for s, y in zip(leaves, case[1], strict=True) if y]
    negatives = [s for s, y in zip(leaves, case[1], strict=True) if not y]
    expected = definition(positives, negatives) + 0 * sum(leaves)
    gradient = torch.autograd.grad(expected, leaves)
    scores = torch.tensor(case[0], dtype=torch.float64, requires_grad=True)
    found = loss(scores, torch.tensor(case[1]))
    found.backward()
    torch.testing.assert_close(found.detach(), expected.detach(), rtol=1e-12, atol=1e-12)
    return scores.grad, torch.stack(gradient)


@given(lists_of_scores, st.sampled_from([0.2, 0.5, 1.0]))
def test_partial_auc_is_as_defined(case, max_fpr):
    count = max(1, -int(-max_fpr * case[1].count(0) // 1))
    ours, theirs = compare(HingePartialAUCLoss(max_fpr), case, lambda p, z: oracle.partial_auc(p, z, count))
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@given(lists_of_scores, st.integers(1, 4))
def test_precision_is_the_maximum_over_all_choices_of_k_items(case, k):
    if case[1].count(0) < min(k, sum(case[1])):
        return
    compare(PrecisionAtKLoss(k), case, lambda p, z: oracle.precision_by_subsets(p, z, k))


def test_gradient_of_precision_is_that_of_its_definition():
    generator = torch.Generator().manual_seed(0)
    for _ in range(40):
        scores = torch.randn(8, generator=generator, dtype=torch.float64).tolist()
        case = (scores, [1, 1, 1, 1, 0, 0, 0, 0])
        ours, theirs = compare(PrecisionAtKLoss(2), case, lambda p, z: oracle.precision_by_subsets(p, z, 2))
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@given(lists_of_scores, st.integers(1, 4))
def test_greedy_is_as_defined(case, k):
    if case[1].count(0) < k:
        return
    ours, theirs = compare(GreedyTopKLoss(k), case, lambda p, z: oracle.greedy(p, z, k))
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def batch():
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(5000, 12, generator=generator, dtype=torch.float64).mul(4).round().div(4)
    labels = (torch.arange(12) < torch.randint(1, 9, (5000, 1), generator=generator)).long()
    return scores, labels


def test_bounds_hold():
    scores, labels = batch()
    greedy = GreedyTopKLoss(3, reduction="none")(scores, labels)
    risk = 1 - pap(scores, labels, k=3, reduction="none")
    kept = ~risk.isnan()
    assert bool((greedy[kept] >= risk[kept] - 1e-12).all())
    enough = labels.sum(1) >= 3
    missed = 1 - precision(scores[enough], labels[enough], k=3, ties="pessimistic", reduction="none")
    bound = PrecisionAtKLoss(3, reduction="none")(scores[enough], labels[enough])
    assert bool((bound >= missed - 1e-12).all())


def test_partial_auc_of_k_negatives_is_avg_plus():
    scores, labels = batch()
    scores, labels = scores[labels.sum(1) == 2], labels[labels.sum(1) == 2]  # 10 negatives each
    torch.testing.assert_close(
        HingePartialAUCLoss(0.3)(scores, labels), PApLoss(3, surrogate="avg+")(scores, labels), rtol=1e-12, atol=0
    )


@pytest.mark.parametrize("build", [lambda: HingePartialAUCLoss(0.4, margin=0.3), lambda: PrecisionAtKLoss(2)])
def test_convex_baselines_lie_below_their_chords(build):
    generator = torch.Generator().manual_seed(2)
    ends = torch.randn(2, 3000, 9, generator=generator, dtype=torch.float64) * 2
    labels = (torch.arange(9) < torch.randint(1, 8, (3000, 1), generator=generator)).long()
    loss = build()
    loss.reduction = "none"
    first, second, middle = (loss(s, labels) for s in (*ends, ends.mean(0)))
    assert bool((middle <= (first + second) / 2 + 1e-12).all())


@pytest.mark.parametrize(
    "build, shift_invariant",
    [
        (lambda: HingePartialAUCLoss(1.0, margin=0.2), True),
        (lambda: PrecisionAtKLoss(2, margin=0.2), True),
        (lambda: GreedyTopKLoss(2, short_lists="clip"), False),
    ],
)
def test_options_keep_the_contract(build, shift_invariant):
    check_loss(build, shift_invariant=shift_invariant)


def test_weight_2_is_an_item_twice_in_the_whole_auc():
    scores, labels = torch.tensor([0.5, -0.2, 0.1, 0.3]).double(), torch.tensor([1, 1, 0, 0])
    twice = torch.tensor([0, 1, 1, 2, 2, 3])
    weighed = HingePartialAUCLoss(1.0)(scores, labels, weights=torch.tensor([1, 2, 2, 1]))
    torch.testing.assert_close(weighed, HingePartialAUCLoss(1.0)(scores[twice], labels[twice]))


def test_tiny_weights_of_the_partial_auc_are_as_good_as_others():
    scores, labels = torch.tensor([1.0, 2.0, 0.5, 3.0], requires_grad=True), torch.tensor([1, 0, 1, 0])
    value = HingePartialAUCLoss()(scores, labels, weights=torch.full((4,), 1e-20))
    (gradient,) = torch.autograd.grad(value, scores)
    assert value.item() == 3.25  # (1 + 3 - 1 + 1 + 3 - .5) / 2
    assert gradient.tolist() == [-0.5, 0, -0.5, 1]


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: HingePartialAUCLoss(0.0), r"max_fpr: expected a number in \(0, 1\], got 0"),
        (lambda: PrecisionAtKLoss(0), "k: expected a whole number of at least 1"),
        (lambda: GreedyTopKLoss(2, short_lists="none"), "short_lists: unknown word 'none'"),
    ],
)
def test_bad_options_are_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()
