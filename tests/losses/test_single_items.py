"""Lists of one item each, the usual shape after `BCEWithLogitsLoss`: refused, or learned from, but never silent."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch

from rankwise.losses import (
    LOSSES,
    AUPRCLoss,
    BinaryCrossEntropyLoss,
    EmbeddingLoss,
    NDCGLoss,
    SemiVarianceLoss,
    SumLoss,
)

SCORES = torch.randn(64, 1, generator=torch.Generator().manual_seed(0))
LABELS = (torch.arange(64) % 4 == 1).long()[:, None]
# They learn from every item by itself.
POINTWISE = {
    "balanced-cross-entropy",
    "class-balanced-cross-entropy",
    "cross-entropy",
    "distributional-ranking",
    "focal",
    "ldam",
    "squared-error",
}
ON_SCORES = [record.name for record in LOSSES if record.inputs == "scores"]


@pytest.mark.parametrize("name", ON_SCORES)
@pytest.mark.parametrize("training", [True, False])
def test_lists_of_one_item_are_refused_unless_the_loss_learns_from_single_items(name, training):
    loss, scores = LOSSES.get(name).create().train(training), SCORES.clone().requires_grad_()
    if name in POINTWISE:
        loss(scores, LABELS).backward()
        assert scores.grad.any()
        return
    before = copy.deepcopy(loss.state_dict())
    with pytest.raises(ValueError, match=r"scores: expected lists of several items, got shape \(64, 1\)") as refused:
        loss(scores, LABELS)
    assert "scores.flatten()" in str(refused.value)
    assert "query_ids=" in str(refused.value)
    assert type(loss).__name__ in str(refused.value)
    assert all(torch.equal(loss.state_dict()[key], value) for key, value in before.items())
    flat = scores.detach().flatten().requires_grad_()
    loss.train()(flat, LABELS.flatten()).backward()
    assert flat.grad.any()


def test_ids_of_items_beside_lists_of_one_item_are_refused_too():
    with pytest.raises(ValueError, match="expected lists of several items"):
        AUPRCLoss()(SCORES, LABELS, query_ids=torch.arange(64) // 8)


def test_combined_losses_are_refused_alike():
    with pytest.raises(ValueError, match="expected lists of several items"):
        SumLoss(AUPRCLoss(), SemiVarianceLoss())(SCORES, LABELS)
    SumLoss(BinaryCrossEntropyLoss(), BinaryCrossEntropyLoss())(SCORES, LABELS)


@pytest.mark.parametrize(
    "scores, given",
    [
        (SCORES, {"mask": torch.ones(64, 1, dtype=torch.bool)}),  # padded lists that happen to hold one item each
        (SCORES.flatten(), {"query_ids": torch.arange(64)}),  # ragged ones
        (SCORES[:1], {}),  # one list
    ],
)
def test_short_lists_that_a_batch_may_happen_to_hold_cost_nothing(scores, given):
    loss = AUPRCLoss()
    assert loss(scores, LABELS[: len(scores)].view(scores.shape), **given) == 0
    assert loss.skipped == len(scores)


def test_a_last_batch_of_one_row_of_many_classes_costs_nothing():
    loss = AUPRCLoss(lists="columns")
    assert loss(SCORES.T, LABELS.T) == 0
    assert loss.skipped == 64


def batches(loss, labels, count):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(count):
            loss(SCORES.flatten(), labels, query_ids=torch.arange(64) // 4)
    return [str(warning.message) for warning in caught]


def test_ten_batches_in_a_row_without_a_list_to_learn_from_warn_once():
    loss, nothing = NDCGLoss(), torch.zeros(64, dtype=torch.int64)
    assert batches(loss, nothing, 9) == []
    assert batches(loss, LABELS.flatten(), 1) == []
    assert batches(loss, nothing, 9) == []
    (said,) = batches(loss, nothing, 30)
    assert "NDCGLoss left out every list of the last 10 batches" in said
    assert batches(NDCGLoss().eval(), nothing, 30) == []


def test_embeddings_of_one_class_warn_too():
    loss, vectors = EmbeddingLoss(AUPRCLoss()), torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    with pytest.warns(UserWarning, match="AUPRCLoss left out every list of the last 10 batches"):
        [loss(vectors, torch.zeros(8, dtype=torch.int64)) for _ in range(10)]
