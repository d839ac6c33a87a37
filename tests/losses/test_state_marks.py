"""A state says what it is of: that of another loss, or of one that means something else by it, is refused by name."""

from __future__ import annotations

import copy

import pytest
import torch

pytest.importorskip("safetensors")
pytest.importorskip("pytorch_metric_learning")

from safetensors.torch import load, save

from rankwise.losses import (
    AUPRCLoss,
    EmbeddingLoss,
    LateMemoryLoss,
    ListLoss,
    ListStatistics,
    ListwiseCELoss,
    NDCGLoss,
    SemiVarianceLoss,
    StableAPLoss,
    SumLoss,
    SwitchLoss,
    TopKNDCGLoss,
    create_loss,
)
from rankwise.losses.baselines import GumbelApproxNDCGLoss, LDAMLoss, PairwiseAUROCLoss, SmoothAPLoss, SOAPLoss

STATISTICS = ListStatistics(torch.arange(4).repeat(3 * 15), torch.arange(3).repeat_interleave(60))
SCORES = 4 * torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
LABELS = (torch.arange(8) % 4 == 1).long().repeat(3, 1)
GIVEN = {"query_ids": torch.arange(3), "sample_ids": torch.arange(24).view(3, 8)}
VECTORS, CLASSES = torch.randn(6, 3, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 0, 1, 1, 2, 2])

LOSSES = {
    "AUPRCLoss": AUPRCLoss,
    "StableAPLoss": StableAPLoss,
    "SOAPLoss": SOAPLoss,
    "NDCGLoss": lambda: NDCGLoss(STATISTICS),
    "TopKNDCGLoss": lambda: TopKNDCGLoss(3, STATISTICS),
    "ListwiseCELoss": lambda: ListwiseCELoss(STATISTICS),
    "SmoothAPLoss": SmoothAPLoss,
    "PairwiseAUROCLoss": PairwiseAUROCLoss,
    "SemiVarianceLoss": SemiVarianceLoss,
    "LDAMLoss": lambda: LDAMLoss(link="scale"),
    "GumbelApproxNDCGLoss": GumbelApproxNDCGLoss,
    "SumLoss": lambda: SumLoss(AUPRCLoss(), SemiVarianceLoss()),
    "SwitchLoss": lambda: SwitchLoss(ListwiseCELoss(STATISTICS), NDCGLoss(STATISTICS), after=1),
    "EmbeddingLoss": lambda: EmbeddingLoss(AUPRCLoss()),
    "LateMemoryLoss": lambda: LateMemoryLoss(AUPRCLoss(), memory=6),
    "CrossBatchMemoryLoss": lambda: create_loss("cross-batch-memory", memory=6),
}
# Two of one class that mean different things by the same numbers.
OPTIONS = {
    "link of auprc": (AUPRCLoss, lambda: AUPRCLoss(link="tanh"), 'link.kind="scale"', 'link.kind="tanh"'),
    "link of stable AP": (StableAPLoss, lambda: StableAPLoss(link="none"), 'link.kind="scale"', 'link.kind="none"'),
    "margin of soap": (SOAPLoss, lambda: SOAPLoss(2.0), "surrogate.margin=1.0", "surrogate.margin=2.0"),
    "margin of song": (
        lambda: NDCGLoss(STATISTICS),
        lambda: NDCGLoss(STATISTICS, margin=2.0),
        "surrogate.margin=1.0",
        "surrogate.margin=2.0",
    ),
    "gain of song": (
        lambda: NDCGLoss(STATISTICS),
        lambda: NDCGLoss(STATISTICS, gain="linear"),
        'gain="2^y - 1"',
        'gain="y"',
    ),
    "self weight of solc": (
        lambda: ListwiseCELoss(STATISTICS),
        lambda: ListwiseCELoss(STATISTICS, self_weight="naive"),
        'self_weight="exact"',
        'self_weight="naive"',
    ),
    "k of k-song": (lambda: TopKNDCGLoss(3, STATISTICS), lambda: TopKNDCGLoss(4, STATISTICS), "k=3", "k=4"),
    "similarity": (
        lambda: EmbeddingLoss(AUPRCLoss()),
        lambda: EmbeddingLoss(AUPRCLoss(), similarity="dot"),
        'similarity="cosine"',
        'similarity="dot"',
    ),
    "similarity of a memory": (
        lambda: LateMemoryLoss(AUPRCLoss(), memory=6),
        lambda: LateMemoryLoss(AUPRCLoss(), memory=6, similarity="dot"),
        'similarity="cosine"',
        'similarity="dot"',
    ),
    "part of a sum": (
        lambda: SumLoss(AUPRCLoss(), SemiVarianceLoss()),
        lambda: SumLoss(AUPRCLoss(link="tanh"), SemiVarianceLoss()),
        'link.kind="scale"',
        'link.kind="tanh"',
    ),
}


def used(build):
    loss = build()
    if isinstance(loss, ListLoss):
        loss(SCORES, LABELS, **GIVEN)
    else:
        loss(VECTORS, CLASSES)
    return loss


def same(left, right):
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("other", LOSSES)
@pytest.mark.parametrize("name", LOSSES)
def test_a_state_of_another_loss_is_refused_and_its_own_is_taken(name, other):
    state, target = used(LOSSES[other]).state_dict(), used(LOSSES[name])
    if name == other:
        target = LOSSES[name]()
        target.load_state_dict(state)
        assert same(target.state_dict(), state)
        return
    before = copy.deepcopy(target.state_dict())
    for strict in (True, False):
        with pytest.raises(RuntimeError, match=rf"state: expected that of {name}\(.*, got that of {other}\("):
            target.load_state_dict(state, strict=strict)
    assert same(target.state_dict(), before)


@pytest.mark.parametrize("case", OPTIONS)
def test_a_state_of_other_options_is_refused_by_their_names(case):
    build, other, ours, theirs = OPTIONS[case]
    with pytest.raises(RuntimeError) as raised:
        used(other).load_state_dict(used(build).state_dict())
    expected, got = str(raised.value).split(", got ")
    assert theirs in expected
    assert ours in got


def test_options_that_change_no_meaning_may_change():
    AUPRCLoss(tau=0.5, prior=0.3, update_rate=0.5).load_state_dict(used(AUPRCLoss).state_dict())
    NDCGLoss(STATISTICS, update_rate=0.5).load_state_dict(used(lambda: NDCGLoss(STATISTICS)).state_dict())


@pytest.mark.parametrize("name", LOSSES)
def test_a_state_without_a_mark_loads_with_a_warning(name):
    state = used(LOSSES[name]).state_dict()
    old = {key: value for key, value in state.items() if not key.endswith("_extra_state")}
    target = LOSSES[name]()
    if any(not key.endswith("_extra_state") for key in state):
        with pytest.warns(UserWarning, match="the loaded state does not say what it is of"):
            target.load_state_dict(old)
    else:
        target.load_state_dict(old)
    assert same(target.state_dict(), state)


@pytest.mark.parametrize("name", LOSSES)
def test_marks_survive_files(name, tmp_path):
    state = used(LOSSES[name]).state_dict()
    torch.save(state, tmp_path / "state.pt")
    for read in (torch.load(tmp_path / "state.pt", weights_only=True), load(save(state))):
        target = LOSSES[name]()
        target.load_state_dict(read)
        assert same(target.state_dict(), state)


def test_losses_without_a_state_have_an_empty_one():
    assert create_loss("cross-entropy").state_dict() == {}
    create_loss("cross-entropy").load_state_dict({})


def test_a_mark_that_is_none_is_refused():
    state = used(AUPRCLoss).state_dict()
    state["_extra_state"] = torch.tensor([1, 2, 3], dtype=torch.uint8)
    with pytest.raises(RuntimeError, match=r"state: expected that of AUPRCLoss.*, got a mark that cannot be read"):
        AUPRCLoss().load_state_dict(state)
