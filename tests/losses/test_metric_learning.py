"""Losses of pytorch-metric-learning: the same values, state that is saved, trained in the same problem."""

from __future__ import annotations

import copy
import sys

import pytest
import torch

pytest.importorskip("pytorch_metric_learning")
pytest.importorskip("lightning_fabric")

from pytorch_metric_learning import losses as peers

from rankwise.data import TableSchema
from rankwise.losses import LOSSES, create_loss
from rankwise.losses.baselines.metric_learning import LateMemoryPairs
from rankwise.problems import Tabular
from workers.fitting import DIGITS, digits, fit_with

OVER_EMBEDDINGS = [record.name for record in LOSSES if record.inputs == "embeddings"]


def batches(count, rows=10):
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        yield torch.randn(rows, 4, generator=generator), torch.randint(0, 3, (rows,), generator=generator)


def run(loss, embeddings, labels):
    leaf = embeddings.clone().requires_grad_()
    value = loss(leaf, labels)
    return value.detach(), torch.autograd.grad(value, leaf)[0]


@pytest.mark.parametrize(
    "name, peer",
    [
        ("contrastive", peers.ContrastiveLoss),
        ("triplet", peers.TripletMarginLoss),
        ("multi-similarity", peers.MultiSimilarityLoss),
        ("fast-ap-pairs", peers.FastAPLoss),
        ("cross-batch-memory", lambda: peers.CrossBatchMemory(peers.ContrastiveLoss(), 4, memory_size=1024)),
    ],
)
def test_default_is_that_librarys(name, peer):
    ours, theirs = create_loss(name), peer()
    for batch in batches(3):
        torch.testing.assert_close(run(ours, *batch), run(theirs, *batch))


@pytest.mark.parametrize("memory", [10, 13, 20, 25])
def test_memory_equals_that_librarys_before_and_after_it_is_full(memory):
    ours = create_loss("cross-batch-memory", memory=memory)
    theirs = peers.CrossBatchMemory(peers.ContrastiveLoss(), 4, memory_size=memory)
    for batch in batches(6):
        torch.testing.assert_close(run(ours, *batch), run(theirs, *batch))


@pytest.mark.parametrize("name", OVER_EMBEDDINGS)
def test_saved_and_loaded_goes_on_bit_for_bit(name):
    every = list(batches(6))
    for cut in (1, 3):
        straight, first = create_loss(name), create_loss(name)
        for batch in every[:cut]:
            run(straight, *batch)
            run(first, *batch)
        resumed = create_loss(name)
        resumed.load_state_dict(copy.deepcopy(first.state_dict()))
        for batch in every[cut:]:
            for left, right in zip(run(straight, *batch), run(resumed, *batch), strict=True):
                assert torch.equal(left, right)


def test_that_librarys_own_memory_does_not_survive_saving():
    """Why the memory is ours: theirs saves its vectors, but neither how many there are nor where the next one goes."""
    (first, second) = batches(2)
    straight = peers.CrossBatchMemory(peers.ContrastiveLoss(), 4, memory_size=40)
    straight(*first)
    resumed = peers.CrossBatchMemory(peers.ContrastiveLoss(), 4, memory_size=40)
    resumed.load_state_dict(copy.deepcopy(straight.state_dict()))
    assert not torch.allclose(run(straight, *second)[0], run(resumed, *second)[0])


def test_eval_mode_reads_the_memory_and_writes_nothing():
    loss = create_loss("cross-batch-memory", memory=15)
    (first, second) = batches(2)
    loss(*first)
    before = copy.deepcopy(loss.state_dict())
    value = loss.eval()(*second)
    assert all(torch.equal(before[name], now) for name, now in loss.state_dict().items())
    assert float(value) != float(create_loss("cross-batch-memory", memory=15)(*second))


@pytest.mark.parametrize("name", ["contrastive", "triplet", "multi-similarity"])
def test_late_memory_is_the_mean_of_batch_and_longer_lists(name):
    """By hand: a vector is compared with batch and memory, never with itself; before the given step with the batch."""
    peer, first, second, third = create_loss(name).loss, *batches(3)
    loss = LateMemoryPairs(peer, memory=20, after=2)
    for batch in (first, second):
        torch.testing.assert_close(run(loss, *batch)[0], peer(*batch))
    vectors, classes = (torch.cat(parts) for parts in zip(third, first, second, strict=True))
    same = third[1][:, None] == classes
    apart = torch.arange(len(classes)) != torch.arange(len(third[1]))[:, None]
    pairs = *(same & apart).nonzero().T, *(~same).nonzero().T
    longer = peer(third[0], third[1], tuple(pairs), vectors, classes)
    torch.testing.assert_close(run(loss, *third)[0], (peer(*third) + longer) / 2)


def test_late_memory_of_pairs_is_saved_and_not_written_in_eval_mode():
    every = list(batches(4))
    straight, first = (LateMemoryPairs(create_loss("triplet").loss, memory=20, after=1) for _ in range(2))
    for batch in every[:2]:
        run(straight, *batch)
        run(first, *batch)
    resumed = LateMemoryPairs(create_loss("triplet").loss, memory=20, after=1)
    resumed.load_state_dict(copy.deepcopy(first.state_dict()))
    resumed.eval()(*every[3])
    resumed.train()
    for batch in every[2:]:
        for left, right in zip(run(straight, *batch), run(resumed, *batch), strict=True):
            assert torch.equal(left, right)


@pytest.mark.parametrize("name", OVER_EMBEDDINGS)
def test_a_batch_without_pairs_costs_nothing_and_keeps_the_graph(name):
    value, gradient = run(create_loss(name), torch.eye(3), torch.tensor([5, 5, 5]))
    assert bool(torch.isfinite(value))
    assert bool(torch.isfinite(gradient).all())


@pytest.mark.parametrize("name", OVER_EMBEDDINGS)
def test_half_precision_in_and_out(name):
    embeddings, labels = next(batches(1))
    value, gradient = run(create_loss(name), embeddings.half(), labels)
    assert gradient.dtype == torch.float16
    torch.testing.assert_close(value, run(create_loss(name), embeddings.half().float(), labels)[0])


@pytest.mark.parametrize("name", OVER_EMBEDDINGS)
def test_trains_in_the_retrieval_problem(name):
    run = fit_with(digits(name), DIGITS, steps=60, every=60, schedule={"name": "constant"})
    before, after = run.history.curve("map")
    assert after > before + 0.1


def test_a_table_is_not_for_losses_over_embeddings():
    with pytest.raises(ValueError, match="loss: expected one over scores, got 'triplet', which is over embeddings"):
        Tabular(loss="triplet").build_loss(TableSchema.of(DIGITS.train), DIGITS.train, steps=1)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: create_loss("cross-batch-memory", memory=0), "memory: expected a whole number of at least 1, got 0"),
        (
            lambda: create_loss("cross-batch-memory", memory=3)(torch.eye(4), torch.arange(4)),
            "embeddings: expected at most memory=3 rows, got 4",
        ),
        (lambda: create_loss("triplet")(torch.eye(4), torch.arange(3)), "labels: expected the shape of one class"),
        (lambda: create_loss("triplet")(torch.eye(4) / 0, torch.arange(4)), "embeddings: expected finite"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_vectors_of_another_length_are_refused_and_leave_the_memory_alone():
    loss = create_loss("cross-batch-memory")
    loss(torch.eye(4), torch.arange(4))
    with pytest.raises(ValueError, match="embeddings: expected 4 numbers each, as in memory, got 3"):
        loss(torch.eye(3), torch.arange(3))
    assert len(loss.classes) == 4


def test_without_that_library_the_way_to_get_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pytorch_metric_learning", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install \"rankwise\[peers\]\""):
        create_loss("contrastive")
