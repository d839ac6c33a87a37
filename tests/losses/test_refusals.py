"""A batch that a loss refuses leaves its state as it was."""

from __future__ import annotations

import copy

import pytest
import torch

from rankwise.losses import (
    LOSSES,
    AUPRCLoss,
    EmbeddingLoss,
    LateMemoryLoss,
    ListStatistics,
    ListwiseCELoss,
    NDCGLoss,
    PriorSchedule,
    SemiVarianceLoss,
    StableAPLoss,
    SumLoss,
    SwitchLoss,
    TopKNDCGLoss,
)

STATISTICS = ListStatistics(torch.arange(4).repeat(3 * 15), torch.arange(3).repeat_interleave(60))
SCORES = 4 * torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
LABELS = (torch.arange(8) % 4 == 1).long().repeat(3, 1)
GIVEN = {"query_ids": torch.arange(3), "sample_ids": torch.arange(24).view(3, 8)}
BUILDS = {record.name: record.build for record in LOSSES if record.inputs == "scores"} | {
    "schedule": lambda empty: AUPRCLoss(PriorSchedule(0.5, 0.1, steps=5), empty=empty),
    "stable schedule": lambda empty: StableAPLoss("dataset", prior=PriorSchedule(0.5, 0.1, steps=5), empty=empty),
    "sampled song": lambda empty: NDCGLoss(STATISTICS, empty=empty),
    "sampled k-song": lambda empty: TopKNDCGLoss(4, STATISTICS, empty=empty),
    "sampled solc": lambda empty: ListwiseCELoss(STATISTICS, empty=empty),
    "switch": lambda empty: SwitchLoss(NDCGLoss(STATISTICS, empty=empty), ListwiseCELoss(STATISTICS), after=3),
    "combined": lambda empty: SumLoss(AUPRCLoss(empty=empty), SemiVarianceLoss()),
}


def changed(loss, before):
    return [name for name, tensor in loss.state_dict().items() if not torch.equal(tensor, before[name])]


@pytest.mark.parametrize("name", BUILDS)
def test_a_list_that_lacks_items_is_refused_before_the_state_is_written(name):
    loss, plain = BUILDS[name](empty="error"), BUILDS[name](empty="skip")
    for each in (loss, plain):
        each(SCORES, LABELS, **GIVEN)
    assert not changed(loss, plain.state_dict())
    before = copy.deepcopy(loss.state_dict())
    one_class = LABELS.clone()
    one_class[1] = 0
    if plain.eval()(SCORES, one_class, **GIVEN) is not None and not plain.skipped:
        return  # defined on such lists
    with pytest.raises(ValueError, match='1 of 3 lists lack the items the quantity needs, and empty="error"'):
        loss(SCORES.flip(1), one_class, **GIVEN)
    assert not changed(loss, before)
    assert loss.training
    assert all(module.training for module in loss.modules())
    # And it goes on as if the batch had never come.
    plain.train()
    leaves = [SCORES.clone().requires_grad_() for _ in range(2)]
    gradients = [
        torch.autograd.grad(each(leaf, LABELS, **GIVEN), leaf)[0]
        for each, leaf in zip((loss, plain), leaves, strict=True)
    ]
    assert torch.equal(*gradients)


def test_parts_in_eval_mode_stay_there():
    loss = AUPRCLoss(empty="error")
    loss.link.eval()
    loss(SCORES, LABELS, **GIVEN)
    assert not loss.link.training
    assert loss.tracker.training


def test_retrieval_refuses_before_the_state_is_written():
    loss = EmbeddingLoss(AUPRCLoss(empty="error"))
    vectors = torch.randn(6, 3, generator=torch.Generator().manual_seed(1))
    loss(vectors, torch.tensor([0, 0, 1, 1, 2, 2]))
    before = copy.deepcopy(loss.state_dict())
    with pytest.raises(ValueError, match="2 of 6 lists lack"):
        loss(vectors.flip(0), torch.tensor([0, 0, 1, 1, 2, 3]))
    assert not changed(loss, before)


@pytest.mark.parametrize(
    "batch, message",
    [
        (torch.eye(8), "memory: expected at least the 8 vectors of a batch, got 6"),
        (torch.eye(6)[:, :3], "embeddings: expected 4 numbers each, as in memory, got 3"),
    ],
)
def test_a_batch_that_a_memory_cannot_take_is_refused_before_the_state_is_written(batch, message):
    loss = LateMemoryLoss(AUPRCLoss(), memory=6)
    loss(torch.eye(4), torch.tensor([0, 0, 1, 1]))
    before = copy.deepcopy(loss.state_dict())
    with pytest.raises(ValueError, match=message):
        loss(batch, torch.arange(len(batch)) // 2)
    assert not changed(loss, before)


def test_eval_mode_takes_a_batch_larger_than_the_memory():
    loss = LateMemoryLoss(AUPRCLoss(), memory=4).eval()
    assert bool(torch.isfinite(loss(torch.eye(8), torch.arange(8) // 2)))
