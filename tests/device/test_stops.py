"""How often the host waits for an accelerator in a step: once, for all that is checked, unless ids are new."""

from __future__ import annotations

import pytest
import torch

from benchmarks.device.cases import CASES, one_list, sampled_lists, vectors
from benchmarks.device.pretend import DEVICE, PretendDevice
from rankwise.losses import AUPRCLoss, EmbeddingLoss, LateMemoryLoss, NDCGLoss, StableAPLoss, create_loss


def step(pretend, loss, batch):
    """Return the stops of a forward and a backward pass."""
    (scores, *others), options = batch
    scores, *others = map(pretend.put, (scores, *others))
    options = {name: pretend.put(option) for name, option in options.items()}
    pretend.reset()
    loss(scores.requires_grad_(), *others, **options).backward()
    return sum(pretend.stops.values()), dict(pretend.stops)


@pytest.mark.parametrize("name", CASES)
def test_the_host_waits_once_a_step(name):
    build, batch = CASES[name]
    with PretendDevice() as pretend:
        loss = build().to(DEVICE)
        for _ in range(3):
            stops, where = step(pretend, loss, batch(0))
        assert stops <= 1, where


@pytest.mark.parametrize("name", [name for name, (_, batch) in CASES.items() if batch is sampled_lists])
def test_new_ids_cost_one_more_stop(name):
    build, batch = CASES[name]
    with PretendDevice() as pretend:
        loss = build().to(DEVICE)
        for seed in range(4):
            stops, where = step(pretend, loss, batch(seed))
            assert stops <= 2, where


def test_a_memory_adds_no_stop():
    with PretendDevice() as pretend:
        loss = LateMemoryLoss(AUPRCLoss(), memory=100, after=2).to(DEVICE)
        for seed in range(4):
            stops, where = step(pretend, loss, vectors(seed, size=48))
        assert stops <= 1, where


BAD = {
    "scores": ((torch.tensor([0.1, float("nan"), 0.3, 0.2]), torch.tensor([1, 0, 1, 0])), "scores: expected finite"),
    "labels": ((torch.tensor([0.1, 0.2, 0.3, 0.2]), torch.tensor([1, 0, 3, 0])), "labels: expected 0 or 1, got 3"),
}


@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("build", [AUPRCLoss, StableAPLoss, lambda: create_loss("soap")])
def test_a_refused_batch_leaves_the_state_alone(build, what):
    given, said = BAD[what]
    with PretendDevice() as pretend:
        loss = build().to(DEVICE)
        (scores, labels), _ = one_list(0, 8, 20)
        good = pretend.put(scores), pretend.put(labels)
        ids = pretend.put(torch.arange(28))
        loss(*good, sample_ids=ids)
        before = {name: value.numbers.clone() for name, value in loss.state_dict().items() if value.device == DEVICE}
        with pytest.raises(ValueError, match=said):
            loss(*map(pretend.put, given), sample_ids=ids[:4])
        after = loss.state_dict()
        assert before
        assert all(torch.equal(after[name].numbers, value) for name, value in before.items())
        loss(*good, sample_ids=ids)  # and goes on


def test_new_ids_survive_a_call_that_fails():
    """What an update left for the next call is done even if that call raises an error before it reads anything."""
    (scores, labels), _ = one_list(0, 8, 20)
    with PretendDevice() as pretend:
        loss = AUPRCLoss().to(DEVICE)
        good = pretend.put(scores), pretend.put(labels)
        loss(*good, query_ids=pretend.put(torch.full((28,), 5)))
        prior, loss.prior = loss.prior, None
        with pytest.raises(AttributeError):
            loss(*good)
        loss.prior = prior
        assert loss.state_dict()["tracker.table.ids"].tolist() == [5]


def test_embeddings_are_checked_with_the_rest():
    with PretendDevice() as pretend:
        loss = EmbeddingLoss(AUPRCLoss()).to(DEVICE)
        embeddings = torch.eye(4)
        embeddings[2, 1] = torch.inf
        with pytest.raises(ValueError, match="embeddings: expected finite numbers, got 1"):
            loss(pretend.put(embeddings), pretend.put(torch.tensor([0, 0, 1, 1])))
        assert not len(loss.loss.tracker.table)


def test_unknown_lists_are_refused():
    build, batch = CASES["SONG, sampled 64 x 100"]
    (scores, labels), options = batch(0)
    with PretendDevice() as pretend:
        loss = build().to(DEVICE)
        ids = pretend.put(options["query_ids"] + 1000)
        with pytest.raises(ValueError, match="query_ids: expected lists that the statistics know"):
            loss(*map(pretend.put, (scores, labels)), query_ids=ids, sample_ids=pretend.put(options["sample_ids"]))
        assert not len(loss.averages.table)


def test_a_loss_warns_when_all_lists_were_left_out():
    with PretendDevice() as pretend:
        loss = NDCGLoss().to(DEVICE)
        scores, labels = pretend.put(torch.randn(2, 3)), pretend.put(torch.zeros(2, 3, dtype=torch.long))
        for _ in range(10):
            loss(scores, labels)
        with pytest.warns(UserWarning, match="left out every list of the last 10 batches"):
            loss(scores, labels)


def test_chunks_do_not_follow_the_threads_of_the_cpu():
    """The number of CPU threads says nothing about an accelerator."""
    counts, before = [], torch.get_num_threads()
    try:
        for threads in (1, 4):
            torch.set_num_threads(threads)
            with PretendDevice() as pretend:
                for _ in range(2):  # the first makes constants
                    step(pretend, EmbeddingLoss(AUPRCLoss()).to(DEVICE), vectors(0, size=300))
                counts.append(sum(pretend.operations.values()))
    finally:
        torch.set_num_threads(before)
    assert counts[0] == counts[1]
