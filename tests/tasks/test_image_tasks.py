"""Tasks over images: batches as promised, learning, resuming bit by bit with memory and augmentation, metrics."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import torch
from sklearn.metrics import average_precision_score

from rankwise.data import ImageSplit, imbalanced
from rankwise.losses import EmbeddingLoss, LateMemoryLoss
from rankwise.losses.rivals.metric_learning import LateMemoryPairs
from rankwise.metrics import evaluate_retrieval
from rankwise.tasks import ImageModel, ImageRetrievalTask, LongTailTask
from rankwise.tasks.image_batches import predict_images
from rankwise.training import Checkpoints, adamw, cosine, fit, read_checkpoint
from workers.pictures import make_split

DATA = make_split()
SOPRC = {"prior": {"start": 0.5, "end": 0.1, "steps": 20}, "recall_floor": 1 / 3}
ADDED = {**SOPRC, "add": [{"name": "semi-variance", "positive": 3, "negative": 15}]}
RETRIEVAL = ImageRetrievalTask(DATA, "soprc", ADDED, dimensions=16, classes=6, samples_per_class=4)
LONG = ImageSplit(*(imbalanced(part, 8, seed=0) for part in (DATA.train, DATA.validation)), DATA.test)
LONGTAIL = LongTailTask(LONG, "stable-ap", batch_size=16)


def train(task, **options):
    return fit(task, **{"steps": 24, "optimiser": adamw(5e-3), "schedule": cosine, "eval_every": 12, **options})


def assert_same(first, second):
    for name in ("model", "loss"):
        left, right = (getattr(run, name).state_dict() for run in (first, second))
        assert left.keys() == right.keys()
        assert all(torch.equal(left[key], right[key]) for key in left), name
    assert first.history.losses == second.history.losses
    assert first.history.metrics == second.history.metrics


def test_retrieval_batches_hold_the_promised_classes():
    for batch in RETRIEVAL.train_loader(seed=0):
        assert sorted(torch.bincount(batch.labels, minlength=9).tolist()) == [0] * 3 + [4] * 6
        assert batch.features.shape == (24, 1, 16, 16)
        assert torch.equal(batch.labels, DATA.train.labels[batch.sample_ids])


@pytest.mark.parametrize("loss", ["soprc", "stable-ap", "cross-entropy", "classifier"])
def test_retrieval_learns_the_classes(loss):
    task = replace(RETRIEVAL, loss=loss, loss_options=ADDED if loss == "soprc" else {})
    before, *_, after = train(task, steps=40).history.curve("map")
    assert before < 0.8 < after


@pytest.mark.parametrize("loss", ["stable-ap", "soprc", "cross-entropy"])
def test_long_tails_are_learned(loss):
    run = train(replace(LONGTAIL, loss=loss), steps=60)
    before, *_, after = run.history.curve("ap")
    assert before < 0.7 < after


RESUMED = {
    "memory": replace(RETRIEVAL, memory=60, memory_after=7),
    "memory and shift": replace(RETRIEVAL, memory=60, memory_after=7, augmentation="shift"),
    "long tail": replace(LONGTAIL, augmentation="shift-flip"),
}


@pytest.mark.parametrize("name", RESUMED)
def test_resumed_after_any_step_equals_uninterrupted(name, tmp_path):
    task = RESUMED[name]
    if task.augmentation != "none":
        pytest.importorskip("torchvision")
    straight = train(task, checkpoints=Checkpoints(tmp_path, keep=100), save_every=1)
    for path in Checkpoints(tmp_path).paths()[1::5]:
        assert_same(straight, train(task, start=read_checkpoint(path)))


def test_workers_change_nothing():
    pytest.importorskip("torchvision")
    task = replace(RETRIEVAL, augmentation="shift")
    loaders = [replace(task, workers=workers).train_loader(seed=4) for workers in (0, 2)]
    for _ in range(2):  # two epochs
        for alone, ahead in zip(*loaders, strict=True):
            assert all(torch.equal(*pair) for pair in zip(alone[:3], ahead[:3], strict=True))
    model = task.build_model()
    assert torch.equal(*(predict_images(model, DATA.test, workers=workers) for workers in (0, 2)))


def test_memory_is_an_option_of_the_loss():
    assert type(RETRIEVAL.build_loss()) is EmbeddingLoss
    loss = replace(RETRIEVAL, memory=50, memory_after=9).build_loss()
    assert isinstance(loss, LateMemoryLoss)
    assert (loss.recent.count, loss.after) == (50, 9)
    pairs = replace(RETRIEVAL, loss="triplet", loss_options={}, memory=50, memory_after=9).build_loss()
    assert isinstance(pairs, LateMemoryPairs)
    assert (pairs.recent.count, pairs.after) == (50, 9)
    with pytest.raises(ValueError, match="memory: expected a loss over lists or pairs without one, got 'xbm'"):
        replace(RETRIEVAL, loss="xbm", loss_options={}, memory=50).build_loss()


def test_a_classifier_may_compare_by_angle():
    head = replace(RETRIEVAL, loss="classifier", loss_options={"temperature": 0.1}).build_loss()
    vectors, labels = torch.randn(6, 16), torch.tensor([0, 1, 2, 0, 1, 2])
    cosines = torch.nn.functional.cosine_similarity(vectors[:, None], head.layer.weight, dim=2)
    torch.testing.assert_close(head(vectors, labels), torch.nn.functional.cross_entropy(cosines / 0.1, labels))
    torch.testing.assert_close(head(3 * vectors, labels), head(vectors, labels))


def test_the_retrieval_metric_is_that_of_all_against_all():
    model = RETRIEVAL.build_model()
    vectors = model.eval()(DATA.test.__getitems__(range(len(DATA.test))).features).detach()
    expected = evaluate_retrieval(vectors, DATA.test.labels, ["map"], bootstrap=0).means["map"]
    assert RETRIEVAL.evaluate(model.train(), "test")["map"] == pytest.approx(expected, abs=1e-6)
    assert model.training


def test_the_long_tail_metric_is_the_mean_average_precision_over_classes():
    model = LONGTAIL.build_model()
    scores = LONGTAIL.score(model, "test")
    values = [average_precision_score(DATA.test.labels == c, scores[:, c]) for c in range(9)]
    found = LONGTAIL.judge(model, "test", bootstrap=100)
    assert found.per_query["ap"].tolist() == pytest.approx(values, abs=1e-9)
    assert found.means["ap"] == LONGTAIL.evaluate(model, "test")["ap"] == pytest.approx(sum(values) / 9)
    counts = torch.bincount(LONG.train.labels)
    assert torch.equal(counts, counts.sort(descending=True).values)
    for group, classes in {"head": range(3), "medium": range(3, 6), "tail": range(6, 9)}.items():
        assert found.means[f"ap {group}"] == pytest.approx(sum(values[c] for c in classes) / 3)
    assert "ap tail" in str(found)


@pytest.mark.parametrize("classes, sizes", [(1, [1]), (2, [1, 1]), (3, [1, 1, 1]), (10, [3, 4, 3])])
def test_head_medium_and_tail_hold_every_class_once(classes, sizes):
    task = LongTailTask(make_split(classes=classes, size=8), "soprc")
    assert [len(group) for group in task.groups().values()] == sizes
    assert sorted(torch.cat(list(task.groups().values())).tolist()) == list(range(classes))


def test_every_class_can_be_in_every_batch():
    task = replace(LONGTAIL, samples_per_class=1)
    for batch in task.train_loader(seed=0):
        assert sorted(batch.labels.tolist()) == list(range(9))


def test_feature_mixup_trains_a_resnet():
    pytest.importorskip("torchvision")
    task = ImageRetrievalTask(
        make_split(classes=4, channels=3), "stable-ap", model=ImageModel("resnet18", stem="small", mixup=True),
        dimensions=8, classes=4, samples_per_class=2,
    )  # fmt: skip
    seen = []
    loss = task.build_loss()
    loss.register_forward_hook(lambda module, given, value: seen.append(given[0].shape))
    value = task.training_step(task.build_model(), loss, next(iter(task.train_loader(seed=0))))
    value.backward()
    assert seen == [(32, 8)]


def test_without_torchvision_the_small_network_learns_from_arrays(monkeypatch):
    for name in ("torchvision", "PIL"):
        monkeypatch.setitem(sys.modules, name, None)
    train(RETRIEVAL, steps=2)
    train(LONGTAIL, steps=2)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'rankwise\[vision\]'"):
        replace(RETRIEVAL, data=make_split(channels=3), model=ImageModel("resnet18")).build_model()


@pytest.mark.parametrize(
    "task, message",
    [
        (lambda: ImageModel("resnet34"), "name: unknown word 'resnet34'"),
        (lambda: ImageModel("conv", stem="small"), "name: expected a ResNet with weights, .* got conv"),
        (lambda: replace(RETRIEVAL, model=ImageModel("resnet18")).build_model(), "channels: expected images with 3"),
        (lambda: replace(RETRIEVAL, classes=12).train_loader(0), "classes: expected at most the number of classes"),
        (lambda: replace(RETRIEVAL, augmentation="shft").train_loader(0), "did you mean 'shift'"),
        (
            lambda: replace(RETRIEVAL, data=replace(DATA, test=DATA.test.take(torch.arange(8)))),
            "data: expected at least 2 classes in test, got 1",
        ),
        (
            lambda: replace(RETRIEVAL, data=replace(DATA, validation=DATA.test.take(torch.tensor([0, 8, 16])))),
            "data: expected 2 images of some class in validation, to find each other, got 1 of each",
        ),
        (lambda: replace(LONGTAIL, model=ImageModel("resnet18", mixup=True)), "mixup: expected False"),
    ],
)
def test_wrong_choices_are_named(task, message):
    with pytest.raises(ValueError, match=message):
        task()


@pytest.mark.slow
@pytest.mark.realdata
def test_omniglot_by_its_recipe_for_a_few_steps(real_data):
    """A hundred of its thousand steps, judged on the held-out alphabets: far above chance and raw pixels."""
    from rankwise.recipes import load_recipe

    folder = real_data("omniglot")
    recipe = load_recipe(
        "omniglot",
        [
            f"data.train={folder}/images_background.npz",
            f"data.test={folder}/images_evaluation.npz",
            "budget.steps=100",
            "loss.prior.steps=100",
        ],
    )
    task = recipe.build_task(0)
    assert (len(task.data.train.labels.unique()), len(task.data.validation.labels.unique())) == (850, 114)
    assert task.memory_after == 70
    run = fit(task, steps=100, optimiser=recipe.optimiser.make(), schedule=recipe.schedule.make())
    assert task.evaluate(run.model, "validation")["map"] > 0.6
