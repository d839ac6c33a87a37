"""The last batches: whole ones, the newest, saved and loaded whatever their number."""

from __future__ import annotations

import pytest
import torch

from rankwise.estimators import RecentRows


def batch(number, rows=3):
    return torch.full((rows, 2), float(number)), torch.full((rows,), number)


def test_whole_batches_are_dropped_and_never_more_than_needed():
    recent = RecentRows(7)
    for number in range(5):
        recent.add(*batch(number))
        assert recent.classes.unique().tolist() == list(range(max(0, number - 1), number + 1))
        assert torch.equal(recent.vectors[:, 0], recent.classes.float())
    recent.add(*batch(9, rows=7))
    assert recent.classes.tolist() == [9] * 7


def test_what_is_remembered_is_a_copy_without_a_graph():
    recent = RecentRows(9)
    vectors = torch.ones(3, 2, requires_grad=True)
    recent.add(vectors, torch.tensor([1, 1, 2]))
    with torch.no_grad():
        vectors.zero_()
    assert float(recent.vectors.sum()) == 6
    assert not recent.vectors.requires_grad


def test_a_loaded_memory_goes_on_as_the_saved_one():
    saved = RecentRows(7)
    for number in range(4):
        saved.add(*batch(number))
    loaded = RecentRows(7)
    loaded.load_state_dict(saved.state_dict())
    for recent in (saved, loaded):
        recent.add(*batch(4))
    for name, value in saved.state_dict().items():
        assert torch.equal(value, loaded.state_dict()[name]), name


def test_bad_input_changes_nothing():
    recent = RecentRows(4)
    recent.add(*batch(1))
    with pytest.raises(ValueError, match="memory: expected at least the 5 vectors of a batch, got 4"):
        recent.add(*batch(2, rows=5))
    with pytest.raises(ValueError, match="embeddings: expected 2 numbers each, as in memory, got 3"):
        recent.add(torch.ones(1, 3), torch.tensor([1]))
    assert recent.classes.tolist() == [1, 1, 1]
