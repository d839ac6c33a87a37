"""What losses know of whole lists: counts and ideal DCGs, from the labels alone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oracles import ndcg as oracle
from rankwise.losses import ListStatistics, NDCGLoss
from rankwise.losses.sampled_lists import ListTotals

data = st.lists(st.tuples(st.sampled_from([-(2**63), -1, 0, 7, 2**63 - 1]), st.integers(0, 4)), min_size=1, max_size=40)


@given(data, st.sampled_from([None, 1, 3, 50]))
def test_totals_are_those_of_the_lists(rows, k):
    queries, grades = zip(*rows, strict=True)
    totals = ListTotals(ListStatistics(grades, queries), "exp2", k)
    for query in set(queries):
        own = [y for q, y in rows if q == query]
        size, relevant, ideal = totals(torch.tensor([query]))
        assert (size.item(), relevant.item()) == (len(own), sum(y > 0 for y in own))
        assert ideal.item() == pytest.approx(oracle.ideal_dcg(own, k), abs=1e-12)


@given(data, st.integers(40, 60))
def test_a_size_adds_irrelevant_items(rows, size):
    queries, grades = zip(*rows, strict=True)
    short = ListTotals(ListStatistics(grades, queries, size=size), "exp2", None)
    named = [(query, 0) for query in set(queries) for _ in range(size - queries.count(query))]
    queries, grades = zip(*rows, *named, strict=True)
    long = ListTotals(ListStatistics(grades, queries), "exp2", None)
    for name in ("ids", "size", "relevant", "ideal"):
        torch.testing.assert_close(getattr(short, name), getattr(long, name))


def test_a_gain_of_ones_own_decides_what_is_relevant():
    totals = ListTotals(ListStatistics([0, 1, 2, 3], [5] * 4), lambda grades: (grades - 1).clamp_min(0), None)
    assert totals.relevant.tolist() == [2]


@pytest.mark.parametrize(
    "labels, queries, size, error, message",
    [
        ([], [], None, ValueError, r"labels: expected shape \(N,\) with at least one item"),
        ([1, -1], [0, 0], None, ValueError, "labels: expected grades of 0 or more, got -1"),
        ([1, 0], [0], None, ValueError, "query_ids: expected the shape of labels"),
        ([1, 0], [0.5, 1], None, TypeError, "query_ids: expected integers"),
        ([1, 0, 0], [0, 0, 1], 1, ValueError, "size: expected a whole number of at least 2, the longest list, got 1"),
        ([1, 0, 0], [0, 0, 1], True, ValueError, "size: expected a whole number of at least 2"),
    ],
)
def test_bad_input_is_named(labels, queries, size, error, message):
    with pytest.raises(error, match=message):
        ListStatistics(labels, queries, size=size)


@pytest.mark.parametrize(
    "labels, message", [([1, 1, 0], "the 1 relevant items"), ([1, 0, 0, 0], "the 2 irrelevant items")]
)
def test_more_items_than_the_statistics_count_are_refused(labels, message):
    loss = NDCGLoss(ListStatistics([2, 0, 0], [5, 5, 5]))
    with pytest.raises(ValueError, match=f"labels: expected at most {message}"):
        loss(torch.rand(1, len(labels)), [labels], query_ids=[5], sample_ids=[list(range(len(labels)))])
