"""From a raw file to predictions, for every kind of data: train without a recipe, then use the run."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys

import numpy as np
import polars as pl
import pytest
import torch

import rankwise as rw
from rankwise.cli import main
from workers.kinds import write_kinds

pytestmark = pytest.mark.filterwarnings("ignore::rankwise.data.DataNote")
SHORT = ["budget.steps=4", "evaluation.every=4"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    pytest.importorskip("torchvision")
    folder = tmp_path_factory.mktemp("data")
    write_kinds(folder)
    return folder


@pytest.fixture
def here(data, tmp_path, monkeypatch):
    """A folder that holds nothing but the data."""
    for name in ("rows.csv", "queries.txt", "users.csv", "clicks.csv", "labels.txt", "classes.csv", "photos", "scenes"):
        source = data / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rankwise(*arguments) -> None:
    assert main([str(each) for each in arguments]) == 0


def rows_of(path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_table(here, capsys):
    rankwise("train", "rows.csv", *SHORT)
    shown = capsys.readouterr().out
    assert "tabular" in shown
    assert "rankwise predict runs/rows --data new.csv --out scores.csv" in shown.replace("\n", " ")
    table = pl.read_csv("rows.csv")
    label = table.columns[-1]
    table.drop(label).select(reversed(table.columns[:-1])).with_columns(id=pl.lit("x")).write_csv("new.csv")
    (here / "rows.csv").unlink()
    shutil.move("runs/rows", "elsewhere")
    rankwise("predict", "elsewhere", "--data", "new.csv", "--out", "scores.csv", "--keep", "id")
    scores = rows_of("scores.csv")
    assert [list(scores[0]), len(scores)] == [["row", "id", "score"], len(table)]
    run = rw.load_run("elsewhere")
    whole = run.predict(table)
    written = torch.tensor([float(row["score"]) for row in scores])
    torch.testing.assert_close(written, whole.outputs, rtol=1e-6, atol=1e-6)
    rankwise("predict", "elsewhere", "--data", "new.csv", "--out", "chances.parquet", "--probabilities")
    chances = pl.read_parquet("chances.parquet")["probability"].to_numpy()
    assert ((chances > 0) & (chances < 1)).all()
    assert (np.argsort(chances) == np.argsort(whole.outputs.numpy().astype(np.float64))).mean() > 0.99


def test_a_file_that_is_read_is_not_written(here, capsys):
    rankwise("train", "rows.csv", *SHORT)
    table, scores = (here / "rows.csv").read_bytes(), here / "runs" / "rows" / "test-scores.csv"
    (here / "link.csv").symlink_to("rows.csv")
    shutil.copy(scores, "a.csv")
    shutil.copy(scores, "b.csv")
    capsys.readouterr()
    for arguments in (
        ["predict", "runs/rows", "--data", "rows.csv", "--out", "rows.csv"],
        ["predict", "runs/rows", "--data", "link.csv", "--out", "./rows.csv"],
        ["predict", "runs/rows", "--data", "rows.csv", "--out", "link.csv"],
        ["evaluate", "a.csv", "--report", "a.csv"],
        ["evaluate", "runs/rows", "--data", "rows.csv", "--scores-out", "rows.csv"],
        ["compare", "a.csv", "b.csv", "--report", "b.csv"],
        ["audit", "a.csv", "--out", "a.csv"],
    ):
        assert main(arguments) == 2
        assert "is read, and would be lost; expected another file" in capsys.readouterr().err.replace("\n", " ")
    assert (here / "rows.csv").read_bytes() == table
    assert (here / "a.csv").read_bytes() == (here / "b.csv").read_bytes() == scores.read_bytes()


def test_a_letor_file(here):
    rankwise("train", "queries.txt", *SHORT)
    rankwise("predict", "runs/queries", "--data", "queries.txt", "--out", "ranked.csv", "--ranked")
    ranked = rows_of("ranked.csv")
    for query in {row["query"] for row in ranked}:
        own = [row for row in ranked if row["query"] == query]
        assert [int(row["rank"]) for row in own] == list(range(1, len(own) + 1))
        scores = [float(row["score"]) for row in own]
        assert scores == sorted(scores, reverse=True)


def test_a_table_of_queries(here, capsys):
    rankwise("train", "users.csv", "--label", "liked", "--query", "user", *SHORT)
    assert "ltr" in capsys.readouterr().out
    rankwise("predict", "runs/users", "--data", "users.csv", "--out", "scores.jsonl")
    first = json.loads((here / "scores.jsonl").read_text().splitlines()[0])
    assert list(first) == ["row", "score", "label", "query"]


def test_the_first_of_each_list(here, capsys):
    rankwise("train", "users.csv", "--task", "pap", "--label", "liked", "--query", "user", *SHORT)
    assert "pap" in capsys.readouterr().out
    table = pl.read_csv("users.csv")
    table.drop("liked").select(reversed(table.columns[:-1])).sample(fraction=1, shuffle=True, seed=0).write_csv(
        "new.csv"
    )
    (here / "users.csv").unlink()
    rankwise("predict", "runs/users", "--data", "new.csv", "--out", "ranked.csv", "--ranked")
    ranked = rows_of("ranked.csv")
    assert len(ranked) == len(table)
    assert sum(row["rank"] == "1" for row in ranked) == table["user"].n_unique()


def test_ratings(here):
    rankwise("train", "clicks.csv", *SHORT)
    clicks = pl.read_csv("clicks.csv")
    rankwise("recommend", "runs/clicks", "--out", "all.csv", "-k", 5)
    chosen = set(map(tuple, clicks.select("user", "item").iter_rows()))
    everyone = rows_of("all.csv")
    assert len(everyone) == 5 * clicks["user"].n_unique()
    assert not chosen & {(row["user"], row["item"]) for row in everyone}
    pl.DataFrame({"user": ["<i>u3", "<i>u1"]}).write_csv("users.csv")
    rankwise("recommend", "runs/clicks", "--users", "users.csv", "--out", "some.csv", "-k", 5)
    some = rows_of("some.csv")
    assert [row["user"] for row in some] == ["<i>u3"] * 5 + ["<i>u1"] * 5
    same = [row for row in everyone if row["user"] == "<i>u3"]
    assert [row["item"] for row in some[:5]] == [row["item"] for row in same]
    assert [float(row["score"]) for row in some[:5]] == pytest.approx([float(row["score"]) for row in same], rel=1e-5)
    liked = clicks["item"].unique().sort().head(3)
    pl.DataFrame({"user": ["newcomer"] * 3, "item": liked}).write_csv("new.csv")
    with pytest.warns(UserWarning, match="are not in the training data"):
        lists = rw.load_run("runs/clicks").recommend("new.csv", k=4)
    assert lists.names == ("newcomer",)
    assert not set(liked) & set(lists.columns()["item"])


def test_many_labels(here):
    rankwise("train", "labels.txt", *SHORT)
    rankwise("predict", "runs/labels", "--data", "labels.txt", "--out", "scores.parquet")
    scores = pl.read_parquet("scores.parquet").drop("row").to_numpy()
    assert scores.shape == (120, 12)
    rankwise("predict", "runs/labels", "--data", "labels.txt", "--out", "chances.parquet", "--probabilities")
    chances = pl.read_parquet("chances.parquet").drop("row").to_numpy()
    assert ((chances > 0) & (chances < 1)).all()
    assert np.corrcoef(scores.ravel(), np.log(chances / (1 - chances)).ravel())[0, 1] == pytest.approx(1, abs=1e-4)


def test_images_of_a_long_tail(here):
    rankwise("train", "photos", "--task", "longtail", *SHORT, "batches.size=16")
    rankwise("predict", "runs/photos", "--data", "photos", "--out", "scores.csv", "--probabilities")
    scores = rows_of("scores.csv")
    assert list(scores[0]) == ["row", *sorted(folder.name for folder in here.glob("photos/*"))]
    assert sorted(row["row"] for row in scores) == sorted(path.name for path in here.glob("photos/*/*.png"))


def test_images_by_class(here):
    rankwise("train", "photos", *SHORT, "data.held_out=images", "batches={classes: 5, samples_per_class: 3}")
    rankwise("search", "runs/photos", "--queries", "photos", "--out", "nearest.csv", "-k", 3)
    nearest = rows_of("nearest.csv")
    images = sum(1 for _ in here.glob("photos/*/*.png"))
    assert len(nearest) == 3 * images
    assert all(row["query"] != row["match"] for row in nearest)
    rankwise("embed", "runs/photos", "--data", "photos", "--out", "vectors.npz")
    vectors = torch.from_numpy(np.load("vectors.npz")["vectors"])
    names = [path.name for path in sorted(here.glob("photos/*/*.png"), key=str)]
    best = (vectors @ vectors.T).fill_diagonal_(-2).argmax(1)
    for row in nearest[:30:3]:
        assert row["match"] == names[int(best[names.index(row["query"])])]


def test_boxes(here):
    rankwise("train", "scenes/boxes.json", *SHORT, "data.height=48", "data.width=64", "batches.size=6")
    images = next(here.glob("scenes/**/*.png")).parent
    rankwise("detect", "runs/boxes", "--images", images, "--out", "boxes.json", "--drawings", "drawn")
    boxes = json.loads((here / "boxes.json").read_text())
    assert {"image_id", "file_name", "category", "bbox", "score"} <= set(boxes[0])
    assert all(0 <= box["score"] <= 1 for box in boxes)
    assert len(list((here / "drawn").glob("*.png"))) == 40


def test_rows_that_find_each_other(here):
    rankwise("train", "classes.csv", "--label", "kind", "--task", "retrieval", *SHORT)
    rankwise("search", "runs/classes", "--queries", "classes.csv", "--out", "nearest.jsonl", "-k", 2)
    assert len((here / "nearest.jsonl").read_text().splitlines()) == 2 * 180


def test_standard_input_and_output(here, capsysbinary, monkeypatch):
    rankwise("train", "rows.csv", *SHORT)
    capsysbinary.readouterr()
    rankwise("predict", "runs/rows", "--data", "rows.csv", "--out", "-")
    expected = capsysbinary.readouterr().out
    content = (here / "rows.csv").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    rankwise("predict", "runs/rows", "--data", "-", "--out", "-")
    assert capsysbinary.readouterr().out == expected
    assert expected.startswith(b"row,score,label\n1,")


def test_a_finished_run_goes_on(here):
    rankwise("train", "rows.csv", *SHORT)
    rankwise("train", "--from", "runs/rows", *SHORT, "--out", "more")
    first, more = rw.load_run("runs/rows"), rw.load_run("more")
    assert more.record["begun_from"] == "runs/rows"
    # The same validation part: the run goes on from the quality that the first had reached.
    reached = first.inspect(part="validation", bootstrap=0).evaluation.means["ap"]
    assert more.history.metrics[0]["ap"] == pytest.approx(reached)
    table = pl.read_csv("rows.csv")
    table.sample(fraction=0.8, seed=1).select(reversed(table.columns)).write_csv("newer.csv")
    rankwise("train", "--from", "runs/rows", "newer.csv", *SHORT, "--out", "newer")
    newer = rw.load_run("newer")
    assert newer.schema == first.schema
    assert newer.record["recipe"]["data"]["train"] == "newer.csv"
    scaling = {name: value for name, value in newer.model.state_dict().items() if "mean" in name}
    assert all(torch.equal(value, first.model.state_dict()[name]) for name, value in scaling.items())


def test_a_kept_column_is_not_called_ignored(here, recwarn):
    rankwise("train", "rows.csv", *SHORT)
    table = pl.read_csv("rows.csv").with_row_index("id")
    run = rw.load_run("runs/rows")
    recwarn.clear()
    assert run.predict(table, keep=["id"]).kept["id"] == list(range(len(table)))
    assert not recwarn.list
    with pytest.warns(rw.data.DataNote, match="ignored 1 columns"):
        run.predict(table)


def test_a_letor_file_is_scored_in_chunks(here, monkeypatch):
    rankwise("train", "queries.txt", *SHORT)
    run = rw.load_run("runs/queries")
    whole = run.predict("queries.txt")
    monkeypatch.setattr("rankwise.data.letor.BLOCK_BYTES", 2000)
    chunks = list(run.predict_chunks("queries.txt"))
    assert len(chunks) > 3
    assert max(map(len, chunks)) < len(whole) / 3
    torch.testing.assert_close(torch.cat([chunk.outputs for chunk in chunks]), whole.outputs)
    joined = run.predict("queries.txt")
    assert torch.equal(joined.query_ids, whole.query_ids)
    assert torch.equal(joined.labels, whole.labels)


def test_progress_ends_at_one(here, monkeypatch):
    monkeypatch.setattr("rankwise.runs.run.IMAGES_AT_ONCE", 7)
    monkeypatch.setattr("rankwise.runs.run.SCORES_AT_ONCE", 64)
    rankwise("train", "photos", *SHORT, "data.held_out=images", "batches={classes: 5, samples_per_class: 3}")
    rankwise("train", "clicks.csv", *SHORT)
    rankwise("train", "scenes/boxes.json", *SHORT, "data.height=48", "data.width=64", "batches.size=6")
    shares: list[float] = []
    images = next(here.glob("scenes/**/*.png")).parent
    whole = rw.load_run("runs/boxes").detect(images, on_progress=shares.append)
    assert sorted(set(whole.boxes.image.tolist())) == list(range(40))
    for verb in (
        lambda: rw.load_run("runs/photos").search("photos", on_progress=shares.append),
        lambda: rw.load_run("runs/clicks").recommend(on_progress=shares.append),
    ):
        assert len(shares) > 2
        assert shares == sorted(shares)
        assert shares[-1] == 1.0
        shares.clear()
        verb()


def test_a_device_that_is_not_there_is_named(here, capsys):
    rankwise("train", "rows.csv", *SHORT)
    assert main(["predict", "runs/rows", "--data", "rows.csv", "--out", "scores.csv", "--device", "abacus"]) == 2
    assert "device: expected auto, cpu or a device of this machine, got 'abacus'" in capsys.readouterr().err
    rankwise("predict", "runs/rows", "--data", "rows.csv", "--out", "scores.csv", "--device", "cpu")


@pytest.mark.parametrize("verb", ["recommend", "search", "detect"])
def test_a_verb_of_another_kind_names_the_right_one(here, capsys, verb):
    if not (here / "runs").exists():
        rankwise("train", "rows.csv", *SHORT)
    argument = {"recommend": (), "search": ("--queries", "rows.csv"), "detect": ("--images", "photos")}[verb]
    out = "out.json" if verb == "detect" else "out.csv"
    assert main([verb, "runs/rows", *argument, "--out", out]) == 2
    assert "use predict" in capsys.readouterr().err
    assert not (here / out).exists()
