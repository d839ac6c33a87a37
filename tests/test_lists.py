"""The one shape: whatever comes in, each list keeps its own items, and only those count."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankwise.lists import compact, count, pack, reduce_lists

INT64 = torch.iinfo(torch.int64)
ragged = st.lists(
    st.tuples(st.sampled_from([0, 3, -1, INT64.max, INT64.min]), st.floats(-5, 5, width=32)), min_size=1, max_size=40
)


def items_of(packed):
    """What each list holds, as {id: [scores]}."""
    held = {}
    for block in packed.blocks:
        for row, position in enumerate(block.positions.tolist()):
            held[int(packed.ids[position])] = block.scores[row][block.mask[row]].tolist()
    return held


@given(ragged)
def test_ragged_lists_keep_their_items_in_order(items):
    ids, scores = [i for i, _ in items], [s for _, s in items]
    packed = pack(torch.tensor(scores), torch.zeros(len(items)), query_ids=torch.tensor(ids))
    expected = {i: [s for j, s in items if j == i] for i in set(ids)}
    assert items_of(packed) == expected


def test_very_different_lengths_go_to_different_blocks():
    lengths = torch.tensor([5000, 3, 4, 2, 3, 900, 1000, 4])
    ids = torch.repeat_interleave(torch.arange(8), lengths)
    scores = torch.arange(len(ids)).float()
    packed = pack(scores, torch.zeros(len(ids)), query_ids=ids)
    assert len(packed.blocks) > 1
    assert sum(block.scores.numel() for block in packed.blocks) <= 2 * len(ids)
    (sums,) = packed.map(lambda lists: (lists.scores.sum(1),))
    torch.testing.assert_close(sums, torch.stack([scores[ids == i].sum() for i in range(8)]))


@pytest.mark.parametrize("longest, blocks", [(1028, 1), (1029, 2)])
def test_lists_share_a_block_while_it_has_two_slots_for_each_item_and_1024_more(longest, blocks):
    ids = torch.repeat_interleave(torch.arange(3), torch.tensor([1, longest, 1]))
    packed = pack(torch.zeros(len(ids)), torch.zeros(len(ids)), query_ids=ids)
    assert len(packed.blocks) == blocks


def test_gradients_find_their_way_back_through_packing():
    scores = torch.arange(6.0, requires_grad=True)
    packed = pack(scores, torch.zeros(6), query_ids=torch.tensor([2, 1, 2, 1, 1, 9]))
    (squares,) = packed.map(lambda lists: (lists.scores.square().sum(1),))
    squares.sum().backward()
    assert torch.equal(scores.grad, 2 * torch.arange(6.0))


def test_masked_and_weightless_slots_hold_zeros():
    packed = pack(
        torch.tensor([[1.0, 2.0, 3.0]]),
        torch.tensor([[1, 1, 1]]),
        mask=torch.tensor([[True, False, True]]),
        weights=torch.tensor([[1.0, 1.0, 0.0]]),
    )
    (block,) = packed.blocks
    assert block.mask.tolist() == [[True, False, False]]
    assert block.scores.tolist() == [[1.0, 0.0, 0.0]]
    assert block.labels.tolist() == [[1, 0, 0]]


def test_whole_numbers_are_scores_but_truth_values_and_complex_numbers_are_not():
    packed = pack(torch.tensor([3, 1]), torch.tensor([1, 0]))
    assert packed.blocks[0].scores.dtype == torch.float64  # whole numbers are kept exactly
    assert packed.blocks[0].scores.tolist() == [[3.0, 1.0]]
    for dtype in (torch.bool, torch.complex64):
        with pytest.raises(TypeError, match=f"scores: expected real numbers, got {dtype}"):
            pack(torch.tensor([3, 1]).to(dtype), torch.tensor([1, 0]))


def test_nan_is_allowed_where_the_mask_is_false():
    packed = pack([[1.0, float("nan")]], [[1, 0]], mask=torch.tensor([[True, False]]))
    assert packed.blocks[0].scores.tolist() == [[1.0, 0.0]]


def test_columns_are_lists_with_their_own_ids():
    packed = pack(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), torch.zeros(3, 2), lists="columns")
    assert packed.ids.tolist() == [0, 1]
    assert packed.blocks[0].scores.tolist() == [[1.0, 3.0, 5.0], [2.0, 4.0, 6.0]]
    with pytest.raises(ValueError, match='query_ids: expected None with lists="columns"'):
        pack(torch.zeros(3, 2), torch.zeros(3, 2), lists="columns", query_ids=torch.zeros(3, dtype=torch.int64))


def test_per_list_values_come_one_per_item_for_ragged_lists():
    packed = pack([0.1, 0.2, 0.3], [0, 1, 0], query_ids=[5, 2, 5])
    assert packed.per_list("group_ids", torch.tensor([9, 8, 9])).tolist() == [8, 9]
    with pytest.raises(ValueError, match="group_ids: expected the same value for all items of a list"):
        packed.per_list("group_ids", torch.tensor([9, 8, 7]))


def test_compact_moves_the_chosen_to_the_front():
    values, chosen = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), torch.tensor([[0, 1, 1], [1, 0, 0]]).bool()
    index, mask = compact(chosen)
    assert (values.gather(1, index) * mask).tolist() == [[2.0, 3.0], [4.0, 0.0]]
    assert mask.tolist() == [[True, True], [True, False]]


@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 4), (2, 70_000)])
def test_count_is_the_sum_along_the_last_axis(shape):
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(0)) < 0.97
    assert torch.equal(count(mask), mask.sum(-1))


@pytest.mark.parametrize(
    "empty, mean, total, each",
    [
        ("skip", 3.0, 6.0, [2.0, float("nan"), 4.0]),
        ("zero", 2.0, 6.0, [2.0, 0.0, 4.0]),
        ("one", 7 / 3, 7.0, [2.0, 1.0, 4.0]),
    ],
)
def test_empty_lists_count_as_the_policy_says(empty, mean, total, each):
    values, valid = torch.tensor([2.0, 9.0, 4.0]), torch.tensor([True, False, True])
    assert float(reduce_lists(values, valid, empty=empty)) == pytest.approx(mean)
    assert float(reduce_lists(values, valid, empty=empty, reduction="sum")) == pytest.approx(total)
    one_by_one = reduce_lists(values, valid, empty=empty, reduction="none")
    torch.testing.assert_close(one_by_one, torch.tensor(each), equal_nan=True)


def test_empty_lists_can_be_refused():
    with pytest.raises(ValueError, match="1 of 2 lists lack"):
        reduce_lists(torch.zeros(2), torch.tensor([True, False]), empty="error")


def test_nothing_left_is_a_zero_attached_to_the_graph():
    values = torch.tensor([5.0], requires_grad=True)
    total = reduce_lists(values, torch.tensor([False]))
    total.backward()
    assert total.item() == 0
    assert values.grad.tolist() == [0.0]


def test_weights_of_lists():
    mean = reduce_lists(torch.tensor([1.0, 4.0]), torch.tensor([True, True]), weights=torch.tensor([2.0, 1.0]))
    assert float(mean) == pytest.approx(2.0)


@pytest.mark.parametrize("shape", [(0,), (0, 5), (3, 0)])
def test_no_items_at_all_pack_into_nothing(shape):
    packed = pack(torch.zeros(shape), torch.zeros(shape))
    assert sum(int(block.mask.sum()) for block in packed.blocks) == 0


def test_lists_lie_in_memory_row_by_row_however_they_came():
    scores = torch.arange(12.0).view(4, 3)
    for other in (scores.T.contiguous().T, scores[:1].expand(4, 3)):
        assert pack(other, torch.ones(4, 3)).blocks[0].scores.is_contiguous()
    assert pack(scores, torch.ones(4, 3), lists="columns").blocks[0].scores.is_contiguous()
