"""Ranked lists: order, tie groups, and where the relevant items stand."""

from __future__ import annotations

import pytest
import torch

from rankwise.lists import pack
from rankwise.ranks import Positives, RankedLists, narrow, rank


def random_lists(seed=0, *, tied=True):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(30, 11, generator=generator)
    mask = torch.rand(30, 11, generator=generator) < 0.8
    mask[:, 0] = True
    labels = torch.randint(2, (30, 11), generator=generator)
    return pack((scores * 2).round() if tied else scores, labels, mask=mask).blocks[0]


@pytest.mark.parametrize("ties", ["average", "pessimistic", "stable"])
def test_scores_fall_and_masked_slots_come_last(ties):
    block = random_lists()
    ranked = rank(block, ties)
    scores = block.scores.gather(1, ranked.order)
    both = ranked.mask[:, 1:]
    assert bool((scores.diff(dim=1) <= 0)[both].all())
    assert torch.equal(block.mask.gather(1, ranked.order), ranked.mask)
    assert torch.equal(ranked.size, block.mask.sum(1))


def test_group_bounds_enclose_the_equal_scores():
    block = random_lists()
    ranked = rank(block)
    scores = block.scores.gather(1, ranked.order)
    for row in range(len(scores)):
        for place in range(int(ranked.size[row])):
            alike = ((scores[row] == scores[row, place]) & ranked.mask[row]).nonzero()[:, 0]
            assert int(ranked.start[row, place]) == int(alike.min())
            assert int(ranked.end[row, place]) == int(alike.max()) + 1
            same_group = ranked.group == ranked.group[row, place]
            assert torch.equal(same_group.nonzero()[:, 1], alike)
            assert same_group[row].sum() == same_group.sum()


def test_pessimistic_puts_irrelevant_items_of_a_group_first():
    block = random_lists()
    ranked = rank(block, "pessimistic")
    scores = block.scores.gather(1, ranked.order)
    tied = (scores.diff(dim=1) == 0) & ranked.mask[:, 1:]
    assert tied.any()
    assert bool((ranked.labels.diff(dim=1) >= 0)[tied].all())


def test_stable_keeps_the_input_order_of_a_group():
    block = random_lists()
    ranked = rank(block, "stable")
    scores = block.scores.gather(1, ranked.order)
    tied = (scores.diff(dim=1) == 0) & ranked.mask[:, 1:]
    assert bool((ranked.order.diff(dim=1) > 0)[tied].all())


@pytest.mark.parametrize("ties", ["average", "pessimistic"])
@pytest.mark.parametrize("tied", [False, True])
def test_binary_search_finds_what_sorting_finds(ties, tied):
    block = random_lists(tied=tied)
    ones = pack(block.scores, block.labels, mask=block.mask, weights=torch.ones_like(block.scores)).blocks[0]
    searched, sorted_ = rank(block, ties).positives, rank(ones, ties).positives
    for name in Positives.__dataclass_fields__:
        if name != "tied":
            torch.testing.assert_close(getattr(searched, name), getattr(sorted_, name), rtol=0, atol=0, msg=name)


def test_lists_with_ties_are_told_apart():
    ranked = rank(pack([[1.0, 1.0, 2.0], [1.0, 2.0, 3.0]], [[0, 1, 0]] * 2).blocks[0])
    assert ranked.has_ties.tolist() == [True, False]
    assert ranked.tied
    assert not RankedLists(ranked.lists, "stable").tied


def test_minus_zero_ties_with_zero():
    assert rank(pack([0.0, -0.0], [0, 1]).blocks[0]).has_ties.tolist() == [True]


def test_double_scores_that_differ_beyond_single_precision_are_not_tied():
    scores = torch.tensor([1.0, 1.0 + 1e-12], dtype=torch.float64)
    ranked = rank(pack(scores, [0, 1]).blocks[0])
    assert ranked.has_ties.tolist() == [False]
    assert ranked.order.tolist() == [[1, 0]]


def test_result_is_made_once():
    ranked = rank(random_lists())
    made = []
    assert ranked.once("name", lambda: made.append(1) or len(made)) == 1
    assert ranked.once("name", lambda: made.append(1) or len(made)) == 1


@pytest.mark.parametrize("ties", ["average", "pessimistic", "stable"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("width", [1, 2, 5, 40, 200])
def test_the_first_items_are_those_of_the_whole_order(width, masked, ties):
    """Few of many are found without sorting all; those tied with the last of them come along where ties are groups."""
    generator = torch.Generator().manual_seed(width)
    scores = torch.randint(40, (6, 200), generator=generator).float()
    mask = torch.rand(6, 200, generator=generator) < 0.6 if masked else torch.ones(6, 200, dtype=torch.bool)
    block = pack(scores, torch.randint(2, (6, 200), generator=generator), mask=mask).blocks[0]
    whole = rank(block, ties)
    index, valid = rank(block, ties).first(width)
    for row in range(6):
        found, order = index[row][valid[row]].tolist(), whole.order[row][whole.mask[row]].tolist()
        assert found[:width] == order[:width]
        last = scores[row, order[min(width, len(order)) - 1]]
        if ties == "average":
            assert {item for item in order if scores[row, item] >= last} <= set(found)
        assert found == order[: len(found)]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float64, torch.float16, torch.bool])
def test_narrow_values_are_the_same_numbers(dtype):
    values = torch.tensor([0, 1, 1]).to(dtype)
    assert narrow(values).dtype == torch.float32
    assert narrow(values).tolist() == values.tolist()
    assert narrow(values[:0]).numel() == 0


@pytest.mark.parametrize("value", [2**24 + 1, 2**53 - 1, 1 + 2.0**-40])
def test_what_float32_cannot_hold_is_not_narrowed(value):
    values = torch.tensor([value, 1], dtype=torch.float64 if isinstance(value, float) else torch.int64)
    assert narrow(values).tolist() == values.tolist()
