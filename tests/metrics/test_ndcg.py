"""NDCG against scikit-learn and the mean over all tie orders."""

from __future__ import annotations

import math

import pytest
import torch

from oracles import metrics as oracle
from rankwise.metrics import evaluate, ndcg
from rankwise.metrics._ndcg import ideal_dcg


def cases(size, length, seed):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(size, length, generator=generator, dtype=torch.float64)
    scores[::2] = (2 * scores[::2]).round()
    grades = torch.randint(5, (size, length), generator=generator)
    grades[:, 0] = 1
    return scores, grades


@pytest.mark.parametrize("k", [None, 1, 3, 10])
@pytest.mark.parametrize("length", [4, 15])
@pytest.mark.parametrize("lists", [200, pytest.param(1250, marks=pytest.mark.slow)])
def test_scikit_learn_agrees_list_by_list(lists, length, k, scikit_learn):
    scores, grades = cases(lists, length, seed=length)
    for gain, gains in (("linear", grades), ("exp2", 2**grades - 1)):
        ours = ndcg(scores, grades, k=k, gain=gain, reduction="none")
        with scikit_learn.config_context(assume_finite=True, skip_parameter_validation=True):
            theirs = [
                scikit_learn.metrics.ndcg_score(g[None], s[None], k=k)
                for g, s in zip(gains.numpy(), scores.numpy(), strict=True)
            ]
        torch.testing.assert_close(ours, torch.tensor(theirs, dtype=torch.float64), rtol=0, atol=1e-9)


@pytest.mark.parametrize("k", [None, 1, 3, 50])
def test_ideal_dcg_is_the_dcg_of_the_largest_gains_first(k):
    gains = torch.rand(20, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ordered = (sorted(row, reverse=True)[:k] for row in gains.tolist())
    plain = [sum(gain / math.log2(rank + 2) for rank, gain in enumerate(row)) for row in ordered]
    torch.testing.assert_close(ideal_dcg(gains, k=k), torch.tensor(plain, dtype=torch.float64))


@pytest.mark.parametrize("k", [None, 1, 3, 50])
def test_a_weight_counts_copies_in_the_ideal_dcg(k):
    generator = torch.Generator().manual_seed(1)
    gains = torch.rand(20, 7, generator=generator, dtype=torch.float64)
    weights = torch.randint(4, (20, 7), generator=generator)
    copies = [ideal_dcg(row.repeat_interleave(count)[None], k=k) for row, count in zip(gains, weights, strict=True)]
    torch.testing.assert_close(ideal_dcg(gains, weights=weights, k=k), torch.cat(copies))


def test_query_weights_are_those_of_scikit_learn(scikit_learn):
    scores, grades = cases(50, 8, seed=1)
    weights = torch.rand(50, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    ours = evaluate(scores, grades, "ndcg@5", gain="linear", query_weights=weights, bootstrap=0).means["ndcg@5"]
    theirs = scikit_learn.metrics.ndcg_score(grades.numpy(), scores.numpy(), k=5, sample_weight=weights.numpy())
    assert ours == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize("k", [None, 1, 2, 4])
def test_ties_are_the_mean_over_their_orders(k):
    generator = torch.Generator().manual_seed(3)
    scores = torch.randint(3, (60, 5), generator=generator).float()
    grades = torch.randint(4, (60, 5), generator=generator)
    ours = ndcg(scores, grades, k=k, reduction="none")
    plain = [
        oracle.ndcg(list(zip(s, y, strict=True)), k, lambda grade: 2**grade - 1)
        for s, y in zip(scores.tolist(), grades.tolist(), strict=True)
    ]
    torch.testing.assert_close(ours, torch.tensor(plain, dtype=torch.float64), rtol=0, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("ties", ["average", "pessimistic", "stable"])
def test_a_cutoff_is_the_same_alone_and_among_others(ties):
    """Ties across every cutoff, lists of other lengths beside them."""
    generator = torch.Generator().manual_seed(4)
    scores = torch.randint(6, (80, 12), generator=generator).float()
    grades = torch.randint(4, (80, 12), generator=generator)
    lengths = torch.randint(1, 13, (80, 1), generator=generator)
    mask = torch.arange(12) < lengths
    together = evaluate(scores, grades, ["ndcg@2", "ndcg", "ndcg@7", "ndcg@5"], mask=mask, ties=ties, bootstrap=0)
    for k in (2, 5, 7, None):
        name = "ndcg" if k is None else f"ndcg@{k}"
        whole = torch.cat(
            [
                ndcg(s[None, :n], y[None, :n], k=k, ties=ties, reduction="none")
                for s, y, n in zip(scores, grades, lengths.flatten().tolist(), strict=True)
            ]
        )
        torch.testing.assert_close(together.per_query[name], whole, rtol=0, atol=1e-12, equal_nan=True)


def test_labels_are_left_as_they_came():
    scores, grades = torch.tensor([[0.1, 0.3, 0.2]]), torch.tensor([[1.0, 0.0, 2.0]], dtype=torch.float64)
    for labels in (grades, grades.float(), grades.long()):
        before = labels.clone()
        evaluate(scores, labels, ["ndcg", "ndcg@2"], gain=lambda grades: grades, bootstrap=0)
        evaluate(scores, labels, ["ndcg", "ndcg@2"], bootstrap=0)
        assert torch.equal(labels, before)


@pytest.mark.parametrize("labels", [[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]])
def test_six_equal_scores_do_not_depend_on_the_input_order(labels, scikit_learn):
    theirs = scikit_learn.metrics.ndcg_score([labels], [[0.5] * 6], k=3)
    assert ndcg([0.5] * 6, labels, k=3).item() == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize("labels", [[1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1]])
def test_two_relevant_of_six_equal_scores_have_the_published_value(labels):
    assert ndcg([0.5] * 6, labels, k=3).item() == pytest.approx(0.4355, abs=5e-5)


@pytest.mark.parametrize("grades, scores", [([3, 0, 1], [3.0, 2.0, 1.0]), ([0, 0, 2], [1.0, 1.0, 1.0])])
def test_pessimistic_puts_lower_grades_first(grades, scores):
    worse = ndcg(scores, grades, ties="pessimistic").item()
    values = [ndcg(scores, grades, ties=ties).item() for ties in ("average", "stable")]
    assert worse <= min(values) + 1e-15
    if len(set(scores)) == 1:
        assert worse == pytest.approx(1 / math.log2(4))


def test_own_gain_is_used_for_the_list_and_its_ideal():
    def inverted(grades):
        return 3 - grades

    assert ndcg([3.0, 2.0, 1.0], [0, 1, 3], gain=inverted).item() == pytest.approx(1)
    assert ndcg([1.0, 2.0, 3.0], [0, 1, 3], gain=inverted).item() < 1


def test_own_gain_of_grade_zero_does_not_leak_into_padding():
    def lifted(grades):
        return grades + 1

    mask = torch.tensor([[True, True, False]])
    padded = ndcg([[1.0, 2.0, 9.0]], [[2, 0, 0]], gain=lifted, mask=mask)
    torch.testing.assert_close(padded, ndcg([[1.0, 2.0]], [[2, 0]], gain=lifted))


def test_list_of_grade_zero_is_left_out():
    values = ndcg([[2.0, 1.0], [2.0, 1.0]], [[0, 0], [0, 1]], reduction="none")
    assert torch.isnan(values).tolist() == [True, False]


def test_fractional_weight_extends_the_discount_linearly():
    # The first item takes one and a half positions, the second half a one: D(n) = sum of discounts up to n.
    discount = [1, 1 / math.log2(3)]
    dcg = 3 * 0.5 * discount[1]
    ideal = 3 * 0.5 * discount[0]
    found = ndcg([2.0, 1.0], [0, 2], weights=[1.5, 0.5])
    assert found.item() == pytest.approx(dcg / ideal)


def test_weights_may_take_any_number_of_positions():
    def reached(positions):
        whole = sum(1 / math.log2(r + 1) for r in range(1, int(positions) + 1))
        return whole + positions % 1 / math.log2(int(positions) + 2)

    found = ndcg([2.0, 1.0], [0, 2], weights=[70_000.25, 50_000.25])
    assert found.item() == pytest.approx((reached(120_000.5) - reached(70_000.25)) / reached(50_000.25), rel=1e-9)
    # So far down all positions are worth about the same.
    far = ndcg([3.0, 2.0, 1.0], [1, 0, 1], weights=torch.full((3,), 1e60, dtype=torch.float64))
    assert far.item() == pytest.approx(1, abs=0.01)


def test_float_grades_are_taken():
    plain = oracle.ndcg([(2.0, 0.5), (1.0, 1.5)], None, lambda grade: 2**grade - 1)
    assert ndcg([2.0, 1.0], [0.5, 1.5]).item() == pytest.approx(plain)
