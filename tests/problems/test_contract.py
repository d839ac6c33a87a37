"""Every kind of problem passes the public contract."""

from __future__ import annotations

import json
import random

import numpy as np
import pandas as pd
import polars as pl
import pytest
from PIL import Image
from scipy import sparse

from rankwise.data import DataNote, read_table
from rankwise.problems import (
    Bipartite,
    Detection,
    ImageRetrieval,
    LongTail,
    MultiLabel,
    Recommendation,
    Retrieval,
    SearchRanking,
    Tabular,
)
from rankwise.testing import check_problem
from workers.boxed_pictures import write_coco, write_voc
from workers.pictures import make_pictures
from workers.rows import write_queries, write_table, write_users

SHORT = {"budget": {"steps": 6}, "evaluation": {"every": 3}}


def table_variants(path, label):
    """Forms of a table that say the same, and tables that must be refused."""
    frame = pl.read_csv(path)
    names = list(frame.columns)
    random.Random(0).shuffle(names)
    feature = next(name for name in frame.columns if name != label)
    folder = path.parent
    frame.select(names).write_csv(folder / "shuffled.csv")
    frame.with_columns(further=pl.lit("x"), another=pl.lit(1)).write_parquet(folder / "extra.parquet")
    frame.drop(label).select([name for name in names if name != label]).write_ipc(folder / "unlabelled.arrow")
    header, *lines = path.read_text().splitlines()
    (folder / "doubled.csv").write_text("\n".join([f"{header},{feature}", *(f"{line},1" for line in lines)]) + "\n")
    same = {
        "in another order": folder / "shuffled.csv",
        "with further columns": folder / "extra.parquet",
        "without labels": folder / "unlabelled.arrow",
        "a polars frame": frame,
        "a pandas frame": pd.DataFrame(frame.to_dict(as_series=False)),
    }
    refused = {
        "without a column": frame.drop(feature),
        "with a column twice": folder / "doubled.csv",
        "with text in a column": frame.with_columns(pl.lit("much").alias(feature)),
        "empty": frame.head(0),
    }
    return same, refused


def test_ltr(tmp_path):
    write_queries(tmp_path / "queries.txt")
    part, schema = read_table(tmp_path / "queries.txt")
    frame = pl.DataFrame({name: part.features[:, index].numpy() for index, name in enumerate(schema.features)})
    frame = frame.with_columns(qid=part.query_ids.numpy(), label=part.labels.numpy())
    frame.write_csv(tmp_path / "queries.csv")
    same, refused = table_variants(tmp_path / "queries.csv", "label")
    refused["without its queries"] = frame.drop("qid")
    problem = SearchRanking(batches={"queries": 8}, **SHORT)
    sources = {"train": tmp_path / "queries.txt"}
    check_problem(problem, sources, tmp_path / "queries.txt", same=same, refused=refused, ignoring=[DataNote])


def test_pap(tmp_path):
    write_users(tmp_path / "users.csv")
    frame = pl.read_csv(tmp_path / "users.csv")
    same = {"in another order": frame.select(sorted(frame.columns)), "without labels": frame.drop("liked")}
    refused = {"without a column": frame.drop("x"), "without its users": frame.drop("user")}
    problem = Bipartite(k=3, data={"label": "liked", "query": "user"}, batches={"users": 10}, **SHORT)
    check_problem(problem, {"train": tmp_path / "users.csv"}, frame, same=same, refused=refused)


def test_retrieval(tmp_path):
    random = np.random.default_rng(0)
    kinds = np.arange(120) % 6
    columns = {name: random.normal(size=120) + kinds for name in ("a", "b", "c")}
    frame = pl.DataFrame({**columns, "kind": [f"k{kind}" for kind in kinds]})
    frame.write_csv(tmp_path / "kinds.csv")
    same, refused = table_variants(tmp_path / "kinds.csv", "kind")
    same["of classes unknown in training"] = frame.with_columns(kind=pl.lit("new"))
    problem = Retrieval(data={"label": "kind"}, batches={"classes": 4}, **SHORT)
    check_problem(problem, {"train": tmp_path / "kinds.csv"}, frame, same=same, refused=refused, ignoring=[DataNote])


@pytest.mark.parametrize("kind", [ImageRetrieval, LongTail])
def test_images(tmp_path, kind):
    pytest.importorskip("PIL")
    images, labels = make_pictures(classes=6, each=12, size=16)
    pixels = images[:, 0].numpy()
    np.savez(tmp_path / "train.npz", images=pixels, labels=labels.numpy())
    np.savez(tmp_path / "unlabelled.npz", images=pixels)
    np.savez(tmp_path / "damaged.npz", labels=labels.numpy())
    data = {"size": 16, "channels": 1, "validation": 0.2, "test": 0.2}
    batches = {"size": 16}
    if kind is ImageRetrieval:
        data, batches = {**data, "held_out": "images"}, {"classes": 3, "samples_per_class": 3}
    problem = kind(data=data, batches=batches, **SHORT)
    same = {"without labels": tmp_path / "unlabelled.npz", "an array": pixels}
    refused = {"without images": tmp_path / "damaged.npz", "of numbers beyond any range": pixels * 1e6}
    source = tmp_path / "train.npz"
    check_problem(problem, {"train": source}, source, same=same, refused=refused, ignoring=[DataNote])


def test_tabular(tmp_path):
    path = write_table(tmp_path / "rows.csv")
    same, refused = table_variants(path, "ill")
    problem = Tabular(data={"label": "ill"}, **SHORT)
    check_problem(problem, {"train": path}, path, same=same, refused=refused, ignoring=[DataNote])


@pytest.fixture
def clicks(tmp_path):
    rng = np.random.default_rng(0)
    rows = [(f"u{user}", f"i{item}", int(rng.integers(9))) for user in range(12) for item in rng.permutation(10)[:5]]
    frame = pl.DataFrame(rows, schema=["who", "what", "when"], orient="row")
    frame.write_csv(tmp_path / "clicks.csv")
    return frame


@pytest.mark.filterwarnings("ignore::rankwise.data.DataNote")
@pytest.mark.parametrize("model", ["blend", "item-item", "matrix-factorisation", "neumf"])
def test_recsys(clicks, tmp_path, model):
    names = {"user": "who", "item": "what", "time": "when"}
    problem = Recommendation(
        data={**names, "leave_one_out": "time"},
        model={"name": model, "dimensions": 4},
        batches={"users": 4},
        **SHORT,
    )
    clicks.select("what", "when", "who").write_parquet(tmp_path / "shuffled.parquet")
    unknown = pl.DataFrame({"who": ["u3"], "what": ["new"], "when": [1]}, schema_overrides={"when": pl.Int64})
    newcomer = unknown.with_columns(who=pl.lit("joe"), what=pl.lit("i1"))
    same = {
        "in another order": tmp_path / "shuffled.parquet",
        "with further columns": clicks.with_columns(stars=pl.lit(3)),
        "without times": clicks.drop("when"),
        "with an unknown item": pl.concat([clicks, unknown]),
        "a pandas frame": pd.DataFrame(clicks.to_dict(as_series=False)),
        "users with their saved histories": clicks.select("who"),
    }
    refused = {
        "without items": clicks.drop("what"),
        "without users": clicks.drop("who"),
        "without a user in one row": clicks.with_columns(pl.when(pl.col("when") > 1).then(pl.col("who")).alias("who")),
        "empty": clicks.head(0),
    }
    if model not in ("blend", "item-item"):
        refused["with a new user"] = pl.concat([clicks, newcomer])
    sources = {"train": tmp_path / "clicks.csv"}
    check_problem(problem, sources, tmp_path / "clicks.csv", same=same, refused=refused, ignoring=[DataNote])


def test_multilabel(tmp_path):
    rng = np.random.default_rng(0)
    words = rng.integers(0, 2, (60, 6)) * rng.integers(1, 4, (60, 6))
    labels = (words[:, :3] > 1).astype(int)
    names = [*(f"word{index}" for index in range(6)), *(f"label{index}" for index in range(3))]
    frame = pl.DataFrame(np.hstack([words, labels]), schema=names)

    def write(name, columns, count=-3):
        kinds = "".join(f"@attribute {column} numeric\n" for column in columns)
        rows = "\n".join(",".join(map(str, row)) for row in frame.with_columns(more=pl.lit(1)).select(columns).rows())
        (tmp_path / name).write_text(f"@relation 'x: -C {count}'\n{kinds}@data\n{rows}\n")
        return tmp_path / name

    same = {
        "in another order": write("shuffled.arff", names[::-1], count=3),
        "with a further feature": write("more.arff", ["more", *names]),
        "without labels": write("unlabelled.arff", names[:6]),
        "a matrix": words,
        "a sparse matrix": sparse.csr_matrix(words),
        "a matrix with labels": (words, labels),
    }
    refused = {
        "without a feature": write("narrow.arff", names[1:]),
        "without one of the labels": write("few.arff", names[:-1]),
        "with a feature twice": write("twice.arff", names),
        "a narrow matrix": words[:, :5],
        "with too few labels": (words, labels[:, :2]),
    }
    twice = tmp_path / "twice.arff"
    twice.write_text(twice.read_text().replace("word1", "word0"))
    train = write("train.arff", names)
    problem = MultiLabel(batches={"size": 12}, model={"hidden": (4,)}, **SHORT)
    check_problem(problem, {"train": train}, train, same=same, refused=refused, ignoring=[DataNote])


@pytest.mark.parametrize("kind", ["retinanet", "faster-rcnn"])
def test_detection(tmp_path, kind):
    pytest.importorskip("torchvision")
    write_voc(tmp_path / "scenes", count=16)
    write_coco(tmp_path / "new", count=5, seed=3)
    boxes, images = tmp_path / "new" / "boxes.json", tmp_path / "new" / "images"
    content = json.loads(boxes.read_text())
    for name, changed in {
        "alone": {"images": content["images"]},
        "few": {**content, "annotations": content["annotations"][:1]},
        "unknown": {**content, "categories": [{**each, "name": f"{each['name']}s"} for each in content["categories"]]},
        "lost": {**content, "images": [{**content["images"][0], "file_name": "lost.png"}]},
    }.items():
        (tmp_path / "new" / f"{name}.json").write_text(json.dumps(changed))
    (tmp_path / "empty").mkdir()
    same = {
        "images alone": images,
        "a sequence of files": sorted(images.iterdir()),
        "without annotations": tmp_path / "new" / "alone.json",
        "with fewer boxes": tmp_path / "new" / "few.json",
        "as arrays": np.stack([np.array(Image.open(each)) for each in sorted(images.iterdir())]),
    }
    refused = {
        "of unknown classes": tmp_path / "new" / "unknown.json",
        "without an image": tmp_path / "new" / "lost.json",
        "empty": tmp_path / "empty",
        "missing": tmp_path / "nowhere",
    }
    options = {"kind": kind, "channels": 8, "scale": 2}
    problem = Detection(data={"height": 48, "width": 64}, model=options, batches={"size": 4}, **SHORT)
    check_problem(problem, {"train": tmp_path / "scenes"}, boxes, same=same, refused=refused)
