"""Exported models: opened by ONNX Runtime and by torch alone, with the numbers as they stand in the data."""

from __future__ import annotations

import json
import sys
import zipfile
from functools import cache

import numpy as np
import polars as pl
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_digits
from torch import nn
from torch.nn.utils.rnn import pad_sequence

import rankwise as rw
from rankwise.cli import main
from rankwise.data import DataNote
from rankwise.problems import make_problem
from workers.kinds import RECIPES, SHORT, write_kinds
from workers.pages import PAGES, blocks

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
pytest.importorskip("PIL")

FORMATS = ("onnx", "pt2")
LEARNED = {**SHORT, "budget": {"steps": 40}, "evaluation": {"every": 40, "weights": "last"}}


def cells():
    """Cells of breast cancer with holes, a Unix time, a category and a date that say a little about the label."""
    bunch, random = load_breast_cancer(), np.random.default_rng(0)
    frame = pl.DataFrame(bunch.data, schema=[name.replace(" ", "_") for name in bunch.feature_names])
    seconds = 1_700_000_000 + random.integers(0, 600, size=len(frame)) + 60 * bunch.target
    holes = random.random(len(frame)) < 0.1
    return frame.with_columns(
        pl.when(~pl.Series(holes)).then(pl.col("mean_radius")).alias("mean_radius"),
        seen=pl.Series(seconds),
        site=pl.Series(np.array(["left", "right", None])[random.integers(0, 2 + bunch.target)]),
        born=pl.Series(np.datetime64("1950-01-01") + random.integers(0, 9000, size=len(frame))),
        cancer=pl.Series(1 - bunch.target),
    )


def digits():
    """Digits as images of 8 x 8 bytes."""
    bunch = load_digits()
    return (bunch.images[:600] * 15).astype(np.uint8), bunch.target[:600]


def train_cells(scaling):
    recipe = {"data": {"label": "cancer"}, "model": {"scaling": scaling}}
    return rw.train(make_problem({"task": "tabular", **LEARNED, **recipe}), train=cells()), cells().drop("cancer")


def train_digits(**recipe):
    data = {"size": 8, "channels": 1, "held_out": "images", "validation": 0.2}
    problem = {"task": "image-retrieval", **LEARNED, "data": data, "batches": {"classes": 10}, **recipe}
    return rw.train(make_problem(problem), train=digits()), digits()[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    write_kinds(folder)
    return folder


@pytest.fixture(scope="module")
def trained(folder):
    """A function from the name of a case to its run and a source that the run can predict; each is trained once."""
    files = {"ltr": "queries.txt", "pap": "users.csv", "retrieval": "classes.csv", "recsys": "clicks.csv"}
    files |= {"multilabel": "labels.txt", "longtail": "photos"}
    changes = {
        "context-aware": {"model": {"name": "context-aware"}},
        "ease": {"model": {"name": "item-item", "ease": 10.0, "dimensions": 4}},
        "matrix-factorisation": {"model": {"name": "matrix-factorisation"}},
        "neumf": {"model": {"name": "neumf", "hidden": [8]}},
    }

    @cache
    def train(case):
        if case in ("tabular", "tabular log"):
            return train_cells("log" if case == "tabular log" else "standard")
        if case == "image-retrieval":
            return train_digits()
        kind = {"context-aware": "ltr"}.get(case, "recsys" if case in changes else case)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            run = rw.train(make_problem({"task": kind, **LEARNED, **RECIPES[kind], **changes.get(case, {})}))
        return run, folder / files[kind]

    return train


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory):
    """A function from the name of a case and a format to its exported file; each is written once."""
    folder = tmp_path_factory.mktemp("files")

    @cache
    def export(case, suffix):
        return trained(case)[0].export(folder / f"{case}.{suffix}")

    return export


def call(path, inputs):
    """Return the outputs and the metadata of an exported file, opened without rankwise."""
    if path.suffix == ".onnx":
        session = onnxruntime.InferenceSession(path)
        (output,) = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
        return torch.from_numpy(output), json.loads(session.get_modelmeta().custom_metadata_map["rankwise"])
    extra = {"rankwise.json": ""}
    output = torch.export.load(path, extra_files=extra).module()(*inputs.values())
    return output.detach(), json.loads(extra["rankwise.json"])


def columns_of(frame, schema):
    """Return the columns of a frame as the page on serving says: categories by index, dates as three numbers."""
    columns = []
    for name in schema["encoding"]["names"]:
        column = frame[name]
        if name in schema["encoding"]["categories"]:
            known = list(schema["encoding"]["categories"][name])
            columns.append([known.index(value or "") if (value or "") in known else -1 for value in column])
        elif name in schema["encoding"]["dates"]:
            days = column.cast(pl.Int32).to_list()
            columns += [days, column.dt.month().to_list(), column.dt.weekday().to_list()]
        else:
            columns.append(column.fill_null(np.nan).to_list())
    return torch.tensor(np.array(columns, dtype=np.float64).T)


def raw_inputs(case, run, source):
    """Return the inputs of an exported model, taken from the data themselves, and the outputs of the run."""
    expected = run.predict(source).outputs
    if case.startswith("tabular"):
        return {"features": columns_of(source, run.schema.to_json())}, expected
    if case == "image-retrieval":
        return {"images": torch.from_numpy(source)[:, None]}, expected
    part = run.schema.read(source, labels="optional")
    if case == "context-aware":
        lists = [part.query_ids == query for query in part.query_ids.unique()]
        padded = pad_sequence([part.features[rows] for rows in lists], batch_first=True)
        mask = pad_sequence([torch.ones(int(rows.sum()), dtype=torch.bool) for rows in lists], batch_first=True)
        scores = pad_sequence([expected[rows] for rows in lists], batch_first=True)
        return {"features": padded, "mask": mask}, scores
    if case == "longtail":
        return {"images": torch.stack([part.picture(row) for row in range(len(part))])}, expected
    if case in ("matrix-factorisation", "neumf"):
        return {"users": torch.tensor([run.schema.users.index(name) for name in part.user_names])}, expected
    if case in ("recsys", "ease"):
        return {"history": part.known.dense()}, expected
    if case == "multilabel":
        return {"features": part.features.dense()}, expected
    return {"features": part.features}, expected


OTHERS = ("tabular log", "context-aware", "pap", "retrieval", "longtail", "multilabel", "ease", "matrix-factorisation",
          "neumf")  # fmt: skip
QUICK = [(case, suffix) for case in ("tabular", "ltr", "image-retrieval", "recsys") for suffix in FORMATS]
QUICK += [("context-aware", "pt2"), ("matrix-factorisation", "pt2")]
SLOW = [(case, suffix) for case in OTHERS for suffix in FORMATS if (case, suffix) not in QUICK]


@pytest.mark.parametrize("case, suffix", [*QUICK, *(pytest.param(*each, marks=pytest.mark.slow) for each in SLOW)])
def test_the_file_gives_the_outputs_of_the_run(trained, exported, case, suffix):
    run, source = trained(case)
    file = exported(case, suffix)
    inputs, expected = raw_inputs(case, run, source)
    outputs, metadata = call(file.path, inputs)
    difference = float((outputs - expected).abs().max())
    print(f"{case}, {suffix}: largest difference {difference:.1e}")  # shown by pytest -s
    assert float(expected.std()) > 0.01  # the outputs of different rows differ
    assert difference <= 1e-5
    assert metadata == json.loads(json.dumps(file.metadata))
    assert metadata["kind"] == run.problem.kind
    assert {name: (each["dtype"], len(each["shape"])) for name, each in metadata["inputs"].items()} == {
        name: (str(tensor.dtype).removeprefix("torch."), tensor.ndim) for name, tensor in inputs.items()
    }
    assert list(metadata["outputs"]) == [run.problem.outputs]


@pytest.mark.parametrize("suffix", FORMATS)
def test_any_number_of_rows_is_taken(trained, exported, suffix):
    path = exported("ltr", suffix).path
    inputs, _ = raw_inputs("ltr", *trained("ltr"))
    rows = torch.randn(700, inputs["features"].shape[1])
    outputs, _ = call(path, {"features": rows})
    for count in (1, 2, 700):
        assert torch.allclose(call(path, {"features": rows[:count]})[0], outputs[:count], atol=1e-6)


def test_the_metadata_name_the_columns_and_the_values_of_categories(trained, exported):
    run, source = trained("tabular")
    path = exported("tabular", "onnx").path
    inputs, expected = raw_inputs("tabular", run, source)
    _, metadata = call(path, inputs)
    columns = metadata["inputs"]["features"]["columns"]
    assert columns[-5:] == ["seen", "site", "born", "born month", "born weekday"]
    assert metadata["schema"]["encoding"]["categories"] == {"site": ["", "left", "right"]}
    unknown = inputs["features"].clone()
    unknown[:, columns.index("site")] = -1
    with pytest.warns(DataNote, match="569 rows with a 'site' that the training data did not have"):
        as_unknown = run.predict(source.with_columns(site=pl.lit("elsewhere"))).outputs
    assert not torch.allclose(as_unknown, expected, atol=1e-3)
    torch.testing.assert_close(call(path, {"features": unknown})[0], as_unknown, atol=1e-5, rtol=0)


def test_the_check_may_be_on_data_of_the_user(trained, tmp_path):
    run, source = trained("tabular")
    exported = run.export(tmp_path / "model.pt2", source)
    assert exported.checked == 64
    with pytest.raises(ValueError, match="expected all columns of the training data"):
        run.export(tmp_path / "other.pt2", source.drop("seen"))
    assert not (tmp_path / "other.pt2").exists()


def test_small_values_keep_their_digits_under_a_logarithm(tmp_path):
    random = np.random.default_rng(0)
    X = 1e-5 * random.normal(size=(300, 3))
    problem = make_problem({"task": "tabular", **LEARNED, "model": {"scaling": "log"}})
    run = rw.train(problem, train=(X, (X[:, 0] > 1e-5).astype(int)))
    path = run.export(tmp_path / "model.onnx").path
    features = torch.from_numpy(X.astype(np.float32))
    outputs, _ = call(path, {"features": features})
    torch.testing.assert_close(outputs, run.predict(X).outputs, atol=1e-5, rtol=0)


def test_the_service_of_the_page_takes_text_and_missing_cells(tmp_path, monkeypatch):
    from fastapi.testclient import TestClient

    frame = cells().select("mean_radius", "site", "cancer")
    problem = make_problem({"task": "tabular", **LEARNED, "data": {"label": "cancer"}})
    run = rw.train(problem, train=frame)
    run.export(tmp_path / "cells.onnx")
    monkeypatch.chdir(tmp_path)
    page = next(each for each in PAGES if each.name == "serve.md")
    (service,) = (block for block in blocks(page) if block.title == "service.py")
    assert len([line for line in service.text.splitlines() if line.strip()]) <= 15
    session = {"__name__": "service"}
    exec(service.text, session)
    rows = [{"site": "left", "mean_radius": 12.0}, {"mean_radius": None, "site": "right"}, {"mean_radius": 12.0}]
    table = pl.DataFrame({"site": ["left", "right", None], "mean_radius": [12.0, None, 12.0]})
    answer = TestClient(session["app"]).post("/scores", json=rows).json()
    assert len({round(score, 4) for score in answer}) == 3
    assert answer == pytest.approx(run.predict(table).outputs.tolist(), abs=1e-5)


class Drifting(nn.Module):
    """A model whose scores change from call to call, which no exported file can repeat."""

    calls = 0  # of all copies

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, features):
        Drifting.calls += 1
        return self.layer(features).squeeze(1) + Drifting.calls


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_file_that_differs_from_the_run_is_not_written(trained, tmp_path, suffix):
    run, _ = trained("pap")
    other = rw.runs.Run(run.problem, run.schema, Drifting().eval(), run.history, run.record)
    path = tmp_path / f"model.{suffix}"
    path.write_bytes(b"before")
    with pytest.raises(ValueError, match=rf"model\.{suffix}: not written, as the exported model and the run differ by"):
        other.export(path)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_onnx_without_its_packages_is_one_sentence(trained, tmp_path, monkeypatch):
    run, _ = trained("pap")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(
        ModuleNotFoundError, match=r"checked by ONNX Runtime, needs onnxruntime: pip .*rankwise\[export"
    ):
        run.export(tmp_path / "model.onnx")
    assert run.export(tmp_path / "model.pt2").difference <= 1e-5


def test_a_model_by_history_keeps_no_names_of_users(exported):
    by_history = exported("recsys", "pt2").metadata["schema"]
    by_user = exported("matrix-factorisation", "pt2").metadata["schema"]
    assert "users" not in by_history
    assert len(by_user["users"]) == 40
    assert by_history["items"] == by_user["items"]


def test_a_file_names_no_folder_of_the_machine(exported):
    onnx = exported("ltr", "onnx").path.read_bytes()
    archive = zipfile.ZipFile(exported("ltr", "pt2").path)
    for content in (onnx, *(archive.read(name) for name in archive.namelist())):
        assert b"site-packages" not in content
        assert b"interfaces.py" not in content


def test_the_command_prints_inputs_outputs_and_the_check(folder, trained, tmp_path, capsys, monkeypatch):
    run, source = trained("pap")
    run.save(tmp_path / "run")
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "m.pt2"), "--data", str(source)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "input features float32 (rows, 3)" in printed
    assert "output scores float32 (rows)" in printed
    assert "Checked on 64 rows of" in printed
    assert main(["--json", "export", str(tmp_path / "run"), str(tmp_path / "m.pt2")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["difference"] <= 1e-5
    assert found["metadata"]["inputs"]["features"]["columns"] == ["x", "y", "z"]


@pytest.mark.parametrize(
    "out, said",
    [("model.h5", "expected .onnx or .pt2, got 'model.h5'"), ("nowhere/model.onnx", "the folder 'nowhere' does not")],
)
def test_the_command_refuses_other_files(tmp_path, capsys, monkeypatch, out, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    assert main(["export", "run", out]) == 2
    assert said in capsys.readouterr().err


def test_detection_says_why_it_cannot_be_exported(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    recipe = {"task": "detection", **SHORT, "budget": {"steps": 1}, **RECIPES["detection"]}
    run = rw.train(make_problem(recipe))
    with pytest.raises(ValueError, match="got detection: the number of its boxes"):
        run.export(tmp_path / "model.onnx")
