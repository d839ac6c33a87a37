"""Orders and ties: those of torch's stable sort, for every dtype, with masks and without anything to sort."""

from __future__ import annotations

from threading import Thread

import pytest
import torch

from benchmarks.device.pretend import PretendDevice
from rankwise.sorting import Descending, argsort, sort_values


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(0,), (1,), (7,), (3, 0), (0, 4), (1, 1), (5, 30)])
def test_order_and_ties_are_those_of_a_stable_sort(shape, dtype):
    random = torch.Generator().manual_seed(0)
    values = torch.randn(shape, generator=random).mul(2).round().to(dtype)  # many ties, 0.0 and -0.0 among them
    assert torch.equal(argsort(values), torch.argsort(values, dim=-1, stable=True))
    falling = Descending(values)
    order = torch.argsort(values, dim=-1, stable=True, descending=True)
    assert torch.equal(falling.indices(), order)
    assert torch.equal(falling.indices(3), order[..., :3])
    ordered = values.gather(-1, order)
    assert torch.equal(falling.joins, ordered[..., 1:] == ordered[..., :-1])


def test_what_is_masked_comes_last():
    values, mask = torch.tensor([[1.0, 5.0, 3.0, 3.0]]), torch.tensor([[True, False, True, True]])
    assert argsort(values, mask).tolist() == [[0, 2, 3, 1]]
    falling = Descending(values, mask)
    assert falling.indices().tolist() == [[2, 3, 0, 1]]
    assert falling.joins[:, :2].tolist() == [[True, False]]


def test_what_is_sorted_is_left_as_it_came():
    values = torch.tensor([[0.5, -0.0, -2.0]])
    before = values.clone()
    argsort(values)
    Descending(values)
    sort_values(values)
    assert torch.equal(values, before)


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_many_rows_are_sorted_by_several_threads(two_threads, monkeypatch):
    started, joined = [], []
    monkeypatch.setattr(Thread, "start", lambda self, start=Thread.start: (started.append(self), start(self)))
    monkeypatch.setattr(Thread, "join", lambda self, join=Thread.join: (joined.append(self), join(self)))
    random = torch.Generator().manual_seed(0)
    values = torch.randn(3, 1_400_000, generator=random)
    wanted = values.sort(dim=1).values
    assert torch.equal(sort_values(values), wanted)
    assert torch.equal(values.gather(1, argsort(values)), wanted)
    assert torch.equal(sort_values(values, in_place=True), wanted)
    assert torch.equal(values, wanted)
    assert len(started) == 3
    assert joined == started


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_an_accelerator_sorts_equally(dtype):
    values = torch.randint(-4, 5, (3, 20), generator=torch.Generator().manual_seed(0)).to(dtype)
    mask = torch.rand(3, 20, generator=torch.Generator().manual_seed(1)) < 0.8
    falling = Descending(values, mask)
    with PretendDevice() as device:
        there, kept = device.put(values), device.put(mask)
        assert sort_values(there).tolist() == sort_values(values).tolist()
        assert argsort(there, kept).tolist() == argsort(values, mask).tolist()
        assert Descending(there, kept).indices().tolist() == falling.indices().tolist()


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float16])
def test_values_of_every_dtype_are_sorted(dtype):
    values = torch.tensor([[3, -1, 2]]).to(dtype)
    assert torch.equal(sort_values(values), torch.tensor([[-1, 2, 3]]).to(dtype))
