"""Recipes for detection: from a folder in the form of VOC to a result, resumed bit by bit, compared; COCO's recipe."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from rankwise.cli import main
from rankwise.data import DetectionSchema
from rankwise.problems import BadRecipe, load_problem, make_problem
from rankwise.problems.load import library
from rankwise.runs import load_run
from rankwise.training import Checkpoints
from workers.boxed_pictures import CLASSES, write_coco, write_voc

pytest.importorskip("torchvision")

RECIPE = {
    "task": "detection",
    "data": {"train": "scenes", "height": 48, "width": 64, "cache": True},
    "model": {"channels": 16, "scale": 2},
    "loss": {"name": "stable-ap", "rho": 0.03},
    "batches": {"size": 6},
    "optimiser": {"learning_rate": 0.01},
    "budget": {"steps": 8},
    "evaluation": {"every": 4},
    "gradient": {"previous_weights": True},
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_voc(tmp_path / "scenes", count=24)
    (tmp_path / "scenes.yaml").write_text(json.dumps(RECIPE))
    return tmp_path


def last_state(run):
    state, damaged = Checkpoints(run / "checkpoints").newest()
    assert damaged == []
    return state


def test_a_folder_is_trained_on_resumed_judged_and_compared(folder, capsys):
    assert main(["train", "scenes.yaml", "--out", "straight"]) == 0
    assert "ap50" in capsys.readouterr().out
    found = json.loads((folder / "straight" / "test.json").read_text())
    assert set(found["means"]) == {"ap", "ap50", "ap75", *(f"ap {name}" for name in CLASSES), "ap per image"}
    assert main(["train", "scenes.yaml", "--out", "broken"]) == 0
    for path in Checkpoints(folder / "broken" / "checkpoints").paths()[:1]:
        path.unlink()  # as if it had been stopped half way
    assert main(["train", "scenes.yaml", "--out", "broken", "--resume"]) == 0
    assert "going on after step 4 of 8" in capsys.readouterr().err
    left, right = (last_state(folder / run) for run in ("straight", "broken"))
    for part in ("model", "loss"):
        assert all(torch.equal(value, right[part][key]) for key, value in left[part].items()), part
    write_coco(folder / "others", count=6, seed=3)
    assert main(["evaluate", "straight", "--data", "others/boxes.json", "--metric", "ap50"]) == 0
    assert "straight on others/boxes.json" in capsys.readouterr().out
    assert main(["compare", "straight", "broken"]) == 0
    assert "ap per image" in capsys.readouterr().out


def test_faster_rcnn_by_a_recipe(folder, capsys):
    changes = ["model.kind=faster-rcnn", "model.sampled=8", "gradient={}", "budget.steps=2", "evaluation.every=2"]
    assert main(["train", "scenes.yaml", *changes, "--out", "run"]) == 0
    assert "ap50" in capsys.readouterr().out
    assert main(["evaluate", "run", "--data", "scenes"]) == 0
    assert "ap50" in capsys.readouterr().out


def test_parts_are_lists_shares_or_other_files(folder):
    def sizes(*changes):
        problem = make_problem(RECIPE, changes)
        split = problem.cut(problem.read({})[1], seed=0)
        return [len(split.part(name)) for name in ("train", "validation", "test")]

    assert sizes() == [12, 6, 6]
    (folder / "scenes" / "ImageSets" / "Main" / "val.txt").rename(folder / "val.txt")
    assert sizes() == [17, 2, 5]
    (folder / "val.txt").rename(folder / "scenes" / "ImageSets" / "Main" / "val.txt")
    write_coco(folder / "others", count=5, seed=3)
    assert sizes("data.test=others/boxes.json") == [12, 6, 5]
    lists = "scenes/ImageSets/Main"
    assert sizes(f"data.train={lists}/train.txt", f"data.test={lists}/test.txt", "data.validation=0.25") == [9, 3, 6]


def test_classes_are_those_of_the_training_data_and_written_down(folder):
    schema, split = make_problem(RECIPE).read({})
    assert schema.classes == split.train.classes == split.test.classes == CLASSES
    assert schema == DetectionSchema.from_saved(json.loads(json.dumps(schema.to_json())), {})
    other = write_coco(folder / "others", count=5, seed=3)
    other["categories"].append({"id": 9, "name": "disc"})
    other["annotations"][0]["category_id"] = 9
    (folder / "others" / "boxes.json").write_text(json.dumps(other))
    with pytest.raises(ValueError, match=r"annotation 0: unknown class 'disc'"):
        schema.read(folder / "others" / "boxes.json")


def tables(run, source):
    found = run.detect(source).boxes
    return torch.cat([torch.stack([found.image, found.label], 1), found.corners, found.score[:, None]], 1)


def test_images_without_boxes_get_the_boxes_of_images_with_them(folder):
    pytest.importorskip("PIL")
    assert main(["train", "scenes.yaml", "data.resize=44", "--out", "run"]) == 0
    write_coco(folder / "others", count=6, seed=3)
    run = load_run("run")
    assert len(run.calibration["thresholds"]) == 2
    expected = tables(run, folder / "others" / "boxes.json")
    assert len(expected) > 6
    images = sorted((folder / "others" / "images").iterdir())
    content = json.loads((folder / "others" / "boxes.json").read_text())
    (folder / "others" / "alone.json").write_text(json.dumps({"images": content["images"]}))
    pixels = torch.stack([read_image(each) for each in images]).permute(0, 2, 3, 1).numpy()
    for source in (folder / "others" / "images", images, folder / "others" / "alone.json", pixels):
        torch.testing.assert_close(tables(run, source), expected, rtol=0, atol=1e-6)
        with pytest.raises(ValueError, match=r"expected"):
            run.evaluate(source)
    turned = folder / "turned"
    turned.mkdir()
    sideways(images[0], turned / "scene.jpg")
    part = run.schema.read(turned, labels="optional")
    assert (part.truth(0).height, part.truth(0).width) == (64, 48)
    assert tuple(part.picture(0).shape[1:]) == (59, 44)


def read_image(path):
    from PIL import Image

    return torch.from_numpy(np.array(Image.open(path))).permute(2, 0, 1)


def sideways(path, target):
    """Write an image that its EXIF data turn by a quarter."""
    from PIL import Image

    exif = Image.Exif()
    exif[0x0112] = 6
    Image.open(path).save(target, exif=exif)


@pytest.mark.parametrize(
    "changes, message",
    [
        (["loss=stable"], "loss.name: unknown loss 'stable'; did you mean 'stable-ap'"),
        (["loss={name: alrp, rho: 1}"], "loss: expected no option of alrp but delta"),
        (["loss={name: soprc, prior: data}"], "loss: expected a number, a schedule or batch for the prior"),
        (["metrics=[ndcg]"], "metrics: unknown metric of boxes 'ndcg'"),
        (["model.weights=imagenet"], "model: expected a ResNet with weights, got conv"),
        (["model={backbone: resnet18, frozen_batch_norm: true}"], "model: expected weights with frozen_batch_norm"),
        (["model.kind=faster"], "model.kind: expected 'retinanet' or 'faster-rcnn', got 'faster'"),
        (["model.sampled=64"], "model: expected faster-rcnn with sampled, got retinanet"),
        (["model.kind=faster-rcnn", "gradient.rows_at_once=2"], "expected no gradient.rows_at_once"),
        (
            ["model.kind=faster-rcnn", "loss=alrp"],
            "expected a loss over lists with model.kind: faster-rcnn",
        ),
        (["loss=alrp", "lists=balanced"], "expected lists: classes or all with loss: alrp, got balanced"),
        (["model.channels=12"], "model.channels: expected"),
        (["augmentation=crop"], "augmentation: expected 'none', 'flip', 'flip-both' or 'ssd', got 'crop'"),
        (["data.bad_boxes=drop"], "data.bad_boxes: expected 'error' or 'skip', got 'drop'"),
        (["data.size=9"], "data.size: unknown key"),
        (["lists=class"], "lists: expected 'classes', 'all' or 'balanced', got 'class'"),
        (["model.backbone=resnet34"], "model.backbone: expected 'conv', 'resnet18' or 'resnet50', got 'resnet34'"),
    ],
)
def test_a_wrong_recipe_is_refused_with_the_key(changes, message):
    with pytest.raises(BadRecipe) as caught:
        make_problem(RECIPE, changes)
    assert message in str(caught.value)


def test_the_recipe_of_the_paper_trains_as_the_paper_says():
    recipe = load_problem("coco-stable-ap")
    group = recipe.optimiser.build([torch.nn.Parameter(torch.zeros(1))]).param_groups[0]
    assert (group["lr"], group["momentum"], group["nesterov"]) == (0.008, 0.9, False)
    assert (recipe.budget.epochs, recipe.schedule.at, recipe.batches.size) == (100, (0.75, 0.95), 32)
    assert (recipe.data.height, recipe.data.width) == (512, 512)
    assert recipe.model.anchors((512, 512)).levels == (4096, 1024, 256, 64)
    assert recipe.data.fit == "keep"
    assert (recipe.box_weight, recipe.bias_weight, recipe.overlap) == (2, 0.001, 0.6)
    assert (recipe.loss.options["a"], recipe.loss.options["t"], recipe.loss.options["update_rate"]) == (0.1, 2, 0.01)
    assert {"coco-stable-ap", "bccd"} <= set(library())


@pytest.mark.realdata
@pytest.mark.slow
def test_bccd_by_its_recipe_for_a_few_steps(real_data):
    problem = load_problem("bccd", [f"data.train={real_data('bccd')}/BCCD"])
    schema, split = problem.read({})
    assert [len(split.part(name)) for name in ("train", "validation", "test")] == [205, 87, 72]
    batch = next(iter(problem.train_loader(split.train, 0)))
    loss = problem.build_loss(schema, split.train, steps=1)
    value = problem.training_step(problem.build_model(schema), loss, batch)
    assert 0 < value.item() < 4
