"""`rankwise rehearse`: costs on made data of the true shape, an honest verdict, and nothing left behind."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from rankwise.cli import main
from rankwise.data.rated_films import HISTORY
from rankwise.problems.load import BadRecipe, library, load_about, load_problem
from rankwise.rehearsal import LAYOUTS, make_data, rehearse
from rankwise.rehearsal.measure import CLOCKS

TABLE = {
    "about": {"data": "made", "shape": {"layout": "table", "rows": 400, "features": 3, "positives": 40}},
    "task": "tabular",
    "data": {"train": "nothing.csv"},
    "model": {"ensemble": None},
    "refit": False,
    "budget": {"steps": 500},
    "evaluation": {"every": 100},
}
PRODUCTS = {
    "about": {
        "data": "made",
        "shape": {"layout": "products", "images": [120, 40], "classes": [30, 10], "pixels": [24, 32]},
    },
    "task": "image-retrieval",
    "data": {"train": "Ebay_train.txt", "validation": 0.2, "test": "Ebay_test.txt", "size": 16},
    "model": {"dimensions": 8},
    "batches": {"classes": 16, "samples_per_class": 2},
    "budget": {"steps": 1000},
    "refit": False,
}
FINDINGS = {
    "about": {"data": "made", "shape": {"layout": "findings", "images": [80, 20], "classes": 3, "pixels": [24, 24]}},
    "task": "longtail",
    "data": {"train": "chestxray14", "validation": 0.2, "size": 16},
    "batches": {"size": 8},
    "budget": {"epochs": 10},
}
FILMS = {
    "about": {"data": "made", "shape": {"layout": "movielens", "users": 300, "items": 90, "pairs": 90_000}},
    "task": "recsys",
    "data": {"train": "ml", "leave_one_out": "time"},
    "model": {"name": "neumf", "dimensions": 8},
    "batches": {"users": 32, "relevant": 4, "irrelevant": 10},
    "budget": {"epochs": 4},
    "evaluation": {"every": 20},
    "refit": False,
}
SEARCH = {
    "about": {
        "data": "made",
        "shape": {"layout": "letor", "queries": [20_000, 100, 100], "documents": 9, "features": 4},
    },
    "task": "ltr",
    "data": {"train": "train.txt"},
    "batches": {"queries": 8},
    "budget": {"epochs": 2},
}


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """Write a recipe; temporary files go where a test sees them."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr("rankwise.rehearsal.measure.ENOUGH_SECONDS", 0.02)
    monkeypatch.setattr("rankwise.rehearsal.layouts.MOST_DOCUMENTS", 3000)

    def write(content):
        path = tmp_path / "recipe.yaml"
        path.write_text(json.dumps(content))
        return str(path)

    yield write
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize("content", [TABLE, PRODUCTS, FINDINGS, FILMS], ids=["table", "images", "findings", "films"])
def test_costs_add_up(content, recipe):
    found = rehearse(recipe(content), steps=3)
    assert found.step_seconds > 0
    assert 0.1 < found.memory_gib < 50
    assert found.evaluations >= 2
    own = found.steps * found.step_seconds + found.evaluations * found.evaluation_seconds
    assert found.hours * 3600 == pytest.approx(own + found.test_seconds + found.read_seconds, rel=1e-6)


def test_steps_are_those_of_the_whole_data(recipe):
    # 20,000 lists in batches of 8, twice; far fewer were made.
    assert rehearse(recipe(SEARCH), steps=2).steps == pytest.approx(5000, rel=0.05)
    assert rehearse(recipe(FILMS), steps=2).steps == 4 * (300 // 32)


def test_evaluations_that_outweigh_the_training_are_found(recipe, capsys):
    often = {**FILMS, "evaluation": {"every": 1}, "metrics": ["ndcg@20", "map", "recall@20", "hit@10"]}
    often["about"] = {"data": "made", "shape": {"layout": "movielens", "users": 2000, "items": 900, "pairs": 90_000}}
    often["batches"] = {"users": 2, "relevant": 1, "irrelevant": 1}
    assert main(["rehearse", recipe(often), "--steps", "4"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "Cannot finish: evaluations take longer than the training between them" in out
    assert "set evaluation.every to at least" in out
    assert "or evaluation.rows to fewer rows" in out
    assert rehearse(recipe(often), ["evaluation.every=100000"], steps=4).problems == ()


def test_memory_that_is_not_there_is_found(recipe, monkeypatch):
    monkeypatch.setattr("rankwise.rehearsal.measure._free", lambda: 0.0)
    monkeypatch.setattr("rankwise.rehearsal.measure._resident", lambda: 0.0)
    found = rehearse(recipe(PRODUCTS), steps=2)
    assert "extrapolated to 32" in found.made
    assert any(problem.startswith("memory:") and "lower batches.classes" in problem for problem in found.problems)


def test_cpu_time_is_counted_when_asked(recipe, monkeypatch):
    ticks = iter(range(1_000_000))
    monkeypatch.setitem(CLOCKS, "cpu", lambda: float(next(ticks)))
    assert rehearse(recipe(TABLE), steps=6, clock="cpu").step_seconds == 1.0


def test_the_command_prints_and_ends_with_0(recipe, capsys):
    assert main(["rehearse", recipe(TABLE), "budget.steps=1000", "--steps", "3"]) == 0
    out, err = capsys.readouterr()
    assert "the whole run" in out
    assert "1,000" in out
    assert "rankwise: reading" in err
    assert main(["--json", "rehearse", recipe(TABLE), "--steps", "3"]) == 0
    assert json.loads(capsys.readouterr().out)["rehearsal"]["steps"] == 500


@pytest.mark.parametrize(
    "about, message",
    [
        (None, "about.shape: missing; expected a recipe that states the shape of its data"),
        ({"data": "made"}, "about.shape: missing"),
        ({"data": "made", "shape": {"layout": "tables"}}, "about.shape.layout: expected one of table, letor"),
        ({"data": "made", "shape": {"layout": "table", "rows": 9}}, "about.shape: missing a required"),
        ({"data": "made", "paperr": "x"}, "about.paperr: unknown key; did you mean 'paper'?"),
        ({}, "about.data: missing"),
    ],
)
def test_recipes_without_a_shape_are_refused(about, message, recipe, capsys):
    content = {key: value for key, value in TABLE.items() if key != "about"}
    assert main(["rehearse", recipe(content if about is None else {**content, "about": about})]) == 2
    assert message in capsys.readouterr().err


def test_bad_changes_are_refused_before_anything_is_made(recipe, monkeypatch):
    monkeypatch.setattr("rankwise.rehearsal.measure.make_data", lambda *_: pytest.fail("made"))
    with pytest.raises(BadRecipe, match=r"loss\.priorr: unknown|unknown"):
        rehearse(recipe(TABLE), ["budget.stepps=3"])


@pytest.mark.parametrize("name", library())
def test_every_recipe_of_the_library_states_what_it_is(name):
    about = load_about(name)
    assert about is not None
    assert about.shape["layout"] in LAYOUTS
    assert (about.paper is None) == (about.expected is None)
    assert about.paper is None or about.differs
    load_problem(name)


# By layout: small sizes instead of the true ones, and the rows, images or pairs that training and test then have.
SMALL = {
    "table": ({"rows": 60, "positives": 12}, 60, None),
    "user-tables": ({"users": [6, 3, 4], "items": 5}, 30, 20),
    "letor": ({"queries": [6, 3, 4], "documents": 5}, 30, 20),
    "movielens": ({"users": 30, "items": 100, "pairs": 300}, None, None),  # as many for each user as the recipe says
    "netflix": ({"users": 30, "items": 12, "pairs": 300}, 300, None),
    "pair-lists": ({"users": 30, "items": 40, "pairs": 300}, 270, 30),
    "extreme": ({"rows": [20, 10], "features": 50, "labels": 12, "words": 5, "own": 3}, 20, 10),
    "texts": ({"rows": [20, 10], "vocabulary": 40, "labels": 12, "words": 9, "own": 3}, 20, 10),
    "arff": ({"rows": [20, 10], "features": 50, "labels": 12, "words": 5, "own": 3}, 20, 10),
    "arrays": ({"classes": [8, 4], "each": 5, "pixels": 9}, 40, 20),
    "products": ({"images": [24, 12], "classes": [8, 4], "pixels": [16, 24]}, 24, 12),
    "vehicles": ({"images": [24, 12], "classes": [8, 4], "pixels": [16, 24]}, 24, 12),
    "species": ({"images": 80, "classes": 8, "pixels": [16, 24]}, 80, None),
    "birds": ({"images": 80, "classes": 8, "pixels": [16, 24]}, 80, None),
    "cars": ({"images": 80, "classes": 8, "pixels": [16, 24]}, 80, None),
    "findings": ({"images": [24, 12], "classes": 3, "pixels": [16, 16]}, 24, 12),
    "cifar": ({"each": [50, 20]}, None, None),
    "coco": ({"images": [12, 6], "boxes": 3, "classes": 4, "pixels": [48, 64]}, 12, 6),
    "voc": ({"images": [8, 4, 5], "boxes": 3, "pixels": [48, 64]}, 8, 5),
}


@pytest.mark.parametrize(
    "name, layout",
    [(name, None) for name in library()] + [("inaturalist-soprc", "birds"), ("inaturalist-soprc", "cars")],
)
def test_a_recipe_reads_the_data_that_are_made_for_it(name, layout, tmp_path):
    """In the true layout, and as many as the shape says: what a rehearsal measures is the recipe, not an accident."""
    shape = dict(load_about(name).shape) if layout is None else {"layout": layout}
    small, train, test = SMALL[shape["layout"]]
    made = make_data(tmp_path, {**shape, **small})
    assert made.rows == 1
    whole = ["data.imbalance=1"] if shape["layout"] == "cifar" else []
    _, split = load_problem(name, [*made.changes, *whole]).read({})
    if shape["layout"] == "movielens":
        train = 30 * (shape["each"] - HISTORY if "each" in shape else 10)
    if shape["layout"] == "cifar":
        train, test = shape["classes"] * 50, shape["classes"] * 20
    assert len(split.train) == train
    assert (None if split.test is None else len(split.test)) == test


def test_netflix_is_made_in_its_own_form(tmp_path):
    made = make_data(tmp_path, {"layout": "netflix", "users": 40, "items": 12, "pairs": 400})
    assert sorted(path.name for path in Path(tmp_path).iterdir())[0] == "combined_data_1.txt"
    assert "data.least=10" in made.changes
