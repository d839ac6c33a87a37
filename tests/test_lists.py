"""The one shape: whatever comes in, each list keeps its own items, and only those count."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.device.pretend import PretendDevice
from rankwise import checks
from rankwise.lists import (
    ItemMask,
    compact,
    count,
    few_masked,
    find_chosen,
    pack,
    put_back,
    reduce_lists,
    split_sides,
    surely_all,
    take,
)

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


def test_lists_cannot_be_changed_as_what_was_derived_from_them_is_kept():
    packed = pack(torch.tensor([[2.0, 1.0]]), torch.tensor([[1, 0]]))
    for each in (packed, packed.blocks[0], split_sides(packed.blocks[0])):
        for field in dataclasses.fields(each):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(each, field.name, None)


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


def test_one_list_takes_one_value_with_or_without_an_axis():
    packed = pack([0.1, 0.2], [0, 1])
    assert packed.per_list("group_ids", 5).tolist() == [5]
    assert packed.per_list("group_ids", [5]).tolist() == [5]
    with pytest.raises(ValueError, match="group_ids: expected the shape of one value per list"):
        packed.per_list("group_ids", [5, 6])


def test_arguments_after_the_labels_have_to_be_named():
    with pytest.raises(TypeError, match="positional"):
        pack([0.1, 0.2], [0, 1], [3, 3])


@pytest.mark.parametrize("float64, bits", [(True, 53), (False, 24)])
def test_whole_numbers_are_taken_as_long_as_floats_hold_them_exactly(float64, bits, monkeypatch):
    monkeypatch.setattr(checks, "_WITHOUT_FLOAT64", set() if float64 else {"cpu"})
    for sign in (1, -1):
        largest = sign * (2**bits - 1)
        assert int(pack(torch.tensor([largest]), [0]).blocks[0].scores) == largest
        with pytest.raises(ValueError, match=rf"whole numbers below 2\^{bits} in size"):
            pack(torch.tensor([largest + sign]), [0])


def test_an_accelerator_finds_the_items_of_the_cpu():
    chosen = torch.tensor([[True, False, True], [False, False, True], [False, False, False]])
    index, mask = find_chosen(chosen)
    assert index.shape == mask.shape == (3, 2)  # no wider than the longest list asks for
    with PretendDevice() as device:
        there, positions = device.put(chosen), device.put(torch.arange(3).expand(3, 3))
        device.reset()
        wide_index, wide_mask = find_chosen(there)
        items = take(positions, wide_index)
        assert put_back(items, wide_index, 3) is items
        assert not device.stops
        assert not device.operations  # not even a kernel
        for rows, columns in ((index, mask), (items.cpu(), wide_mask.cpu())):
            assert [row[kept].tolist() for row, kept in zip(rows, columns, strict=True)] == [[0, 2], [2], []]
        assert count(there).tolist() == [2, 1, 0]
        assert not surely_all(there)
        assert [side.tolist() for side in compact(there)] == [side.tolist() for side in (index, mask)]


def test_few_are_at_most_one_of_16_in_a_large_block():
    assert few_masked(2**13, 2**17)
    assert not few_masked(2**13 + 1, 2**17)
    assert not few_masked(0, 2**17 - 1)


@pytest.mark.parametrize("masked", [0, 3, 9000])
def test_a_mask_of_items_hides_the_same_ones_however_it_was_given(masked):
    """Few are hidden in the differences of each chunk of lists, many are written before."""
    shape = (4, 2**15)
    index = torch.randperm(4 * 2**15, generator=torch.Generator().manual_seed(masked))[:masked].sort().values
    kept = torch.ones(shape, dtype=torch.bool)
    kept.view(-1)[index] = False
    others = torch.arange(4.0 * 2**15).view(shape)
    anchors = torch.tensor([[1.0, 2.0]]).expand(4, 2)
    expected = anchors[:, :, None] - others.masked_fill(~kept, -torch.inf)[:, None]
    for mask in (ItemMask(kept), ItemMask.at(index.numpy(), shape)):
        assert torch.equal(mask.mask, kept)
        filled = mask.fill(others)
        for lists in (slice(0, 1), slice(1, 4)):
            found = mask.hide(anchors[lists, :, None] - filled[lists, None], lists)
            assert torch.equal(found, expected[lists])


def test_no_mask_hides_nothing():
    none = ItemMask(None)
    assert none.mask is None
    assert none.fill(torch.ones(1, 2)).tolist() == [[1, 1]]
    assert none.hide(torch.zeros(1, 1, 2), slice(0, 1)).tolist() == [[[0, 0]]]
