"""Orders and ties: those of torch's stable sort, for every dtype, with masks and without anything to sort."""

from __future__ import annotations

import pytest
import torch

from rankwise.sorting import argsort, descending_with_ties


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(0,), (1,), (7,), (3, 0), (0, 4), (1, 1), (5, 30)])
def test_order_and_ties_are_those_of_a_stable_sort(shape, dtype):
    random = torch.Generator().manual_seed(0)
    values = torch.randn(shape, generator=random).mul(2).round().to(dtype)  # many ties, 0.0 and -0.0 among them
    assert torch.equal(argsort(values), torch.argsort(values, dim=-1, stable=True))
    order, joins = descending_with_ties(values)
    assert torch.equal(order, torch.argsort(values, dim=-1, stable=True, descending=True))
    falling = values.gather(-1, order)
    assert torch.equal(joins, falling[..., 1:] == falling[..., :-1])


def test_what_is_masked_comes_last():
    values, mask = torch.tensor([[1.0, 5.0, 3.0, 3.0]]), torch.tensor([[True, False, True, True]])
    assert argsort(values, mask).tolist() == [[0, 2, 3, 1]]
    order, joins = descending_with_ties(values, mask)
    assert order.tolist() == [[2, 3, 0, 1]]
    assert joins[:, :2].tolist() == [[True, False]]


def test_what_is_sorted_is_left_as_it_came():
    values = torch.tensor([[0.5, -0.0, -2.0]])
    before = values.clone()
    argsort(values)
    descending_with_ties(values)
    assert torch.equal(values, before)
