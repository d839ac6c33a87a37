"""Recipes for images: from a folder to a result, resumed bit by bit; the papers' recipes are what the papers say."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from rankwise.cli import main
from rankwise.metrics import evaluate
from rankwise.problems import BadRecipe, load_problem, make_problem
from rankwise.problems.load import library
from rankwise.training import Checkpoints, fit
from workers.pictures import write_folder

pytest.importorskip("torchvision")

RETRIEVAL = {
    "task": "image-retrieval",
    "data": {"train": "photos", "size": 16, "held_out": "images"},
    "model": {"dimensions": 16},
    "augmentation": "shift",
    "memory": {"size": 40, "after": 0.5},
    "batches": {"classes": 5, "samples_per_class": 3},
    "optimiser": {"learning_rate": 0.005},
    "budget": {"steps": 16},
    "evaluation": {"every": 8},
}
LONGTAIL = {
    "task": "longtail",
    "data": {"train": "photos", "size": 16, "imbalance": 3},
    "loss": {"name": "soprc", "prior": "data"},
    "augmentation": "shift-flip",
    "batches": {"size": 16},
    "optimiser": {"learning_rate": 0.005},
    "budget": {"steps": 16},
    "evaluation": {"every": 8},
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "photos", classes=6, each=16, size=20, channels=3)
    for name, content in {"retrieval": RETRIEVAL, "longtail": LONGTAIL}.items():
        (tmp_path / f"{name}.yaml").write_text(json.dumps(content))
    return tmp_path


def read(problem, seed=0):
    """The schema and the three parts."""
    schema, split = problem.read({})
    return schema, problem.cut(split, seed)


def last_state(run):
    state, damaged = Checkpoints(run / "checkpoints").newest()
    assert damaged == []
    return state


@pytest.mark.parametrize("name, metric", [("retrieval", "map"), ("longtail", "ap tail")])
def test_a_folder_of_images_is_trained_on_and_resumed_bit_by_bit(folder, name, metric, capsys):
    assert main(["train", f"{name}.yaml", "--out", "straight"]) == 0
    assert metric in capsys.readouterr().out
    assert json.loads((folder / "straight" / "test.json").read_text())["means"][metric] > 0.4
    assert main(["train", f"{name}.yaml", "--out", "broken"]) == 0
    for path in Checkpoints(folder / "broken" / "checkpoints").paths()[:1]:
        path.unlink()  # as if it had been stopped half way
    assert main(["train", f"{name}.yaml", "--out", "broken", "--resume"]) == 0
    assert "going on after step 8 of 16" in capsys.readouterr().err
    left, right = (last_state(folder / run) for run in ("straight", "broken"))
    for part in ("model", "loss"):
        assert left[part].keys() == right[part].keys()
        assert all(torch.equal(value, right[part][key]) for key, value in left[part].items()), part
    assert (folder / "straight/test-queries.csv").read_text() == (folder / "broken/test-queries.csv").read_text()
    assert main(["evaluate", "straight", "--data", "photos"]) == 0
    assert "straight on photos" in capsys.readouterr().out


def test_a_changed_image_is_noticed_when_resuming(folder, capsys):
    assert main(["train", "retrieval.yaml", "--out", "run"]) == 0
    file = next((folder / "photos").rglob("*.png"))
    file.write_bytes(file.read_bytes() + b"more")
    assert main(["train", "retrieval.yaml", "--out", "run", "--resume"]) == 2
    assert "cannot go on with other data; photos changed" in capsys.readouterr().err


def test_a_list_with_a_split_names_the_parts(folder):
    files = sorted((folder / "photos").rglob("*.png"))
    parts = ["train", "train", "validation", "test"]
    rows = [f"{file},{file.parent.name},{parts[number % 4]}" for number, file in enumerate(files)]
    (folder / "list.csv").write_text("\n".join(["path,label,split", *rows]))
    for base in (RETRIEVAL, LONGTAIL):
        problem = make_problem(base, ["data.train=list.csv", "data.imbalance=1"][: 1 + (base is LONGTAIL)])
        _, split = read(problem)
        assert [len(split.part(name)) for name in ("train", "validation", "test")] == [48, 24, 24]


def test_a_gallery_is_searched_instead_of_the_test_images(folder):
    write_folder(folder / "gallery", classes=4, each=3, size=20, channels=3, seed=5)
    (folder / "gallery" / "class-00").rename(folder / "gallery" / "another")
    write_folder(folder / "queries", classes=4, each=2, size=20, channels=3, seed=6)
    problem = make_problem(RETRIEVAL, ["data.test=queries", "data.gallery=gallery"])
    schema, split = read(problem)
    test, gallery = split.test, split.test.gallery
    assert gallery.classes == (*(f"class-{number:02d}" for number in range(6)), "another")
    assert sorted(gallery.labels.tolist()) == [1, 1, 1, 2, 2, 2, 3, 3, 3, 6, 6, 6]
    assert split.train.gallery is split.validation.gallery is None
    model = problem.build_model(schema)
    result = problem.evaluate(model, test)
    assert result.skipped["map"] == 2  # of class-00, which the gallery has not
    vectors = model.eval()
    scores = vectors(test.pixels(range(len(test)))) @ vectors(gallery.pixels(range(len(gallery)))).T
    relevant = test.labels[:, None] == gallery.labels
    expected = evaluate(scores[2:], relevant[2:].long(), ["map"], bootstrap=0).means["map"]
    assert result.means["map"] == pytest.approx(expected, abs=1e-5)


def test_a_list_may_name_the_gallery(folder):
    files = sorted((folder / "photos").rglob("*.png"))
    parts = ["train", "validation", "test", "gallery"]
    rows = [f"{file},{file.parent.name},{parts[number % 4]}" for number, file in enumerate(files)]
    (folder / "list.csv").write_text("\n".join(["path,label,split", *rows]))
    schema, split = read(make_problem(RETRIEVAL, ["data.train=list.csv"]))
    for test in (split.test, schema.read(folder / "list.csv")):
        assert (len(test), len(test.gallery)) == (24, 24)
    assert schema.read(folder / "list.csv", part="train").gallery is None
    without_test = [row.replace(",test", ",train") for row in rows]
    (folder / "short.csv").write_text("\n".join(["path,label,split", *without_test]))
    _, split = read(
        make_problem(RETRIEVAL, ["data.train=short.csv"])
    )  # a share of the training images is the test part
    assert len(split.test.gallery) == 24
    assert split.train.gallery is None


def test_an_imbalance_thins_out_what_is_cut_but_not_a_test_set_of_its_own(folder):
    write_folder(folder / "others", classes=6, each=5, size=20, channels=3)
    problem = make_problem(LONGTAIL, ["data.test=others"])
    schema, split = read(problem)
    counts = [torch.bincount(split.part(name).labels).tolist() for name in ("train", "validation", "test")]
    assert [sum(pair) for pair in zip(*counts[:2], strict=True)] == [16, 13, 10, 8, 7, 5]
    assert counts[2] == [5] * 6
    prior = problem.build_loss(schema, split.train, steps=1).prior.priors
    torch.testing.assert_close(prior, torch.tensor(counts[0]).double() / sum(counts[0]))


def test_classes_are_matched_by_name_and_unknown_ones_refused_in_classification(folder):
    write_folder(folder / "others", classes=6, each=5, size=20, channels=3)
    for missing in (0, 4):  # the numbers of all others would be wrong by their order
        shutil.rmtree(folder / "others" / f"class-{missing:02d}")
    problem = make_problem(LONGTAIL, ["data.test=others"])
    schema, split = read(problem)
    assert torch.bincount(split.test.labels).tolist() == [0, 5, 5, 5, 0, 5]
    model = problem.build_model(schema)
    assert problem.evaluate(model, split.test).skipped["ap"] == 2
    (folder / "others" / "class-01").rename(folder / "others" / "newcomer")
    with pytest.raises(ValueError, match="others: expected classes of the training images, got 'newcomer' besides"):
        read(problem)


def test_memory_begins_after_its_share_of_the_run(folder):
    problem = make_problem(RETRIEVAL, ["budget={epochs: 4}"])
    schema, split = read(problem)
    steps = len(problem.train_loader(split.train, 0))
    fitted = fit(problem, schema, split)
    assert len(fitted.history.losses) == 4 * steps
    assert fitted.loss.after == 2 * steps


@pytest.mark.parametrize(
    "changes, message",
    [
        (["data.resize=8"], "data: expected resize of at least the size of 16, got 8"),
        (["data.channels=2"], "data.channels: expected 1 or 3"),
        (["model.name=resnet34"], "model.name: expected 'conv', 'resnet18' or 'resnet50', got 'resnet34'"),
        (["model.stem=small"], "model: expected a ResNet with weights"),
        (["model={name: resnet18, frozen_batch_norm: true}"], "model: expected weights with frozen_batch_norm"),
        (["augmentation=flip"], "augmentation: unknown augmentation 'flip'"),
        (["memory.after=1"], "memory.after: expected a number of less than 1, got 1"),
        (["model={name: resnet18, mixup: true}", "gradient.rows_at_once=8"], "expected no gradient.rows_at_once"),
    ],
)
def test_a_wrong_recipe_is_refused_with_the_key(changes, message):
    with pytest.raises(BadRecipe) as caught:
        make_problem(RETRIEVAL, changes)
    assert message in str(caught.value)


PAPER = {  # learning rate, weight decay, steps, where it falls, batch; Wen et al. 2022 section 5.1, 2025 section 7.1
    "sop-soprc": (0.01, 4e-4, 50_000, [15_000, 30_000], 0.1, 224, 512),
    "vehicleid-soprc": (0.001, 4e-4, 100_000, [40_000, 80_000], 0.1, 224, 512),
    "inaturalist-soprc": (0.001, 4e-4, 130_000, [80_000, 110_000], 0.1, 224, 512),
    "sop-stable-ap": (0.003, 4e-5, 100_000, [60_000, 80_000], 0.1, 112, 256),
    "vehicleid-stable-ap": (0.01, 4e-5, 160_000, [120_000, 150_000], 0.3, 112, 256),
    "inaturalist-stable-ap": (0.001, 4e-5, 270_000, [150_000, 220_000], 0.3, 112, 256),
}


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_recipes_train_as_the_papers_say(name):
    recipe = load_problem(name)
    rate, decay, steps, falls, factor, batch, dimensions = PAPER[name]
    optimiser = recipe.optimiser.build([torch.nn.Parameter(torch.zeros(1))])
    group = optimiser.param_groups[0]
    assert (group["lr"], group["weight_decay"], group["momentum"], group["nesterov"]) == (rate, decay, 0.9, True)
    assert recipe.budget.steps == steps
    assert [share * steps for share in recipe.schedule.at] == pytest.approx(falls, rel=1e-3)
    assert recipe.schedule.factor == factor
    assert recipe.batches.classes * recipe.batches.samples_per_class == batch
    assert (recipe.model.name, recipe.model.dimensions) == ("resnet50", dimensions)
    assert (recipe.data.resize, recipe.data.size) == (256, 224)
    assert recipe.model.frozen_batch_norm == name.endswith("soprc")
    assert recipe.model.mixup == name.endswith("stable-ap")


def test_the_library_holds_a_recipe_for_each_table():
    assert {*PAPER, "omniglot", "cifar10-lt", "cifar10-lt-stable-ap"} <= set(library())
