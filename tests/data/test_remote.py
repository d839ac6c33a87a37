"""Sources at remote addresses: the tables, pairs and runs of local files."""

from __future__ import annotations

import os
import re
from pathlib import Path

import fsspec
import numpy as np
import polars as pl
import pytest
import torch

import rankwise as rw
from rankwise.data.files import address_of, report_reading
from rankwise.data.remote import local_copy
from rankwise.problems import Recommendation, Tabular
from rankwise.runs import load_run


@pytest.fixture
def bucket():
    """The address of an empty folder in fsspec's memory, and its file system."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    yield "memory://bucket", system
    system.store.clear()


def frame(rows=200):
    random = np.random.default_rng(0)
    values = random.normal(size=(rows, 3)).round(3)
    label = (values[:, 0] + random.normal(size=rows) > 1).astype(int)
    return pl.DataFrame({"a": values[:, 0], "b": values[:, 1], "c": values[:, 2], "y": label})


def write_parts(system, folder, table):
    """Write a folder of Parquet files as Spark does, with one that is no part."""
    for number, part in enumerate((table[:90], table[90:])):
        with system.open(f"{folder}/group={number}/part-{number}.parquet", "wb") as file:
            part.write_parquet(file)
    system.pipe(f"{folder}/_SUCCESS", b"")


@pytest.mark.parametrize(
    "source, address",
    [
        ("s3://bucket/a/b.parquet", "s3://bucket/a/b.parquet"),
        (Path("gs://bucket/a"), "gs://bucket/a"),
        (Path("file:///tmp/a.csv"), "file:///tmp/a.csv"),
        ("memory://a", "memory://a"),
        ("c:/data/a.csv", None),
        ("/data/a.csv", None),
        (Path("a.csv"), None),
        (3, None),
    ],
)
def test_addresses_are_known_also_as_paths(source, address):
    assert address_of(source) == address
    if address is None:
        assert local_copy(source, None) is source


@pytest.mark.parametrize("cached", [True, False])
def test_a_remote_folder_trains_the_weights_of_the_local_one(bucket, tmp_path, cached):
    address, system = bucket
    write_parts(system, f"{address}/cells", frame())
    local = tmp_path / "cells"
    write_parts(fsspec.filesystem("file", auto_mkdir=True), str(local), frame())
    options = {"budget": {"steps": 10}, "evaluation": {"every": 5}, "refit": False}
    cache = tmp_path / "cache" if cached else None
    data = {"label": "y", "cache": cache}
    remote = Tabular(data={**data, "train": f"{address}/cells"}, **options)
    run = rw.train(remote, out=tmp_path / "remote")
    expected = rw.train(Tabular(data={**data, "train": local}, **options), out=tmp_path / "local")
    for name, value in expected.model.state_dict().items():
        assert torch.equal(run.model.state_dict()[name], value)
    assert run.record["data"].keys() == {f"{address}/cells"}
    assert list(run.record["data"].values()) == list(expected.record["data"].values())
    assert f"train: {address}/cells" in (tmp_path / "remote" / "recipe.yaml").read_text()
    if cached:
        assert len(list(cache.glob("cells.*.copy"))) == 1
    opened = load_run(tmp_path / "remote")
    assert opened.problem.data == remote.data
    assert opened.evaluate(bootstrap=0).means == expected.evaluate(bootstrap=0).means


def test_a_run_predicts_and_is_evaluated_on_a_remote_file(bucket, tmp_path):
    address, system = bucket
    run = rw.train(Tabular(data={"label": "y"}, budget={"steps": 5}, refit=False), train=frame())
    frame(40).write_csv(tmp_path / "new.csv")
    system.put(str(tmp_path / "new.csv"), "/bucket/new.csv")
    assert torch.equal(run.predict(f"{address}/new.csv").outputs, run.predict(tmp_path / "new.csv").outputs)
    assert run.evaluate(f"{address}/new.csv", bootstrap=0).means == run.evaluate(frame(40), bootstrap=0).means


@pytest.mark.parametrize("protocol", ["memory", "file"])
def test_remote_pairs_are_those_of_a_local_file(bucket, tmp_path, protocol):
    text = "user,item\n" + "".join(f"u{row % 7},i{row * 5 % 11}\n" for row in range(60))
    (tmp_path / "clicks.csv").write_text(text)
    address = f"file://{tmp_path}/clicks.csv"
    if protocol == "memory":
        address = f"{bucket[0]}/clicks.csv"
        bucket[1].pipe("/bucket/clicks.csv", text.encode())
    options = {"user": "user", "item": "item", "leave_one_out": "random", "cache": tmp_path / "cache"}
    (remote, there), (local, here) = (
        Recommendation(data={**options, "train": source}).read({}) for source in (address, tmp_path / "clicks.csv")
    )
    assert (remote.users, remote.items) == (local.users, local.items)
    assert torch.equal(there.train.items, here.train.items)


def test_a_copy_is_made_once_and_anew_where_the_remote_file_changed(bucket, tmp_path, monkeypatch):
    address, system = bucket
    system.pipe("/bucket/a.csv", b"x,y\n1,0\n")
    shares = []
    with report_reading(lambda path, share: shares.append((str(path), share))):
        copy = local_copy(f"{address}/a.csv", tmp_path)
    assert shares[-1] == ("a.csv", 1.0)
    assert copy.name == "a.csv"
    assert copy.read_bytes() == b"x,y\n1,0\n"
    opened = []
    original = type(system).open
    monkeypatch.setattr(type(system), "open", lambda self, *a, **k: opened.append(a[0]) or original(self, *a, **k))
    assert local_copy(f"{address}/a.csv", tmp_path) == copy
    assert opened == []
    system.pipe("/bucket/a.csv", b"x,y\n1,0\n2,1\n")
    opened.clear()
    assert local_copy(f"{address}/a.csv", tmp_path).read_bytes() == b"x,y\n1,0\n2,1\n"
    assert opened == ["/bucket/a.csv"]


def test_an_interrupted_copy_leaves_nothing(bucket, tmp_path, monkeypatch):
    address, system = bucket
    for name in ("a", "b"):
        system.pipe(f"/bucket/parts/{name}.parquet", b"content")
    original = type(system).open

    def fail(self, path, *arguments, **options):
        if "b.parquet" in path:
            raise ConnectionError("the line went dead")
        return original(self, path, *arguments, **options)

    with monkeypatch.context() as broken:
        broken.setattr(type(system), "open", fail)
        with pytest.raises(ValueError, match=r"memory://bucket/parts: cannot be read \(the line went dead\)"):
            local_copy(f"{address}/parts", tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert sorted(path.name for path in local_copy(f"{address}/parts", tmp_path).iterdir()) == [
        "a.parquet",
        "b.parquet",
    ]


@pytest.mark.parametrize(
    "address, error, said",
    [
        ("memory://bucket/none.csv", FileNotFoundError, "memory://bucket/none.csv: no such file or folder"),
        ("nowhere://a/b.csv", ValueError, r"nowhere://a/b.csv: cannot be read \(Protocol not known: nowhere\)"),
    ],
)
def test_addresses_that_cannot_be_read_are_named(bucket, tmp_path, address, error, said):
    with pytest.raises(error, match=said):
        local_copy(address, tmp_path)


def test_names_that_leave_the_folder_are_refused(bucket, tmp_path, monkeypatch):
    address, system = bucket
    system.pipe("/bucket/parts/a.parquet", b"content")
    found = {"/bucket/parts/../../evil": {"size": 1, "type": "file"}}
    monkeypatch.setattr(type(system), "find", lambda self, path, detail: found)
    with pytest.raises(ValueError, match=re.escape("'/bucket/parts/../../evil'")):
        local_copy(f"{address}/parts", tmp_path)
    assert os.listdir(tmp_path) == []
