"""Batch samplers: the contract of all, what each promises beyond it, and their errors."""

from __future__ import annotations

import itertools
from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

import rankwise.samplers
from rankwise.samplers import (
    SAMPLERS,
    BinaryBatchSampler,
    ClassBatchSampler,
    QueryBatchSampler,
    SeededBatchSampler,
    create_sampler,
)
from rankwise.testing import check_sampler

BINARY = torch.arange(90) % 9 == 4
CLASSES = torch.tensor([5, -3, 10**12, 7, 0]).repeat_interleave(torch.tensor([13, 7, 20, 9, 11]))
GRADES = torch.arange(200) % 7 % 4 * (torch.arange(200) % 3 == 0)
QUERIES = torch.tensor([5, -3, 2**40, 7, 0, 9, 11, 12]).repeat_interleave(torch.tensor([13, 7, 60, 9, 11, 40, 2, 58]))

EXAMPLES: dict[str, list[tuple[Any, dict[str, Any]]]] = {
    "shuffled": [
        (BINARY, {"batch_size": 16}),
        (BINARY, {"batch_size": 45, "drop_last": True}),
    ],
    "binary": [
        (BINARY, {"positives": 3, "negatives": 16}),
        (BINARY, {"positives": 10, "negatives": 7, "drop_last": True}),
        (BINARY, {"positives": 4, "negatives": 33, "batches": 9}),
        (BINARY.numpy().astype(np.float32), {"positives": 1, "negatives": 78}),
    ],
    "classes": [
        (CLASSES, {"classes": 3, "samples_per_class": 4}),
        (CLASSES, {"classes": 2, "samples_per_class": 8, "short_classes": "skip"}),
        (CLASSES, {"classes": 5, "samples_per_class": 9, "batches": 4}),
        (CLASSES, {"classes": 4, "samples_per_class": 2, "drop_last": True}),
    ],
    "queries": [
        (GRADES, {"query_ids": QUERIES, "queries": 2, "relevant": 2, "irrelevant": 5}),
        (GRADES, {"query_ids": QUERIES, "queries": 3, "without_relevant": "keep"}),
        (GRADES, {"query_ids": QUERIES, "queries": 4, "relevant": 1, "irrelevant": 40, "batches": 5}),
        (GRADES, {"query_ids": QUERIES, "queries": 3, "irrelevant": 4, "drop_last": True}),
        (GRADES, {"query_ids": QUERIES, "queries": 3, "longest": 3}),
    ],
}


@pytest.mark.parametrize("record", list(SAMPLERS), ids=lambda record: record.name)
def test_every_registered_sampler_keeps_the_contract(record):
    for labels, options in EXAMPLES[record.name]:
        check_sampler(partial(create_sampler, record.name, labels, **options), items=len(labels))


@st.composite
def binary_cases(draw: st.DrawFn) -> tuple[np.ndarray, int, int]:
    positive, negative = draw(st.integers(1, 25)), draw(st.integers(1, 60))
    labels = np.zeros(positive + negative, dtype=np.int64)
    labels[draw(st.permutations(range(len(labels))))[:positive]] = 1
    return labels, draw(st.integers(1, positive)), draw(st.integers(1, negative))


@given(binary_cases(), st.integers(0, 2**63 - 1), st.integers(0, 5))
def test_an_epoch_shows_every_negative_once_and_positives_equally_often(case, seed, epoch):
    labels, positives, negatives = case
    sampler = BinaryBatchSampler(labels, positives=positives, negatives=negatives, seed=seed)
    sampler.set_epoch(epoch)
    batches = list(sampler)
    seen = Counter(index for batch in batches for index in batch)
    assert all(seen[index] == 1 for index in np.flatnonzero(labels == 0))
    often = [seen[index] for index in np.flatnonzero(labels == 1)]
    assert max(often) - min(often) <= 1
    for batch in batches:
        assert labels[batch[:positives]].all()
        assert not labels[batch[positives:]].any()
        assert len(set(batch)) == len(batch)
    assert [len(batch) for batch in batches[:-1]] == [positives + negatives] * (len(batches) - 1)


@given(binary_cases(), st.integers(1, 12))
def test_a_given_number_of_batches_are_all_full(case, batches):
    labels, positives, negatives = case
    sampler = BinaryBatchSampler(labels, positives=positives, negatives=negatives, batches=batches)
    drawn = list(sampler)
    assert [len(set(batch)) for batch in drawn] == [positives + negatives] * batches
    seen = Counter(index for batch in drawn for index in batch)
    for label in (0, 1):
        often = [seen[index] for index in np.flatnonzero(labels == label)]
        assert max(often) - min(often) <= 1


@st.composite
def class_cases(draw: st.DrawFn) -> tuple[np.ndarray, int, int]:
    sizes = draw(st.lists(st.integers(1, 12), min_size=1, max_size=10))
    names = draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=len(sizes), max_size=len(sizes), unique=True))
    labels = np.repeat(np.array(names, dtype=np.int64), sizes)
    labels = labels[np.array(draw(st.permutations(range(len(labels)))))]
    return labels, draw(st.integers(1, len(sizes))), draw(st.integers(1, 6))


@given(class_cases(), st.integers(0, 2**63 - 1), st.integers(0, 5))
def test_an_epoch_visits_every_class_equally_often(case, seed, epoch):
    labels, classes, samples = case
    sampler = ClassBatchSampler(labels, classes=classes, samples_per_class=samples, seed=seed)
    sampler.set_epoch(epoch)
    batches = list(sampler)
    size = Counter(labels.tolist())
    visits: Counter[int] = Counter()
    for number, batch in enumerate(batches):
        here = Counter(labels[batch].tolist())
        visits.update(here.keys())
        assert len(set(batch)) == len(batch)
        assert all(count == min(samples, size[name]) for name, count in here.items())
        assert len(here) == classes or number == len(batches) - 1
    assert set(visits) == set(size)
    assert len(set(visits.values())) == 1


@given(class_cases(), st.integers(1, 9))
def test_samples_of_a_class_come_again_only_when_all_were_shown(case, batches):
    labels, classes, samples = case
    sampler = ClassBatchSampler(labels, classes=classes, samples_per_class=samples, batches=batches)
    seen: Counter[int] = Counter(index for batch in sampler for index in batch)
    for name in np.unique(labels):
        often = [seen[index] for index in np.flatnonzero(labels == name)]
        assert max(often) - min(often) <= 1


def test_samples_of_a_class_stand_together():
    for batch in ClassBatchSampler(CLASSES, classes=3, samples_per_class=4):
        names = CLASSES[batch].tolist()
        assert names == [name for name in dict.fromkeys(names) for _ in range(4)]


@st.composite
def query_cases(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int, int | None, int | None]:
    sizes = draw(st.lists(st.integers(1, 15), min_size=1, max_size=10))
    names = draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=len(sizes), max_size=len(sizes), unique=True))
    ids = np.repeat(np.array(names, dtype=np.int64), sizes)
    order = np.array(draw(st.permutations(range(len(ids)))))
    grades = np.array(draw(st.lists(st.sampled_from([0, 0, 1, 3]), min_size=len(ids), max_size=len(ids))))
    counts = (draw(st.none() | st.integers(1, 5)), draw(st.none() | st.integers(0, 5)))
    return grades, ids[order], draw(st.integers(1, len(sizes))), *counts


@given(query_cases(), st.integers(0, 2**63 - 1), st.integers(0, 5))
def test_an_epoch_visits_every_query_once_with_the_items_asked_for(case, seed, epoch):
    grades, ids, queries, relevant, irrelevant = case
    counts = {"queries": queries, "relevant": relevant, "irrelevant": irrelevant}
    build = partial(QueryBatchSampler, grades, ids, **counts, without_relevant="keep", seed=seed)
    if irrelevant == 0 and set(ids.tolist()) != set(ids[grades > 0].tolist()):
        with pytest.raises(ValueError, match="irrelevant: expected 1 or more with without_relevant='keep', got 0"):
            build()
        return
    sampler = build()
    sampler.set_epoch(epoch)
    visited: list[int] = []
    batches = list(sampler)
    for number, batch in enumerate(batches):
        here = list(dict.fromkeys(ids[batch].tolist()))
        assert len(here) == queries or number == len(batches) - 1
        visited += here
        drawn = 0
        for name in here:
            own = [index for index in batch if ids[index] == name]
            assert batch[drawn : drawn + len(own)] == own, "items of a query stand together"
            drawn += len(own)
            for asked, chosen in ((relevant, grades > 0), (irrelevant, grades == 0)):
                there = int((chosen & (ids == name)).sum())
                assert sum(bool(chosen[index]) for index in own) == (there if asked is None else min(asked, there))
    assert sorted(visited) == sorted(set(ids.tolist()))


def test_queries_without_relevant_items_are_skipped_kept_or_refused():
    grades, ids = [0, 0, 1, 0, 0], [4, 4, 6, 6, 8]
    build = partial(QueryBatchSampler, grades, ids, queries=1)
    skipping = build()
    assert (skipping.skipped, [set(batch) for batch in skipping]) == (2, [{2, 3}])
    keeping = build(without_relevant="keep")
    assert (keeping.skipped, len(keeping)) == (0, 3)
    with pytest.raises(ValueError, match="labels: expected a relevant item in every query, got none in 2 of 3"):
        build(without_relevant="error")


def test_items_of_a_long_list_are_drawn_uniformly():
    grades = torch.zeros(101, dtype=torch.int64)
    grades[100] = 1
    ids = torch.zeros(101, dtype=torch.int64)
    sampler = QueryBatchSampler(grades, ids, queries=1, irrelevant=10, batches=3000, seed=5)
    often = np.bincount([index for batch in sampler for index in batch], minlength=101)
    assert often[100] == 3000
    # 300 on average; the standard deviation is 16.
    assert abs(often[:100] - 300).max() < 80


def test_short_classes_are_taken_whole_skipped_or_refused():
    labels = [0, 0, 0, 0, 1, 1, 1, 2]
    build = partial(ClassBatchSampler, labels, classes=1, samples_per_class=3)
    taken = {len(batch): set(batch) for batch in build(short_classes="take")}
    assert taken[1] == {7}
    skipped = {index for batch in build(short_classes="skip") for index in batch}
    assert skipped <= set(range(7))
    with pytest.raises(ValueError, match=r"at least samples_per_class=3 items .*, got 1 of class 2 \(1 such"):
        build(short_classes="error")


def test_drop_last_leaves_out_only_the_smaller_batch():
    kept = list(BinaryBatchSampler(BINARY, positives=2, negatives=30))
    dropped = list(BinaryBatchSampler(BINARY, positives=2, negatives=30, drop_last=True))
    assert [len(batch) for batch in kept] == [32, 32, 22]
    assert dropped == kept[:2]


def test_seed_and_epoch_do_not_stand_in_for_each_other():
    one = BinaryBatchSampler(BINARY, positives=3, negatives=16, seed=1)
    other = BinaryBatchSampler(BINARY, positives=3, negatives=16, seed=0)
    other.set_epoch(1)
    assert list(one) != list(other)


def test_the_process_group_is_asked_when_a_pass_begins(monkeypatch):
    sampler = BinaryBatchSampler(BINARY, positives=3, negatives=16)
    whole = list(sampler)
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: 3)
    shares = []
    for rank in range(3):
        monkeypatch.setattr(dist, "get_rank", lambda rank=rank: rank)
        sampler.set_epoch(0)
        shares.append(list(sampler))
    for batch, *parts in zip(whole, *shares, strict=True):
        assert sorted(itertools.chain(*parts)) == sorted(batch)


def test_every_process_gets_positives_and_negatives():
    for rank in range(3):
        for batch in BinaryBatchSampler(BINARY, positives=3, negatives=16, rank=rank, world_size=3):
            assert int(BINARY[batch].sum()) == 1


def test_a_batch_too_small_for_the_processes_is_refused_on_all_of_them():
    for rank in range(3):
        sampler = BinaryBatchSampler([1, 0, 0], positives=1, negatives=1, rank=rank, world_size=3)
        with pytest.raises(ValueError, match="world_size: expected at most the 2 items of batch 1, got 3"):
            next(iter(sampler))


def test_looking_at_a_batch_does_not_move_a_loaded_place():
    sampler = BinaryBatchSampler(BINARY, positives=3, negatives=16)
    batches = list(sampler)
    sampler.load_state_dict({**sampler.state_dict(batch=2), "epoch": 0})
    assert next(iter(sampler)) == batches[2]
    assert list(sampler) == batches[2:]


def test_naming_the_loaded_epoch_keeps_the_place_and_another_drops_it():
    sampler = BinaryBatchSampler(BINARY, positives=3, negatives=16)
    first, second = list(sampler), list(sampler)
    state = {**sampler.state_dict(), "epoch": 1, "batch": 3}
    sampler.load_state_dict(state)
    sampler.set_epoch(1)
    assert list(sampler) == second[3:]
    sampler.load_state_dict(state)
    sampler.set_epoch(0)
    assert list(sampler) == first


def test_a_loader_that_reads_ahead_resumes_where_the_training_was():
    data = TensorDataset(torch.arange(90))
    sampler = BinaryBatchSampler(BINARY, positives=3, negatives=16)
    expected = list(sampler)
    sampler.set_epoch(0)
    running = iter(DataLoader(data, batch_sampler=sampler, num_workers=1))
    used = [next(running)[0].tolist() for _ in range(2)]
    state = sampler.state_dict(batch=2)
    del running
    resumed = BinaryBatchSampler(BINARY, positives=3, negatives=16)
    resumed.load_state_dict(state)
    rest = [batch[0].tolist() for batch in DataLoader(data, batch_sampler=resumed)]
    assert used + rest == expected


def test_a_trainers_own_epoch_count_does_not_undo_a_loaded_state():
    fabric = pytest.importorskip("lightning_fabric").Fabric(accelerator="cpu", devices=1)
    sampler = BinaryBatchSampler(BINARY, positives=3, negatives=16)
    batches = [list(sampler) for _ in range(4)]
    sampler.load_state_dict({**sampler.state_dict(), "epoch": 2, "batch": 1})
    loader = fabric.setup_dataloaders(DataLoader(TensorDataset(torch.arange(90)), batch_sampler=sampler))
    assert [batch[0].tolist() for batch in loader] == batches[2][1:]
    assert [batch[0].tolist() for batch in loader] == batches[3]


@pytest.mark.parametrize(
    "make",
    [
        lambda labels: BinaryBatchSampler(labels % 100 == 0, positives=32, negatives=96),
        lambda labels: ClassBatchSampler(labels, classes=64, samples_per_class=4),
        lambda labels: QueryBatchSampler(
            labels % 5 == 0, torch.arange(200_000) // 2_000, queries=64, relevant=4, irrelevant=16, batches=100
        ),
    ],
    ids=["binary", "classes", "queries"],
)
def test_a_batch_never_goes_over_all_items(make, monkeypatch):
    labels = torch.arange(200_000) % 10_000
    running = iter(make(labels))
    next(running)
    touched = []
    shuffle = torch.randperm
    monkeypatch.setattr(torch, "randperm", lambda n, **options: (touched.append(n), shuffle(n, **options))[1])
    for _ in range(50):
        next(running)
    assert sum(touched) <= 50 * 64 * 20


BAD_INPUT = [
    (BinaryBatchSampler, "abc", {}, TypeError, "labels: expected a tensor or an array of numbers, got str"),
    (BinaryBatchSampler, [], {}, ValueError, r"labels: expected shape \(N,\) with at least one item, got \(0,\)"),
    (BinaryBatchSampler, [[0, 1]], {}, ValueError, r"labels: expected shape \(N,\) .*, got \(1, 2\)"),
    (BinaryBatchSampler, [0, 1, 2], {}, ValueError, "labels: expected 0 or 1, got 2"),
    (BinaryBatchSampler, [0.0, 1.0, float("nan")], {}, ValueError, "labels: expected finite numbers"),
    (BinaryBatchSampler, [0, 0], {}, ValueError, "positives: expected at most the number of positive labels, 0, got 1"),
    (BinaryBatchSampler, [1, 1], {}, ValueError, "negatives: expected at most the number of negative labels, 0, got 1"),
    (
        BinaryBatchSampler,
        [0, 1],
        {"positives": 0},
        ValueError,
        "positives: expected .* at least 1, got 0",
    ),
    (BinaryBatchSampler, [0, 1], {"positives": 2}, ValueError, "positives: .* 1, got 2"),
    (BinaryBatchSampler, [0, 1], {"negatives": 1.5}, TypeError, "negatives: expected a whole number .*, got 1.5"),
    (BinaryBatchSampler, [0, 1], {"negatives": True}, TypeError, "negatives: expected a whole number .*, got True"),
    (BinaryBatchSampler, [0, 1], {"batches": 0}, ValueError, "batches: expected a whole number of at least 1, got 0"),
    (BinaryBatchSampler, [0, 1], {"seed": -1}, ValueError, "seed: expected a whole number of at least 0, got -1"),
    (BinaryBatchSampler, [0, 1], {"rank": 0}, ValueError, "world_size: expected rank and world_size together"),
    (BinaryBatchSampler, [0, 1], {"world_size": 2}, ValueError, "rank: expected rank and world_size together"),
    (
        BinaryBatchSampler,
        [0, 1],
        {"rank": 2, "world_size": 2},
        ValueError,
        "rank: .* less than world_size=2, got 2",
    ),
    (BinaryBatchSampler, [0, 1], {"drop_last": 1}, TypeError, "drop_last: expected True or False, got 1"),
    (ClassBatchSampler, [0.0, 1.0], {}, TypeError, "labels: expected integers"),
    (ClassBatchSampler, [0, 1], {"classes": 3}, ValueError, "classes: .* classes to draw from, 2, got 3"),
    (ClassBatchSampler, [0, 1], {"samples_per_class": 0}, ValueError, "samples_per_class: expected a whole number"),
    (ClassBatchSampler, [0, 1], {"short_classes": "skp"}, ValueError, "short_classes: .*did you mean 'skip'"),
    (
        ClassBatchSampler,
        [0, 1],
        {"samples_per_class": 2, "short_classes": "skip"},
        ValueError,
        "classes: .* classes to draw from, 0, got 1",
    ),
    (QueryBatchSampler, [0, -1], {}, ValueError, "labels: expected grades of 0 or more, got -1"),
    (QueryBatchSampler, [0, 1], {"query_ids": [1.0, 2.0]}, TypeError, "query_ids: expected integers"),
    (QueryBatchSampler, [0, 1], {"query_ids": [1]}, ValueError, "query_ids: expected the shape of labels"),
    (QueryBatchSampler, [0, 1], {"queries": 2}, ValueError, "queries: .* queries to draw from, 1, got 2"),
    (QueryBatchSampler, [0, 0], {}, ValueError, "queries: .* queries to draw from, 0, got 1"),
    (QueryBatchSampler, [0, 1], {"relevant": 0}, ValueError, "relevant: expected a whole number of at least 1, got 0"),
    (QueryBatchSampler, [0, 1], {"without_relevant": "drop"}, ValueError, "without_relevant: unknown word 'drop'"),
]
NEEDED: dict[Any, dict[str, Any]] = {
    QueryBatchSampler: {"query_ids": [3, 3], "queries": 1},
    BinaryBatchSampler: {"positives": 1, "negatives": 1},
    ClassBatchSampler: {"classes": 1, "samples_per_class": 1},
}


@pytest.mark.parametrize("sampler, labels, options, error, message", BAD_INPUT)
def test_bad_input_is_named(sampler, labels, options, error, message):
    with pytest.raises(error, match=message):
        sampler(labels, **{**NEEDED[sampler], **options})


@pytest.mark.parametrize(
    "change, message",
    [
        ({"items": 91}, "state_dict: expected items=90 as in this sampler, got 91"),
        ({"batches": 4}, "state_dict: expected batches=5 as in this sampler, got 4"),
        ({"batch": 6}, "state_dict: expected batch of at most 5, got 6"),
        ({"epoch": -1}, "epoch: expected a whole number of at least 0, got -1"),
        ({"seed": None}, "state_dict: expected seed, epoch, .*, got no seed"),
    ],
)
def test_a_state_of_another_sampler_is_refused_and_leaves_all_as_it_was(change, message):
    sampler = BinaryBatchSampler(BINARY, positives=3, negatives=16)
    state = {name: value for name, value in {**sampler.state_dict(), **change}.items() if value is not None}
    before = sampler.state_dict()
    with pytest.raises(ValueError, match=message):
        sampler.load_state_dict(state)
    assert sampler.state_dict() == before


def test_an_unknown_sampler_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="unknown sampler 'binari'; did you mean 'binary'"):
        create_sampler("binari", [0, 1])


class GlobalState(BinaryBatchSampler):
    """A sampler that breaks the contract: it draws from the global generator."""

    def _draw(self, generator):
        for batch in super()._draw(generator):
            yield batch[torch.randperm(len(batch)).numpy()]


class NoShares(BinaryBatchSampler):
    """A sampler that breaks the contract: every process gets the whole batch."""

    def _pass(self, rank, world_size):
        return super()._pass(0, 1)


class NoPlace(BinaryBatchSampler):
    """A sampler that breaks the contract: a loaded state starts the epoch again."""

    def load_state_dict(self, state_dict):
        super().load_state_dict({**state_dict, "batch": 0})


class Twice(BinaryBatchSampler):
    """A sampler that breaks the contract: a batch holds an index twice."""

    def _draw(self, generator):
        for batch in super()._draw(generator):
            yield np.append(batch, batch[0])


@pytest.mark.parametrize(
    "broken, message",
    [
        (GlobalState, "global random state"),
        (NoShares, "ranks do not make up batch"),
        (NoPlace, "resumed after batch 1"),
        (Twice, "holds an index twice"),
    ],
)
def test_the_contract_finds_a_broken_sampler(broken: type[SeededBatchSampler], message):
    with pytest.raises(AssertionError, match=message):
        check_sampler(partial(broken, BINARY, positives=3, negatives=16), items=90)


def test_all_public_samplers_are_registered():
    public = {
        value
        for name in rankwise.samplers.__all__
        if isinstance(value := getattr(rankwise.samplers, name), type) and value is not SeededBatchSampler
    }
    assert public == {record.build for record in SAMPLERS}


def test_queries_may_have_any_int64_as_id():
    ids = [-(2**63), 2**63 - 1, -(2**63), 2**63 - 1]
    batches = list(QueryBatchSampler([1, 1, 0, 0], ids, queries=1, seed=0))
    assert sorted(map(sorted, batches)) == [[0, 2], [1, 3]]
