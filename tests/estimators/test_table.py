"""The id table: any ids, averages of repeats, first observation, state that survives saving."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.device.pretend import PretendDevice
from rankwise.estimators import IdTable
from rankwise.estimators.table import SPACES, DeviceIndex, HashIndex
from workers.patience import PATIENCE
from workers.processes import CONTEXT

INT64 = torch.iinfo(torch.int64)
batches = st.lists(
    st.lists(
        st.tuples(st.sampled_from([0, 1, -1, 7, INT64.max, INT64.min]), st.integers(-8, 8)), min_size=1, max_size=5
    ),
    min_size=1,
    max_size=6,
)


@given(batches, st.sampled_from([0.25, 0.5, 1.0]))
def test_table_equals_a_dictionary_of_averages(batches, rate):
    table, plain = IdTable(width=1), {}
    for batch in batches:
        ids, values = torch.tensor([i for i, _ in batch]), torch.tensor([[float(v)] for _, v in batch])
        table.update(ids, values, rate)
        for i in {i for i, _ in batch}:
            new = [v for j, v in batch if j == i]
            mean = sum(new) / len(new)
            plain[i] = plain[i] + rate * (mean - plain[i]) if i in plain else mean
    rows, known = table.read(torch.tensor(sorted(plain)))
    assert bool(known.all())
    torch.testing.assert_close(rows[:, 0], torch.tensor([plain[i] for i in sorted(plain)], dtype=torch.float32))


pairs = st.tuples(st.sampled_from([0, 1, -1, INT64.max, INT64.min]), st.sampled_from([0, 1, 2, INT64.min]))


@given(st.lists(st.lists(st.tuples(pairs, st.integers(-8, 8)), min_size=1, max_size=6), min_size=1, max_size=6))
def test_pairs_are_told_apart_by_both_ids(batches):
    table, plain = IdTable(width=1, columns=2), {}
    for batch in batches:
        table.update(torch.tensor([pair for pair, _ in batch]), torch.tensor([[float(v)] for _, v in batch]), 0.5)
        for pair in {pair for pair, _ in batch}:
            new = [v for other, v in batch if other == pair]
            mean = sum(new) / len(new)
            plain[pair] = (plain[pair] + mean) / 2 if pair in plain else mean
    rows, known = table.read(torch.tensor(list(plain)))
    assert bool(known.all())
    torch.testing.assert_close(rows[:, 0], torch.tensor(list(plain.values()), dtype=torch.float32))
    assert sorted(map(tuple, table.ids.tolist())) == sorted(plain)


def test_many_ids_of_any_pattern_keep_their_rows():
    """More than fit the first index and the first rows: growing loses and mixes up nothing."""
    generator = torch.Generator().manual_seed(0)
    for step in (1, 2**20, 2**44, -3):
        ids = torch.arange(20_000) * step
        table = IdTable(width=1)
        for part in ids[torch.randperm(len(ids), generator=generator)].split(3_000):
            table.update(part, (part % 9973).float()[:, None], 0.1)
        rows, known = table.read(ids)
        assert bool(known.all())
        assert torch.equal(rows[:, 0], (ids % 9973).float())
        assert not bool(table.read(ids + 1 if step != 1 else ids + len(ids))[1].any())


class CountingIndex(HashIndex):
    """Counts how many ids are not found at the first look."""

    displaced = 0

    def _search(self, slots, ids, known):
        self.displaced += len(ids)
        return super()._search(slots, ids, known)


@pytest.mark.parametrize("size", [1_000, 1_000_000])
def test_most_searches_end_at_once_at_a_million_rows_as_at_a_thousand(size):
    known = torch.arange(size)[:, None] * 7
    index = CountingIndex(known)
    rows = torch.arange(0, size, size // 1_000)
    assert torch.equal(index.find(known[rows], known), rows)
    assert index.displaced < 0.01 * len(rows)


def test_a_saved_table_holds_no_spare_room(tmp_path):
    table = IdTable(width=1)
    for start in range(0, 1_000, 10):
        table.update(torch.arange(start, start + 10), torch.zeros(10, 1), 0.1)
    saved = table.state_dict()
    assert [tuple(saved[name].shape) for name in ("ids", "rows")] == [(1_000,), (1_000, 1)]
    assert saved["ids"].untyped_storage().nbytes() == 8_000
    assert saved["rows"].untyped_storage().nbytes() == 4_000


def test_a_loaded_table_does_not_share_memory_with_the_saved_state():
    table, other = IdTable(width=1), IdTable(width=1)
    table.update(torch.tensor([1]), torch.tensor([[1.0]]), 0.1)
    saved = table.state_dict()
    other.load_state_dict(saved)
    other.update(torch.tensor([1]), torch.tensor([[5.0]]), 1.0)
    assert saved["rows"].item() == 1.0
    assert table.rows.item() == 1.0


def test_unknown_ids_are_told_apart():
    table = IdTable(width=2)
    assert table.read(torch.tensor([3]))[1].tolist() == [False]
    table.update(torch.tensor([3]), torch.ones(1, 2), 0.1)
    assert table.read(torch.tensor([2, 3, 4]))[1].tolist() == [False, True, False]


def test_state_loads_into_a_table_of_another_size():
    full, empty = IdTable(width=1), IdTable(width=1)
    full.update(torch.tensor([5, -9]), torch.tensor([[1.0], [2.0]]), 0.1)
    empty.update(torch.tensor([1, 2, 3]), torch.zeros(3, 1), 0.1)
    empty.load_state_dict(full.state_dict())
    assert torch.equal(empty.ids, torch.tensor([-9, 5]))
    assert torch.equal(empty.rows, torch.tensor([[2.0], [1.0]]))


def test_state_of_another_width_is_refused():
    narrow, wide = IdTable(width=1), IdTable(width=2)
    narrow.update(torch.tensor([5]), torch.ones(1, 1), 0.1)
    with pytest.raises(RuntimeError, match="rows"):
        wide.load_state_dict(narrow.state_dict())
    assert len(wide) == 0


def test_rows_stay_exact_when_the_module_is_cast_to_half():
    table = IdTable(width=1)
    table.update(torch.tensor([1]), torch.tensor([[1.0001]]), 0.1)
    before = table.rows.clone()
    assert table.half().rows.dtype == torch.float32
    assert torch.equal(table.rows, before)
    assert table.double().rows.dtype == torch.float64


def test_updates_do_not_depend_on_the_order_of_a_batch():
    left, right = IdTable(width=1), IdTable(width=1)
    ids, values = torch.tensor([4, 4, 2, 9]), torch.tensor([[1.0], [2.0], [4.0], [8.0]])
    left.update(ids, values, 0.1)
    right.update(ids.flip(0), values.flip(0), 0.1)
    assert torch.equal(left.rows, right.rows)
    assert torch.equal(left.ids, right.ids)


def test_ids_with_the_same_hash_bits_are_told_apart(monkeypatch):
    """With one slot and one tag for all, only comparing in full can tell: every search goes over several windows."""
    alike = lambda self, ids: (ids[:, 0] * 0, ids[:, 0] * 0)  # noqa: E731
    monkeypatch.setattr(HashIndex, "slots_and_tags", alike)
    known = torch.stack([torch.arange(30), torch.arange(30).flip(0)], 1)
    index = HashIndex(known)
    assert torch.equal(index.find(known.flip(0), known), torch.arange(30).flip(0))
    assert index.find(known.flip(1)[:5], known).tolist() == [29, 28, 27, 26, 25]
    assert index.find(known + torch.tensor([0, 1]), known).tolist() == [-1] * 30
    copied = DeviceIndex(known[:20], known.device)
    copied.add(known[20:])
    assert torch.equal(copied.find(known.flip(0), known), torch.arange(30).flip(0))
    assert copied.find(known + torch.tensor([0, 1]), known).tolist() == [-1] * 30


def test_a_window_may_reach_over_the_end_of_the_slots(monkeypatch):
    last = lambda self, ids: (ids[:, 0] * 0 + 1022, ids[:, 0] << 40)  # noqa: E731
    monkeypatch.setattr(HashIndex, "slots_and_tags", last)
    known = torch.arange(20)[:, None]
    index = HashIndex(known)
    assert torch.equal(index.find(known, known), torch.arange(20))


def used_table():
    """A table that has built its index and has spare room."""
    table = IdTable(width=1)
    for start in (0, 40):
        table.update(torch.arange(start, start + 70), torch.arange(start, start + 70.0)[:, None], 0.5)
    return table


COPIES = {
    "pickle": lambda table: pickle.loads(pickle.dumps(table)),
    "cloudpickle": lambda table: pickle.loads(pytest.importorskip("cloudpickle").dumps(table)),
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_of_a_used_table_takes_in_new_ids_as_the_table_itself(way):
    table = used_table()
    again = COPIES[way](table)
    for each in (table, again):
        each.update(torch.arange(90, 200), torch.ones(110, 1), 0.5)
    assert torch.equal(table.ids, again.ids)
    assert torch.equal(table.rows, again.rows)


def test_a_copied_index_takes_in_new_ids():
    known = torch.arange(50)[:, None]
    index = pickle.loads(pickle.dumps(HashIndex(known[:20])))
    index.add(known)
    assert torch.equal(index.find(known, known), torch.arange(50))


def test_a_pickle_holds_the_used_rows_alone():
    assert len(pickle.dumps(used_table())) < 110 * (8 + 4) + 3_000


def update_in_another_process(table, results):
    table.update(torch.arange(90, 200), torch.ones(110, 1), 0.5)
    results.put((table.ids.tolist(), table.rows.tolist()))


def test_a_table_sent_to_another_process_is_a_copy():
    """Tensors sent to a process share memory with the sender; a table written by both would count updates twice."""
    table = used_table()
    before, results = copy.deepcopy(table.state_dict()), CONTEXT.Queue()
    process = CONTEXT.Process(target=update_in_another_process, args=(table, results))
    process.start()
    ids, rows = results.get(timeout=PATIENCE)
    process.join(timeout=PATIENCE)
    assert all(torch.equal(before[name], tensor) for name, tensor in table.state_dict().items())
    table.update(torch.arange(90, 200), torch.ones(110, 1), 0.5)
    assert (table.ids.tolist(), table.rows.tolist()) == (ids, rows)


def test_an_index_keeps_two_slots_for_each_id_however_it_grows():
    """By one id at a time or by many at once; a rehash doubles the room, so that few are needed."""
    generator = torch.Generator().manual_seed(0)
    known = torch.randint(INT64.min, INT64.max, (6000, 1), generator=generator)
    for sizes in (range(1, 1300), (1, 6000), (500, 520, 3000, 3001)):
        index, rehashes = HashIndex(known[:0]), 0
        for size in sizes:
            if index.add(known[:size]) is None:
                rehashes += 1
                assert index.size >= 4 * size
            assert index.size >= 2 * index.count == 2 * size
        assert rehashes <= 3
        assert torch.equal(index.find(known[:size], known[:size]), torch.arange(size))


@pytest.mark.parametrize("columns", [1, 2])
def test_an_accelerator_keeps_the_table_of_the_cpu(columns):
    """New ids, repeats of them within a batch and masked values, for few ids and for so many that they are hashed."""
    generator = torch.Generator().manual_seed(columns)
    batches = []
    for size, kinds in ((30, 10), (3000, 2000), (30, 4000), (1, 5)):
        ids = torch.randint(0, kinds, (size, columns), generator=generator)
        values = torch.randn(size, 2, generator=generator)
        batches.append((ids[:, 0] if columns == 1 else ids, values, torch.rand(size, generator=generator) < 0.8))

    def run(put):
        table = IdTable(width=2, columns=columns).to(put(torch.zeros(1)).device)
        found = []
        for ids, values, chosen in batches:
            table.update(put(ids), put(values), 0.3, chosen=put(chosen))
            found += [each.cpu() for each in table.read(put(ids))]
            found.append(table.update(put(ids), put(values), 0.5, write=False).cpu())
        order = table.ids.cpu().view(len(table), -1)
        return [*found, order, table.rows.cpu()]

    expected = run(torch.clone)
    with PretendDevice() as device:
        torch.testing.assert_close(run(device.put), expected)


def test_options_of_an_update_have_to_be_named():
    table, ids = IdTable(width=1), torch.tensor([3])
    for call in (table.update, table.follow):
        with pytest.raises(TypeError, match="positional"):
            call(ids, torch.ones(1, 1), 0.5, SPACES["linear"], ids, ids)
