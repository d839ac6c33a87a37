"""Bias of mini-batches: nothing is off when the batch is the data, and the rest goes the way theory says."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankwise.audit import bias
from rankwise.audit.pools import make_pools
from rankwise.data.expectations import training_prior
from rankwise.metrics import average_precision


def made_up(count, positives, *, shift=1.5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.arange(count) < positives).long()
    return torch.randn(count, generator=generator, dtype=torch.float64) + shift * labels, labels


@given(
    st.integers(2, 30).flatmap(
        lambda n: st.tuples(
            st.lists(st.integers(0, 1), min_size=n, max_size=n),
            st.lists(st.integers(-2, 3), min_size=n, max_size=n),
        )
    ),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_a_batch_holds_items_of_its_list_once_each_and_of_the_right_kind(case, positives, negatives):
    labels, queries = (torch.tensor(each) for each in case)
    scores = torch.arange(len(labels)).double()  # the score says which item it is
    ids, of_item = queries.unique(return_inverse=True)
    usable = [q for q in range(len(ids)) if 0 < int(labels[of_item == q].sum()) < int((of_item == q).sum())]
    if not usable:
        with pytest.raises(ValueError, match="expected a list with both a 1 and a 0, got none"):
            make_pools(scores, labels, queries)
        return
    pools = make_pools(scores, labels, queries)
    assert pools.left_out == len(ids) - len(usable)
    batches = pools.draw(positives, negatives, torch.Generator().manual_seed(0))
    for row, query in enumerate(usable):
        items = batches.scores[row][batches.mask[row]].long()
        assert len(items.unique()) == len(items)
        assert bool((of_item[items] == query).all())
        assert torch.equal(labels[items], batches.labels[row][batches.mask[row]])
        there = int(labels[of_item == query].sum())
        assert int(labels[items].sum()) == min(positives, there)
        assert int((labels[items] == 0).sum()) == min(negatives, int((of_item == query).sum()) - there)


def test_draws_are_uniform():
    pools = make_pools(torch.arange(10.0), torch.tensor([1] * 5 + [0] * 5))
    generator = torch.Generator().manual_seed(0)
    drawn = torch.cat([pools.draw(2, 1, generator).scores.flatten() for _ in range(2000)]).long()
    counts = torch.bincount(drawn, minlength=10)
    assert bool(((counts[:5] - 800).abs() < 100).all())
    assert bool(((counts[5:] - 400).abs() < 80).all())


def test_nothing_is_off_when_a_batch_is_all_the_data():
    scores, labels = made_up(60, 12)
    found = bias(scores, labels, positives=12, negatives=48, repeats=3)
    assert found.truth == pytest.approx(1 - float(average_precision(scores, labels)))
    assert found.prior == pytest.approx(0.2)
    for estimate in found.estimates:
        assert estimate.bias == pytest.approx(0, abs=1e-6), estimate
        assert estimate.std == pytest.approx(0, abs=1e-6)
    assert found.estimates[0].full == pytest.approx(found.truth)


def test_the_plain_loss_is_too_small_with_too_many_positives_and_too_large_with_too_few():
    scores, labels = made_up(8000, 1600)
    many = bias(scores, labels, positives=400, negatives=400, repeats=40).estimates
    few = bias(scores, labels, positives=40, negatives=760, repeats=40).estimates
    assert many[0].bias < -0.15
    assert few[0].bias > 0.15
    assert abs(many[1].bias) < 0.03
    assert abs(few[1].bias) < 0.03


def test_the_advice_is_the_composition_of_the_smallest_error():
    scores, labels = made_up(5000, 500)
    found = bias(scores, labels, repeats=30)
    assert found.best.corrected_error == min(each.corrected_error for each in found.compositions)
    assert all(each.positives + each.negatives == 64 for each in found.compositions)
    assert [each.positives for each in found.compositions] == [4, 6, 8, 16, 32]
    assert [each.positives for each in found.larger] == [4 * found.best.positives, 16 * found.best.positives]
    assert abs(found.larger[-1].corrected_bias) < abs(found.best.corrected_bias)
    for part in (
        f"{found.best.positives} positives and {found.best.negatives} negatives",
        "prior=0.1)",
        f"{found.best.corrected_bias:+.3f}",
        f"{found.best.plain_bias:+.3f}",
    ):
        assert part in found.sentence
    rare = bias(*made_up(5000, 50), repeats=3)
    assert f"AUPRCLoss({training_prior(0.01)})" in rare.sentence
    assert "with the true share, 0.01," in rare.sentence


def test_every_list_counts_with_its_own_prior():
    scores, labels = made_up(4000, 800, seed=1)
    queries = torch.arange(4000) % 4
    # A list without a positive is left out and counted.
    scores, labels = torch.cat([scores, scores[:5]]), torch.cat([labels, torch.zeros(5, dtype=torch.int64)])
    queries = torch.cat([queries, torch.full((5,), 9)])
    found = bias(scores, labels, query_ids=queries, positives=50, negatives=50, repeats=20)
    assert (found.lists, found.left_out) == (4, 1)
    assert "1 list without both labels left out" in found.sentence
    expected = 1 - float(average_precision(scores, labels, query_ids=queries))
    assert found.truth == pytest.approx(expected)
    assert abs(found.estimates[1].bias) < abs(found.estimates[0].bias) / 3


def test_one_list_given_as_a_query_changes_nothing():
    scores, labels = made_up(300, 60)
    alone = bias(scores, labels, repeats=5)
    named = bias(scores, labels, query_ids=torch.full((300,), 77), repeats=5)
    assert alone == named


@pytest.mark.parametrize(
    "arguments, options, message",
    [
        (([0.1, 0.2], [1, 1]), {}, "labels: expected a list with both a 1 and a 0"),
        (([0.1, 0.2], [1, 2]), {}, "labels: expected 0 or 1, got 2"),
        (([0.1, float("nan")], [1, 0]), {}, "scores: expected finite numbers"),
        (([0.1, 0.2], [1, 0]), {"positives": 0}, "positives: expected a whole number of at least 1"),
        (([0.1, 0.2], [1, 0]), {"repeats": 1}, "repeats: expected a whole number of at least 2"),
    ],
)
def test_bad_input_is_named(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        bias(*arguments, **options)
