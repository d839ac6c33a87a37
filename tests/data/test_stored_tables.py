"""Tables and pairs in mapped files: the same parts, schemas and weights as from memory."""

from __future__ import annotations

import json
import os
import warnings

import numpy as np
import polars as pl
import pytest
import torch

from rankwise.data import (
    files,
    histories,
    hold_out,
    leave_one_out,
    memory,
    read_interactions,
    read_table,
    sparse,
    stored_tables,
    table_files,
)
from rankwise.data.mapped import MappedFeatures, MappedNames
from rankwise.data.schema import DataNote
from rankwise.data.sparse import SparseRows
from rankwise.problems import Recommendation, Tabular
from rankwise.runs import train

ROWS = 600


def write_table(path, rows=ROWS, odd_row=None):
    """Write columns of all kinds; a number with a fraction, or a word, in a column of whole numbers at `odd_row`."""
    random = np.random.default_rng(0)
    lines = ["name,count,size,colour,day,full,cancer"]
    for row in range(rows):
        count = {None: row % 50, "fraction": row % 50 + 0.5, "word": "many"}[
            odd_row[1] if (odd_row or [-1])[0] == row else None
        ]
        size = "" if random.random() < 0.1 else f"{random.normal():.4f}"
        colour = random.choice(["red", "green", " blue", ""])
        positive = int(random.random() < 0.3)
        lines.append(f"c{row},{count},{size},{colour},2026-01-{row % 28 + 1:02d},{row % 2 == 0},{positive}")
    path.write_text("\n".join(lines) + "\n")
    return path


def assert_same_table(mapped, plain):
    assert isinstance(mapped.part.features, MappedFeatures)
    assert torch.equal(mapped.part.features[:].nan_to_num(-7), plain.part.features.nan_to_num(-7))
    assert torch.equal(mapped.part.labels, plain.part.labels)
    assert list(mapped.part.row_ids) == list(plain.part.row_ids)
    assert mapped.schema == plain.schema


@pytest.fixture
def small_blocks(monkeypatch):
    """Cut files into many blocks, parts and chunks."""
    original = files.read_line_blocks

    def in_blocks(path, *, block_bytes=0, on_progress=None):
        return original(path, block_bytes=2000, on_progress=on_progress)

    monkeypatch.setattr(table_files, "read_line_blocks", in_blocks)
    monkeypatch.setattr(table_files, "CHUNK_CELLS", 700)
    monkeypatch.setattr(stored_tables, "CHUNK_CELLS", 700)


@pytest.mark.parametrize("odd_row", [None, (ROWS - 5, "fraction")])
def test_a_text_file_is_mapped_as_it_is_read(tmp_path, monkeypatch, small_blocks, odd_row):
    path = write_table(tmp_path / "cells.csv", odd_row=odd_row)
    monkeypatch.setattr(table_files, "LINES_FOR_TYPES", 20)
    plain = read_table(path)
    for _ in range(2):  # written, then mapped again
        assert_same_table(read_table(path, cache=tmp_path / "cache"), plain)
    (stored,) = (tmp_path / "cache").glob("*.table")
    assert len(json.loads((stored / "state.json").read_text())["parts"]) > 3
    test = write_table(tmp_path / "test.csv", rows=50)
    mapped, known = (plain.schema.read(test, cache=cache) for cache in (tmp_path / "cache", None))
    assert torch.equal(mapped.features[:].nan_to_num(-7), known.features.nan_to_num(-7))


def test_a_wrong_cell_far_down_is_refused_by_line_and_leaves_no_files(tmp_path, monkeypatch, small_blocks):
    path = write_table(tmp_path / "cells.csv", odd_row=(ROWS - 5, "word"))
    monkeypatch.setattr(table_files, "LINES_FOR_TYPES", 20)
    errors = []
    for cache in (None, tmp_path / "cache"):
        with pytest.raises(ValueError, match=f"column 'count', line {ROWS - 3}: expected numbers") as error:
            read_table(path, cache=cache)
        errors.append(str(error.value))
    assert errors[0] == errors[1]
    assert not list((tmp_path / "cache").glob("*.npz")) + list((tmp_path / "cache").glob("*.part"))


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_folder_of_parquet_files_is_read_as_one_table(tmp_path, small_blocks, partitioned):
    frame = pl.read_csv(write_table(tmp_path / "cells.csv"), infer_schema_length=None)
    folder = tmp_path / "cells"
    folder.mkdir()
    (folder / "_SUCCESS").touch()
    (folder / "_delta_log").mkdir()
    frame.head(1).write_parquet(folder / "_delta_log" / "old.parquet")
    if partitioned:
        for colour, part in frame.with_columns(pl.col("colour").fill_null("none")).group_by("colour"):
            (folder / f"colour={colour[0].strip()}").mkdir()
            part.drop("colour").write_parquet(folder / f"colour={colour[0].strip()}" / "0.parquet")
    else:
        for number, part in enumerate(frame.iter_slices(150)):
            part.write_parquet(folder / f"part-{number:05d}.parquet")
    plain = read_table(folder, label="cancer")
    assert len(plain.part) == ROWS
    assert "colour" in plain.schema.features
    if not partitioned:
        assert torch.equal(plain.part.features.nan_to_num(-7), read_table(frame).part.features.nan_to_num(-7))
    assert_same_table(read_table(folder, label="cancer", cache=tmp_path / "cache"), plain)
    told = []
    with files.report_reading(lambda *what: told.append(what)):
        os.utime(next(folder.rglob("*.parquet")), (1, 1))
        read_table(folder, label="cancer", cache=tmp_path / "cache")
    assert told[-1] == (folder, 1.0)
    assert len(told) > 2


def test_a_changed_file_is_read_anew_and_notes_are_repeated(tmp_path):
    path, cache = write_table(tmp_path / "cells.csv"), tmp_path / "cache"
    _, schema = read_table(path, cache=cache)
    other = tmp_path / "new.csv"
    other.write_text(write_table(tmp_path / "x.csv", rows=30).read_text().replace("red", "pink"))
    for _ in range(2):
        with pytest.warns(DataNote, match="'colour' that the training data did not have, such as 'pink'"):
            part = schema.read(other, cache=cache)
    assert len(part) == 30
    write_table(other, rows=40)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(schema.read(other, cache=cache)) == 40


def test_what_a_killed_writer_left_is_not_taken_for_a_table(tmp_path):
    path, cache = write_table(tmp_path / "cells.csv"), tmp_path / "cache"
    plain = read_table(path, cache=cache)
    (stored,) = cache.glob("*.table")
    part = next(stored.glob("*.arrow"))
    part.write_bytes(part.read_bytes()[:1000])
    (cache / f"{stored.name}.part").mkdir()
    (cache / f"{stored.name}.part" / "00000.arrow").write_bytes(b"half")
    again = read_table(path, cache=cache)
    assert again.schema == plain.schema
    assert torch.equal(again.part.features[:].nan_to_num(-7), plain.part.features[:].nan_to_num(-7))
    assert not list(cache.glob("*.part"))


def test_a_table_that_cannot_fit_is_refused_before_it_is_read(tmp_path, monkeypatch):
    path = write_table(tmp_path / "cells.csv")
    frame = tmp_path / "cells.parquet"
    pl.read_csv(path).write_parquet(frame)
    monkeypatch.setattr(table_files, "FREE_BYTES", 0)
    monkeypatch.setattr(memory, "free_memory", lambda: 50_000)
    for source in (path, frame):
        with pytest.raises(ValueError, match=r"expected data that fit into memory, got about .*data\.cache"):
            read_table(source)
        assert len(read_table(source, cache=tmp_path / "cache").part) == ROWS


def test_names_are_taken_without_reading():
    names = MappedNames(pl.Series([f"n{index}" for index in range(5)]))
    taken = names.take(torch.tensor([4, 0, 2])).take(torch.tensor([True, False, True]))
    assert (list(taken), len(taken), taken[-1], taken[:1]) == (["n4", "n2"], 2, "n2", ["n4"])


def test_training_from_a_mapped_table_gives_the_same_bits(tmp_path):
    path = write_table(tmp_path / "cells.csv")
    short = {"budget": {"steps": 6}, "evaluation": {"every": 3}, "batches": {"size": 64}}
    in_memory, mapped = (
        train(Tabular(data={"train": str(path), **data}, **short)) for data in ({}, {"cache": str(tmp_path / "cache")})
    )
    assert isinstance(mapped.part("train").features, MappedFeatures)
    weights = mapped.model.state_dict()
    assert all(torch.equal(weights[name], value) for name, value in in_memory.model.state_dict().items())
    assert mapped.test.means == in_memory.test.means
    assert mapped.part("test").row_name(3) == in_memory.part("test").row_name(3)


def write_pairs(path, pairs=3000):
    random = np.random.default_rng(1)
    users, items = random.integers(0, 90, pairs), (60 * random.random(pairs) ** 2).astype(int)
    columns = {"who": [f" u{user}" for user in users], "what": items, "when": random.integers(0, 500, pairs)}
    pl.DataFrame(columns).write_csv(path)
    return path


@pytest.mark.filterwarnings("ignore::rankwise.data.schema.DataNote")
@pytest.mark.parametrize("at_once", [100, 1 << 22])
def test_pairs_on_disk_are_cut_as_in_memory(tmp_path, monkeypatch, at_once):
    path = write_pairs(tmp_path / "pairs.csv")
    columns = {"user": "who", "item": "what", "time": "when"}
    plain = read_interactions(path, **columns)
    expected = [*leave_one_out_parts(plain), *hold_out(plain, share=0.2, seed=3)]
    monkeypatch.setattr(sparse, "PAIRS_AT_ONCE", at_once)
    for _ in range(2):
        mapped = read_interactions(path, **columns, cache=tmp_path / "cache")
        assert mapped.folder == tmp_path / "cache"
        assert (mapped.user_names, mapped.item_names) == (plain.user_names, plain.item_names)
        found = [*leave_one_out_parts(mapped), *hold_out(mapped, share=0.2, seed=3)]
        for given, wanted in zip(found, expected, strict=True):
            for name in ("users", "items", "times"):
                assert torch.equal(getattr(given, name), getattr(wanted, name))
            rows, known = histories(given), histories(wanted)
            assert torch.equal(rows.starts, known.starts)
            assert torch.equal(rows.columns, known.columns)
    assert not list((tmp_path / "cache").glob("tmp*"))


def leave_one_out_parts(pairs):
    split = leave_one_out(pairs, by="time")
    return split.train, split.validation, split.test


def test_entries_are_found_by_bisection():
    random = torch.Generator().manual_seed(0)
    rows, columns = torch.randint(0, 40, (500,), generator=random), torch.randint(0, 30, (500,), generator=random)
    sparse_rows = SparseRows.of_pairs(rows, columns, height=45, width=30)
    dense = sparse_rows.dense()
    every = torch.cartesian_prod(torch.arange(45), torch.arange(30))
    assert torch.equal(sparse_rows.contains(*every.unbind(1)), dense.flatten() == 1)
    empty = SparseRows.of_pairs(rows[:0], columns[:0], height=2, width=3)
    assert empty.contains(torch.tensor([0, 1]), torch.tensor([0, 2])).tolist() == [False, False]


@pytest.mark.filterwarnings("ignore::rankwise.data.schema.DataNote")
@pytest.mark.parametrize(
    "options",
    [
        {
            "model": {"name": "matrix-factorisation", "dimensions": 4},
            "batches": {"users": 16, "relevant": 3, "irrelevant": 9},
        },
        {"model": {"name": "item-item", "dimensions": 4}, "batches": {"users": 16}},
    ],
)
def test_training_from_mapped_pairs_gives_the_same_bits(tmp_path, monkeypatch, options):
    path = write_pairs(tmp_path / "pairs.csv")
    data = {"train": str(path), "user": "who", "item": "what", "time": "when", "leave_one_out": "time"}
    short = {"budget": {"steps": 6}, "evaluation": {"every": 3}, **options}
    in_memory = train(Recommendation(data=data, **short))
    monkeypatch.setattr(sparse, "PAIRS_AT_ONCE", 300)
    mapped = train(Recommendation(data={**data, "cache": str(tmp_path / "cache")}, **short))
    weights = mapped.model.state_dict()
    assert all(torch.equal(weights[name], value) for name, value in in_memory.model.state_dict().items())
    assert mapped.test.means == in_memory.test.means
