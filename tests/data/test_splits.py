"""Cuts: whole lists, every row once, the shares asked for."""

from __future__ import annotations

from itertools import chain

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankwise.data import Part, cut_by_query, cut_stratified, folds_by_query

PARTS = ("train", "validation", "test")


def make(queries: torch.Tensor, labels: torch.Tensor | None = None) -> Part:
    rows = torch.arange(len(queries))
    return Part(rows.float().unsqueeze(1), rows % 3 if labels is None else labels, queries)


def rows_of(split) -> list[list[int]]:
    return [split.part(name).features.flatten().int().tolist() for name in PARTS]


query_lists = st.lists(st.integers(-5, 5), min_size=30, max_size=60).filter(lambda ids: len(set(ids)) >= 5)


@given(query_lists, st.integers(0, 10))
def test_every_row_is_in_one_part_and_no_list_in_two(ids, seed):
    part = make(torch.tensor(ids))
    for split in [cut_by_query(part, seed=seed), *folds_by_query(part, k=5, seed=seed)]:
        assert sorted(chain(*rows_of(split))) == list(range(len(ids)))
        queries = [set(split.part(name).query_ids.tolist()) for name in PARTS]
        assert sum(map(len, queries)) == len(set(ids))
        assert set.union(*queries) == set(ids)
        assert all(rows == sorted(rows) for rows in rows_of(split))


def test_shares_are_those_of_lists():
    split = cut_by_query(make(torch.arange(100).repeat_interleave(3)), shares=(0.5, 0.3, 0.2), seed=0)
    assert [len(split.part(name)) for name in PARTS] == [150, 90, 60]


def test_every_list_is_tested_once_over_the_folds():
    folds = folds_by_query(make(torch.arange(11)), k=4, seed=1)
    assert sorted(query for split in folds for query in split.test.query_ids.tolist()) == list(range(11))
    assert sorted(query for split in folds for query in split.validation.query_ids.tolist()) == list(range(11))
    assert {len(split.test) for split in folds} <= {2, 3}


@given(st.lists(st.integers(0, 2), min_size=30, max_size=90), st.integers(0, 5))
def test_stratified_shares_hold_in_every_class(labels, seed):
    labels = [0] * 5 + [1] * 5 + [2] * 5 + labels
    part = Part(torch.arange(len(labels)).float().unsqueeze(1), torch.tensor(labels))
    split = cut_stratified(part, shares=(0.6, 0.2, 0.2), seed=seed)
    assert sorted(chain(*rows_of(split))) == list(range(len(labels)))
    for label in range(3):
        for name, share in zip(PARTS, (0.6, 0.2, 0.2), strict=True):
            count = int((split.part(name).labels == label).sum())
            assert abs(count - share * labels.count(label)) <= 1


def test_the_seed_decides():
    part = make(torch.arange(50), torch.arange(50) % 2)
    for cut in (
        lambda seed: cut_by_query(part, seed=seed),
        lambda seed: cut_stratified(part, seed=seed),
        lambda seed: folds_by_query(part, k=3, seed=seed)[0],
    ):
        assert rows_of(cut(1)) == rows_of(cut(1))
        assert rows_of(cut(1)) != rows_of(cut(2))


def test_a_share_of_nothing_is_an_empty_part():
    assert [len(rows) for rows in rows_of(cut_stratified(make(torch.arange(9)), shares=(0.7, 0.0, 0.3), seed=0))] == [
        6,
        0,
        3,
    ]


@pytest.mark.parametrize(
    "shares", [(0.5, 0.5), (0.5, 0.4, 0.2), (1.2, -0.2, 0.0), (float("nan"), 0.5, 0.5), (0.2, 0.2, 0.2, 0.4)]
)
def test_shares_that_do_not_add_up_are_refused(shares):
    with pytest.raises(ValueError, match="shares: expected three numbers from 0 to 1 that add up to 1"):
        cut_by_query(make(torch.arange(9)), shares=shares, seed=0)


def test_what_cannot_be_cut_is_refused():
    without = Part(torch.rand(4, 1), torch.tensor([0, 0, 0, 1]))
    with pytest.raises(ValueError, match="part: expected query ids"):
        cut_by_query(without, seed=0)
    with pytest.raises(ValueError, match="k: expected a whole number from 3 to the 4 lists, got 5"):
        folds_by_query(make(torch.arange(4)), k=5, seed=0)
    with pytest.raises(ValueError, match="enough lists for every part, got 2"):
        cut_by_query(make(torch.arange(2)), seed=0)
    with pytest.raises(ValueError, match="enough rows of class 1 for every part, got 1"):
        cut_stratified(Part(torch.rand(7, 1), torch.tensor([0] * 6 + [1])), seed=0)


def test_parts_keep_the_names_of_their_lists():
    part = Part(torch.rand(9, 1), torch.arange(9), torch.arange(9) // 3, ("ann", "bob", "cid"))
    for split in (cut_by_query(part, shares=(0.34, 0.33, 0.33), seed=0), folds_by_query(part, k=3, seed=0)[0]):
        assert [split.part(name).query_names for name in PARTS] == [part.query_names] * 3
