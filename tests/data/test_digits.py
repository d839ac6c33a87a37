"""The cuts of the bundled digits."""

from __future__ import annotations

import pytest
import torch

from rankwise.data import Part, Split, cut_by_class, load_digit_retrieval, load_eights


@pytest.mark.parametrize("load", [load_eights, load_digit_retrieval])
def test_every_image_is_in_exactly_one_part(load):
    split = load(seed=3)
    labels = torch.cat([split.part(name).labels for name in ("train", "validation", "test")])
    assert len(labels) == 1797
    other = load(seed=4)
    # The same images, whatever the seed: as a multiset the rows agree.
    rows = [
        torch.cat([each.part(name).features for name in ("train", "validation", "test")]) for each in (split, other)
    ]
    assert torch.equal(*(torch.tensor(sorted(row.tolist())) for row in rows))


def test_twelve_eights_among_612():
    train = load_eights(seed=0).train
    assert (int(train.labels.sum()), len(train)) == (12, 612)


def test_twenty_images_of_every_digit():
    split = load_digit_retrieval(seed=0)
    assert torch.bincount(split.train.labels).tolist() == [20] * 10
    assert torch.bincount(split.validation.labels).tolist() == [20] * 10


def test_the_seed_decides_the_cut():
    assert torch.equal(load_eights(seed=1).train.features, load_eights(seed=1).train.features)
    assert not torch.equal(load_eights(seed=1).train.features, load_eights(seed=2).train.features)


def test_a_class_too_small_for_a_test_part_is_refused():
    with pytest.raises(ValueError, match=r"more than 2 rows of class 1 .* got 2"):
        cut_by_class(torch.rand(5, 1), torch.tensor([0, 0, 0, 1, 1]), train=[1, 1], validation=[1, 1], seed=0)


def test_wrong_parts_are_refused():
    part = Part(torch.rand(2, 1), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="part: unknown word 'tests'; did you mean 'test'"):
        Split(part, part, part).part("tests")
    with pytest.raises(ValueError, match=r"each of the 2 rows, got \(3,\)"):
        Part(torch.rand(2, 1), torch.tensor([0, 1, 1]))
