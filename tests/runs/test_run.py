"""Runs: trained in memory or to a folder, opened anywhere, used without the training data."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

import rankwise as rw
from rankwise.cli import main
from rankwise.data import DataNote
from rankwise.problems import Tabular
from rankwise.runs import RunFolder, continue_run, train_seeds
from rankwise.runs.folder import RECORD
from workers.folders import lock_folder
from workers.patience import PATIENCE
from workers.processes import Program
from workers.rows import write_table

SHORT = {"budget": {"steps": 8}, "evaluation": {"every": 4}}


def rows(count=300, seed=0):
    random = np.random.default_rng(seed)
    X = random.normal(size=(count, 4))
    return X, (X[:, 0] + 0.5 * random.normal(size=count) > 1).astype(int)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run on a file, and the file."""
    path = write_table(tmp_path_factory.mktemp("rows") / "rows.csv")
    problem = Tabular(data={"train": str(path), "label": "ill"}, **SHORT)
    return rw.train(problem, out=path.parent / "run"), path


def test_arrays_are_trained_on_in_memory_and_the_run_is_saved_later(tmp_path):
    X, y = rows()
    run = rw.train(Tabular(**SHORT), train=(X, y))
    assert run.folder is None
    assert run.finished
    run.save(tmp_path / "run")
    opened = rw.load_run(tmp_path / "run")
    assert torch.equal(opened.predict(X).outputs, run.predict(X).outputs)
    assert opened.history.metrics == run.history.metrics
    assert opened.finished
    with pytest.raises(FileExistsError, match="expected a folder without a run"):
        run.save(tmp_path / "run")


def test_validation_and_test_may_be_given_apart():
    run = rw.train(Tabular(**SHORT), train=rows(seed=0), validation=rows(seed=1), test=rows(seed=2))
    assert run.test.means == run.evaluate(rows(seed=2)).means
    assert len(run.part("test")) == 300


def test_a_frame_is_scored_by_the_names_of_its_columns(trained):
    run, path = trained
    frame = pl.read_csv(path)
    expected = run.predict(path).outputs
    assert torch.equal(run.predict(frame.select(sorted(frame.columns, reverse=True))).outputs, expected)
    with pytest.warns(DataNote, match="ignored 1 columns that the training data did not have: patient"):
        assert torch.equal(run.predict(frame.with_columns(patient=pl.lit("x"))).outputs, expected)


def test_all_missing_columns_are_named_in_one_error(trained):
    run, path = trained
    with pytest.raises(ValueError, match="expected all columns of the training data, got none called 'a', 'c'"):
        run.predict(pl.read_csv(path).drop("a", "c"))


def test_scores_do_not_need_labels_and_figures_do(trained):
    run, path = trained
    unlabelled = pl.read_csv(path).drop("ill")
    assert len(run.predict(unlabelled)) == 400
    with pytest.raises(ValueError, match="polars frame: expected the label column 'ill', got none"):
        run.evaluate(unlabelled)


def test_the_label_may_be_the_first_column(tmp_path):
    frame = pl.read_csv(write_table(tmp_path / "rows.csv"))
    frame.select("ill", pl.exclude("ill")).write_csv(tmp_path / "first.csv")
    run = rw.train(Tabular(data={"label": "ill"}, **SHORT), train=tmp_path / "first.csv")
    assert torch.equal(run.predict(frame).outputs, run.predict(tmp_path / "first.csv").outputs)


def test_missing_cells_become_the_median_of_the_training_part(tmp_path):
    X, y = rows()
    frame = pl.DataFrame({**{f"x{i}": X[:, i] for i in range(4)}, "y": y})
    holes = frame.with_columns(pl.when(pl.int_range(300) % 7 > 0).then(pl.col("x1")).alias("x1"))
    problem = Tabular(data={"label": "y", "missing": "median"}, **SHORT)
    run = rw.train(problem, train=holes)
    median = run.part("train").features[:, 1].nanmedian()
    layer = run.model.scaling
    assert abs(float(layer.median[1]) - float(median)) < 0.2
    # The new table has another median; its missing cell is filled with that of the training part.
    shifted = frame.with_columns(pl.col("x1") + 50)
    one = shifted.with_columns(pl.when(pl.int_range(300) > 0).then(pl.col("x1")).alias("x1"))
    filled = shifted.with_columns(
        pl.when(pl.int_range(300) > 0).then(pl.col("x1")).otherwise(float(layer.median[1])).alias("x1")
    )
    torch.testing.assert_close(run.predict(one).outputs, run.predict(filled).outputs)


def test_columns_that_float32_cannot_hold_apart_are_told_apart(tmp_path):
    random = np.random.default_rng(0)
    seconds = random.integers(0, 600, size=400)
    y = (seconds > 500).astype(int)
    frame = pl.DataFrame({"time": 1_700_000_000 + seconds, "noise": random.normal(size=400), "y": y})
    problem = Tabular(data={"label": "y"}, budget={"steps": 100}, optimiser={"learning_rate": 0.01})
    run = rw.train(problem, train=frame, out=tmp_path / "run")
    assert run.test.means["ap"] > 0.99
    again = rw.load_run(tmp_path / "run")
    assert torch.equal(again.predict(frame).outputs, run.predict(frame).outputs)


def test_three_classes_ask_for_the_positive_one(tmp_path):
    X, _ = rows()
    labels = np.array(["cat", "dog", "emu"])[np.arange(300) % 3]
    frame = pl.DataFrame({"x": X[:, 0], "kind": labels})
    with pytest.raises(ValueError, match=r"expected labels of two kinds, got 3: .*'dog' \(100 rows\).*data\.positive"):
        rw.train(Tabular(**SHORT), train=frame)
    run = rw.train(Tabular(data={"positive": "dog"}, **SHORT), train=frame)
    assert run.schema.classes == ("not dog", "dog")
    assert int(run.schema.read(frame).labels.sum()) == 100


def test_a_run_is_used_from_another_folder_without_its_data(trained, tmp_path):
    run, path = trained
    expected = run.predict(path).outputs
    shutil.copytree(run.folder, tmp_path / "moved")
    shutil.copy(path, tmp_path / "new.csv")
    record = tmp_path / "moved" / "run.json"
    record.write_text(record.read_text().replace(str(path), "/nowhere/rows.csv"))
    opened = rw.load_run(tmp_path / "moved")
    assert torch.equal(opened.predict(tmp_path / "new.csv").outputs, expected)
    with pytest.raises(FileNotFoundError, match=r"/nowhere/rows\.csv"):
        opened.evaluate()  # the test part is cut from the training data


def test_several_seeds_are_opened_together(tmp_path):
    problem = Tabular(seeds=(3, 4), **SHORT)
    with pytest.raises(ValueError, match=r"seeds: expected one, got 2; rankwise\.train_seeds"):
        rw.train(problem, train=rows())
    rw.train_seeds(problem, sources={"train": rows()}, out=tmp_path)
    assert [run.record["seed"] for run in rw.load_runs(tmp_path)] == [3, 4]
    with pytest.raises(ValueError, match=r"holds the runs seed-3, seed-4: load_runs opens them"):
        rw.load_run(tmp_path)


def test_only_one_training_writes_to_a_folder(tmp_path):
    with RunFolder(tmp_path).locked():
        _, err = Program(lock_folder, tmp_path).communicate(timeout=PATIENCE)
    assert "another training writes to this folder (process " in err
    with RunFolder(tmp_path).locked():
        pass


def test_a_run_that_another_training_wrote_meanwhile_is_not_overwritten(tmp_path, monkeypatch):
    read = Tabular.read

    def meanwhile(problem, sources):
        (tmp_path / "run.json").write_text("theirs")
        return read(problem, sources)

    monkeypatch.setattr(Tabular, "read", meanwhile)
    with pytest.raises(FileExistsError, match=r"expected no run, got one that another training wrote since"):
        rw.train(Tabular(**SHORT), train=rows(), out=tmp_path)
    assert (tmp_path / "run.json").read_text() == "theirs"


def train_as_before(path, folder, **data):
    """Train as version 0.1 did, and write the folder in its format."""
    alone = {"model": {"ensemble": None}, "refit": False}
    run = rw.train(Tabular(data={"train": str(path), "label": "ill", **data}, **alone, **SHORT), out=folder / "run")
    old = folder / "old"
    shutil.copytree(run.folder, old)
    record = json.loads((old / "run.json").read_text())
    recipe = {**record["recipe"], "place": record["recipe"].pop("device")}
    for key in ("device", "refit"):
        recipe.pop(key, None)
    recipe["model"].pop("ensemble")
    (old / "record.json").write_text(json.dumps({**record, "recipe": recipe}))
    for name in ("run.json", "schema.json", "model.safetensors"):
        (old / name).unlink()
    return run, old


def test_a_run_of_an_older_format_is_migrated_once(tmp_path):
    path = write_table(tmp_path / "rows.csv")
    run, old = train_as_before(path, tmp_path)
    with pytest.warns(FutureWarning) as warned:
        opened = rw.load_run(old)
    assert any("from format 1" in str(each.message) for each in warned)
    torch.testing.assert_close(opened.predict(path).outputs, run.predict(path).outputs)
    assert torch.equal(rw.load_run(old).predict(path).outputs, opened.predict(path).outputs)


def test_a_run_of_an_older_format_keeps_the_columns_that_are_left_out_today(tmp_path):
    """Version 0.1 used every column, also one of numbers of rows."""
    path = write_table(tmp_path / "rows.csv")
    head, *lines = path.read_text().splitlines()
    path.write_text("\n".join([f"row_id,{head}", *(f"{number},{line}" for number, line in enumerate(lines))]) + "\n")
    every = head.split(",")
    every.remove("ill")
    run, old = train_as_before(path, tmp_path, features=["row_id", *every])
    record = json.loads((old / "record.json").read_text())
    del record["recipe"]["data"]["features"]
    (old / "record.json").write_text(json.dumps(record))
    with pytest.warns(FutureWarning):
        opened = rw.load_run(old)
    assert opened.schema.features == run.schema.features == ("row_id", *every)
    torch.testing.assert_close(opened.predict(path).outputs, run.predict(path).outputs)


def test_a_run_of_an_older_format_whose_data_have_changed_is_refused(tmp_path):
    path = write_table(tmp_path / "rows.csv")
    _, old = train_as_before(path, tmp_path)
    head, *lines = path.read_text().splitlines()
    path.write_text("\n".join([f"{head},more", *(f"{line},{number % 7}" for number, line in enumerate(lines))]) + "\n")
    changed = pytest.raises(ValueError, match=f"{old}: the run does not fit its training data")
    with pytest.warns(FutureWarning, match="'place' is now called 'device'"), changed:
        rw.load_run(old)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"recipe": 1}', '{"recipe": {"task": "none"}}'])
def test_a_record_of_an_older_format_that_is_none_is_refused_by_name(content, tmp_path):
    (tmp_path / "record.json").write_text(content)
    with pytest.raises(ValueError, match=r"record\.json: expected the record of a run"):
        rw.load_run(tmp_path)


def test_a_run_of_an_older_format_needs_its_training_data_once(trained, tmp_path):
    run, _ = trained
    record = json.loads((run.folder / "run.json").read_text())
    (tmp_path / "record.json").write_text(json.dumps({**record, "data": {"/nowhere.csv": "0"}}))
    with pytest.raises(ValueError, match=r"written by rankwise 0\.1, which saved no schema.* needs /nowhere\.csv"):
        rw.load_run(tmp_path)


def test_a_half_copied_run_gives_the_same_or_is_refused(tmp_path, monkeypatch, capsys):
    """Whichever file is missing: never other scores. The checkpoints lack the refit and the closed form."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    pairs = [f"u{user},i{item},{time}" for user in range(14) for time, item in enumerate(random.permutation(12)[:6])]
    Path("pairs.csv").write_text("\n".join(["user,item,time", *pairs]) + "\n")
    Path("pairs.yaml").write_text(
        "task: recsys\ndata: {train: pairs.csv, leave_one_out: time, time: time}\nmodel: {dimensions: 4}\n"
        "batches: {users: 5}\nbudget: {steps: 4}\nevaluation: {every: 2}\n"
    )
    assert main(["train", "pairs.yaml", "--out", "run"]) == 0
    assert main(["recommend", "run", "--out", "all.csv", "-k", "3"]) == 0
    refused = {}
    for name in sorted(path.name for path in Path("run").iterdir()):
        shutil.copytree("run", "half", ignore=shutil.ignore_patterns(name))
        capsys.readouterr()
        if main(["recommend", "half", "--out", "half.csv", "-k", "3"]):
            refused[name] = capsys.readouterr().err
        else:
            assert Path("half.csv").read_bytes() == Path("all.csv").read_bytes(), name
        shutil.rmtree("half")
    assert refused.keys() == {"run.json", "schema.json", "schema.safetensors", "model.safetensors"}
    assert all(f"got no {name} in it" in said for name, said in refused.items())


def test_a_run_that_is_not_over_says_so_when_it_is_used(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "rows.csv")
    Path("rows.yaml").write_text("task: tabular\ndata: {train: rows.csv}\nbudget: {steps: 4}\nevaluation: {every: 2}\n")
    assert main(["train", "rows.yaml", "--out", "run"]) == 0
    for name in ("model.safetensors", "test.json"):
        Path("run", name).unlink()
    record = json.loads(Path("run", "run.json").read_text())
    Path("run", "run.json").write_text(json.dumps({key: record[key] for key in record if key != "settings"}))
    assert main(["predict", "run", "--data", "rows.csv", "--out", "scores.csv"]) == 0
    assert "the run is not over; these are its best weights so far" in capsys.readouterr().err


class _Killed(BaseException):
    """Ends a training as SIGKILL would: nothing catches it, nothing is written after it."""


def kill_after_first_record(monkeypatch):
    """End the training as soon as its folder holds a run."""
    write = RunFolder.write_start

    def write_and_end(*arguments, **options):
        write(*arguments, **options)
        raise _Killed

    monkeypatch.setattr(RunFolder, "write_start", write_and_end)


def test_a_continued_run_that_is_killed_at_its_start_goes_on_from_the_same_weights(trained, tmp_path, monkeypatch):
    run, _ = trained
    straight = continue_run(run.folder, out=tmp_path / "straight")
    with monkeypatch.context() as patched:
        kill_after_first_record(patched)
        with pytest.raises(_Killed):
            continue_run(run.folder, out=tmp_path / "killed")
    assert (tmp_path / "killed" / RECORD).is_file()
    (again,) = train_seeds(straight.problem, out=tmp_path / "killed", resume=True)
    assert again.history.losses == straight.history.losses
    for name, value in straight.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], value), name


def test_a_continued_run_does_not_go_on_from_other_weights(trained, tmp_path):
    run, _ = trained
    shutil.copytree(run.folder, tmp_path / "first")
    changes = ["evaluation={every: null, weights: last}"]
    more = continue_run(tmp_path / "first", changes=changes, out=tmp_path / "more")
    continue_run(tmp_path / "more", changes=changes, out=tmp_path / "further")
    shutil.copy(tmp_path / "further" / "model.safetensors", tmp_path / "first")
    with pytest.raises(ValueError, match=r"the weights of .*first, from which it began, changed since"):
        train_seeds(more.problem, out=tmp_path / "more", resume=True)


def test_a_run_continued_from_memory_is_not_resumed_from_nothing(tmp_path):
    X, y = rows()
    run = rw.train(Tabular(**SHORT), train=(X, y))
    more = continue_run(run, train=(X, y), out=tmp_path / "more")
    with pytest.raises(ValueError, match="it began with the weights of a run in memory, which is gone"):
        train_seeds(more.problem, sources={"train": (X, y)}, out=tmp_path / "more", resume=True)
