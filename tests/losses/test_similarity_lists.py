"""Lists known by the places of their few relevant items: in nothing different from lists of labels and masks."""

from __future__ import annotations

import pytest
import torch

from rankwise import lists as lists_module
from rankwise.lists import Lists
from rankwise.losses import LOSSES, EmbeddingLoss, LateMemoryLoss
from rankwise.losses import similarity as module
from rankwise.losses.similarity import FewRelevant, similarity_lists

OVER_LISTS = [record for record in LOSSES if record.inputs == "scores" and record.labels == "binary"]


@pytest.fixture(autouse=True)
def even_small_batches(monkeypatch):
    monkeypatch.setattr(lists_module, "_MANY", 1)


def batch(size=96, seed=0):
    """Classes of one to five items, in no order."""
    generator = torch.Generator().manual_seed(seed)
    classes = torch.repeat_interleave(torch.arange(90), torch.randint(1, 6, (90,), generator=generator))
    labels = 7 * classes[torch.randperm(len(classes), generator=generator)][:size] - 50
    return torch.randn(len(labels), 8, generator=generator, dtype=torch.float64), labels


def without_places(monkeypatch):
    monkeypatch.setattr(module, "few_masked", lambda *_: False)


@pytest.mark.parametrize("own, more", [(True, 0), (True, 120), (False, 120)])
def test_they_are_the_lists_of_labels_and_masks(monkeypatch, own, more):
    vectors, labels = batch(96 + more)
    queries, classes = vectors[:96], labels[:96]
    references, others = (vectors, labels) if own else (vectors[96:], labels[96:])
    few = similarity_lists(queries, classes, references, others, None, None, own=own, cosines=False)
    without_places(monkeypatch)
    plain = similarity_lists(queries, classes, references, others, None, None, own=own, cosines=False)
    assert type(few) is FewRelevant
    assert type(plain) is Lists
    for name in ("size", "scores", "labels", "mask", "positions", "relevant"):
        assert torch.equal(getattr(few, name), getattr(plain, name)), name
    assert few.full == plain.full
    places, there = few.positives
    wanted, wanted_there = plain.positives
    assert torch.equal(there, wanted_there)
    assert torch.equal(places[there], wanted[wanted_there])
    assert torch.equal(few.negatives.mask, plain.mask & ~plain.labels)


@pytest.mark.parametrize("record", OVER_LISTS, ids=lambda record: record.name)
def test_every_loss_has_the_same_value_and_gradient(monkeypatch, record):
    vectors, labels = batch()
    found = []
    for _ in range(2):
        loss, leaf = EmbeddingLoss(record.create()), vectors.clone().requires_grad_()
        values = []
        for _ in range(2):  # what is remembered of the first is used in the second
            value = loss(leaf, labels)
            values.append(value.detach())
        found.append((torch.stack(values), *torch.autograd.grad(value, leaf)))
        without_places(monkeypatch)
    for few, plain in zip(*found, strict=True):
        torch.testing.assert_close(few, plain, rtol=1e-12, atol=1e-14)


def test_scores_of_any_size_are_rescaled(monkeypatch):
    """Lists that were changed on the way still know what is relevant."""
    vectors, labels = batch()
    for name in ("soprc", "smooth-ap"):
        found = []
        for few in (True, False):
            with monkeypatch.context() as patch:
                if not few:
                    without_places(patch)
                loss = EmbeddingLoss(LOSSES.get(name).create(), similarity="dot")
                leaf = (30 * vectors).requires_grad_()
                found.append((loss(leaf, labels), *torch.autograd.grad(loss(leaf, labels), leaf)))
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)


def test_a_memory_beside_the_batch(monkeypatch):
    found = []
    for few in (True, False):
        with monkeypatch.context() as patch:
            if not few:
                without_places(patch)
            loss = LateMemoryLoss(LOSSES.get("soprc").create(), memory=150)
            for seed in range(3):
                vectors, labels = batch(seed=seed)
                value = loss(vectors.requires_grad_(), labels)
            found.append((value, *torch.autograd.grad(value, vectors)))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)


def test_nothing_to_rank_is_a_zero():
    vectors, labels = batch()
    alone = EmbeddingLoss(LOSSES.get("soprc").create())
    assert alone(vectors, torch.arange(len(labels))).item() == 0
    assert alone.skipped == len(labels)


def test_one_class_is_not_few():
    vectors, _ = batch()
    lists = similarity_lists(
        vectors, torch.zeros(96, dtype=torch.int64), vectors, torch.zeros(96), None, None, own=True, cosines=False
    )
    assert type(lists) is Lists
