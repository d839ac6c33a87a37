"""Problems over images: batches as promised, learning, resuming bit by bit with memory and augmentation, metrics."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import torch
from sklearn.metrics import average_precision_score

from rankwise.data import ArrayImages, ImageSchema, Split, imbalanced
from rankwise.losses import EmbeddingLoss, LateMemoryLoss, StableAPLoss
from rankwise.losses.baselines.metric_learning import LateMemoryPairs
from rankwise.metrics import evaluate_retrieval
from rankwise.models import ConvEmbedder
from rankwise.problems import ImageRetrieval, LongTail, load_problem
from rankwise.problems.images import predict_images
from rankwise.problems.longtail import class_groups
from rankwise.training import Checkpoints, PreviousWeights, fit, read_checkpoint
from workers.fitting import fit_with
from workers.pictures import make_part, make_split

DATA = make_split()
SCHEMA = ImageSchema.of(DATA.train)
SOPRC = {"prior": {"start": 0.5, "end": 0.1, "steps": 20}, "recall_floor": 1 / 3}
ADDED = {"name": "soprc", **SOPRC, "add": [{"name": "semi-variance", "positive": 3, "negative": 15}]}
RETRIEVAL = ImageRetrieval(
    loss=ADDED, model={"dimensions": 16}, batches={"classes": 6, "samples_per_class": 4}, metrics=("map", "recall@1")
)
LONG = Split(*(imbalanced(part, 8, seed=0) for part in (DATA.train, DATA.validation)), DATA.test)
LONGTAIL = LongTail(loss="stable-ap", batches={"size": 16}, metrics=("ap",))
SPLITS = {RETRIEVAL.kind: DATA, LONGTAIL.kind: LONG}


def train(problem, **options):
    given = {"steps": 24, "every": 12, "optimiser": {"learning_rate": 5e-3}, "schema": SCHEMA, **options}
    return fit_with(problem, SPLITS[problem.kind], **given)


def build_loss(problem, steps=24):
    return problem.build_loss(SCHEMA, SPLITS[problem.kind].train, steps=steps)


def fitted(problem):
    """A new model with the buffers that are learned from the training part."""
    model = problem.build_model(SCHEMA)
    problem.fit_model(model, SPLITS[problem.kind].train)
    return model


def assert_same(first, second):
    for name in ("model", "loss"):
        left, right = (getattr(run, name).state_dict() for run in (first, second))
        assert left.keys() == right.keys()
        assert all(torch.equal(left[key], right[key]) for key in left), name
    assert first.history.losses == second.history.losses
    assert first.history.metrics == second.history.metrics


def test_retrieval_batches_hold_the_promised_classes():
    for batch in RETRIEVAL.train_loader(DATA.train, seed=0):
        assert sorted(torch.bincount(batch.labels, minlength=9).tolist()) == [0] * 3 + [4] * 6
        assert batch.features.shape == (24, 1, 16, 16)
        assert torch.equal(batch.labels, DATA.train.labels[batch.sample_ids])


@pytest.mark.parametrize("loss", ["soprc", "stable-ap", "cross-entropy", "classifier"])
def test_retrieval_learns_the_classes(loss):
    problem = RETRIEVAL.changed(loss=ADDED if loss == "soprc" else loss)
    before, *_, after = train(problem, steps=40).history.curve("map")
    assert before < 0.8 < after


@pytest.mark.parametrize("loss", ["stable-ap", "soprc", "cross-entropy"])
def test_long_tails_are_learned(loss):
    run = train(LONGTAIL.changed(loss=loss), steps=60)
    before, *_, after = run.history.curve("ap")
    assert before < 0.7 < after


RESUMED = {
    "memory": RETRIEVAL.changed(memory={"size": 60, "after": 0.3}),
    "memory and shift": RETRIEVAL.changed(memory={"size": 60, "after": 0.3}, augmentation="shift"),
    "long tail": LONGTAIL.changed(augmentation="shift-flip"),
}


@pytest.mark.parametrize("name", RESUMED)
def test_resumed_after_any_step_equals_uninterrupted(name, tmp_path):
    problem = RESUMED[name]
    if problem.augmentation != "none":
        pytest.importorskip("torchvision")
    straight = train(problem, checkpoints=Checkpoints(tmp_path, keep=100), save_every=1)
    for path in Checkpoints(tmp_path).paths()[1::5]:
        assert_same(straight, train(problem, start=read_checkpoint(path)))


def test_workers_change_nothing():
    pytest.importorskip("torchvision")
    loaders = [
        RETRIEVAL.changed(augmentation="shift", data={"workers": workers}).train_loader(DATA.train, seed=4)
        for workers in (0, 2)
    ]
    for _ in range(2):  # two epochs
        for alone, ahead in zip(*loaders, strict=True):
            assert all(torch.equal(*pair) for pair in zip(alone[:3], ahead[:3], strict=True))
    model = RETRIEVAL.build_model(SCHEMA)
    assert torch.equal(*(predict_images(model, DATA.test, workers=workers) for workers in (0, 2)))


def test_memory_is_an_option_of_the_loss():
    assert type(build_loss(RETRIEVAL)) is EmbeddingLoss
    memory = {"size": 50, "after": 0.375}
    loss = build_loss(RETRIEVAL.changed(memory=memory))
    assert isinstance(loss, LateMemoryLoss)
    assert (loss.recent.count, loss.after) == (50, 9)
    pairs = build_loss(RETRIEVAL.changed(loss="triplet", memory=memory))
    assert isinstance(pairs, LateMemoryPairs)
    assert (pairs.recent.count, pairs.after) == (50, 9)
    for name in ("xbm", "classifier"):
        with pytest.raises(ValueError, match=f"memory: expected a loss over lists or pairs without one, got '{name}'"):
            build_loss(RETRIEVAL.changed(loss=name, memory=memory))


@pytest.mark.parametrize("accumulate", [1, 2])
def test_memory_counts_calls_of_the_loss(accumulate):
    problem = RETRIEVAL.changed(memory={"size": 50, "after": 0.5}, gradient={"accumulate": accumulate})
    assert build_loss(problem, steps=30).after == 15 * accumulate


def test_a_classifier_may_compare_by_angle():
    head = build_loss(RETRIEVAL.changed(loss={"name": "classifier", "temperature": 0.1}))
    vectors, labels = torch.randn(6, 16), torch.tensor([0, 1, 2, 0, 1, 2])
    cosines = torch.nn.functional.cosine_similarity(vectors[:, None], head.layer.weight, dim=2)
    torch.testing.assert_close(head(vectors, labels), torch.nn.functional.cross_entropy(cosines / 0.1, labels))
    torch.testing.assert_close(head(3 * vectors, labels), head(vectors, labels))


def test_the_retrieval_metric_is_that_of_all_against_all():
    model = RETRIEVAL.build_model(SCHEMA)
    vectors = model.eval()(DATA.test.__getitems__(range(len(DATA.test))).features).detach()
    expected = evaluate_retrieval(vectors, DATA.test.labels, ["map"], bootstrap=0).means["map"]
    assert RETRIEVAL.evaluate(model.train(), DATA.test).means["map"] == pytest.approx(expected, abs=1e-6)
    assert model.training


def test_the_long_tail_metric_is_the_mean_average_precision_over_classes():
    model = fitted(LONGTAIL)
    scores = LONGTAIL.predict(model, DATA.test)
    values = [average_precision_score(DATA.test.labels == c, scores[:, c]) for c in range(9)]
    result = LONGTAIL.inspect(model, DATA.test, bootstrap=100).evaluation
    assert result.per_query["ap"].tolist() == pytest.approx(values, abs=1e-9)
    assert result.means["ap"] == LONGTAIL.evaluate(model, DATA.test).means["ap"] == pytest.approx(sum(values) / 9)
    counts = torch.bincount(LONG.train.labels)
    assert torch.equal(counts, counts.sort(descending=True).values)
    for group, classes in {"head": range(3), "medium": range(3, 6), "tail": range(6, 9)}.items():
        assert result.means[f"ap {group}"] == pytest.approx(sum(values[c] for c in classes) / 3)
    assert "ap tail" in str(result)


def test_the_groups_are_those_of_the_training_part_whatever_is_judged():
    long = imbalanced(make_part(each=32), 8, seed=0)
    model = LONGTAIL.build_model(SCHEMA)
    LONGTAIL.fit_model(model, replace(long, targets=8 - long.labels))
    loaded = LONGTAIL.build_model(SCHEMA)
    loaded.load_state_dict(model.state_dict())
    result = LONGTAIL.inspect(loaded, DATA.test).evaluation
    for group, classes in {"head": [6, 7, 8], "tail": [0, 1, 2]}.items():
        assert result.means[f"ap {group}"] == pytest.approx(float(result.per_query["ap"][classes].mean()))


@pytest.mark.parametrize("classes, sizes", [(1, [1]), (2, [1, 1]), (3, [1, 1, 1]), (10, [3, 4, 3])])
def test_head_medium_and_tail_hold_every_class_once(classes, sizes):
    groups = class_groups(torch.arange(classes) + 1)
    assert [len(group) for group in groups.values()] == sizes
    assert sorted(torch.cat(list(groups.values())).tolist()) == list(range(classes))


def test_every_class_can_be_in_every_batch():
    problem = LONGTAIL.changed(batches={"samples_per_class": 1})
    for batch in problem.train_loader(LONG.train, seed=0):
        assert sorted(batch.labels.tolist()) == list(range(9))


def test_feature_mixup_trains_a_resnet():
    pytest.importorskip("torchvision")
    part = make_split(classes=4, channels=3).train
    schema = ImageSchema.of(part)
    problem = ImageRetrieval(
        loss="stable-ap",
        model={"name": "resnet18", "stem": "small", "mixup": True, "dimensions": 8},
        batches={"classes": 4, "samples_per_class": 2},
    )
    seen = []
    loss = problem.build_loss(schema, part, steps=1)
    loss.register_forward_hook(lambda module, given, value: seen.append(given[0].shape))
    value = problem.training_step(problem.build_model(schema), loss, next(iter(problem.train_loader(part, seed=0))))
    value.backward()
    assert seen == [(32, 8)]


MIXED = RETRIEVAL.changed(
    loss={"name": "stable-ap", "update_rate": 0.2},
    model={"mixup": True, "dimensions": 16},
    gradient={"previous_weights": True},
)


def test_the_previous_weights_see_the_same_mixture():
    torch.manual_seed(0)
    model, loss, seen = MIXED.build_model(SCHEMA), build_loss(MIXED), []
    previous = PreviousWeights(model, torch.optim.SGD(model.parameters(), lr=0.1))
    loss.register_forward_pre_hook(lambda _, given, named: seen.append((given[0], *named.values())), with_kwargs=True)
    for batch in MIXED.train_loader(DATA.train, seed=0):
        MIXED.training_step(model, loss, batch, previous=previous)
    for vectors, before in seen:  # no step was taken: both are outputs of the same weights
        assert vectors.shape == (96, 16)
        torch.testing.assert_close(vectors.detach(), before)


def test_the_mean_of_mixed_scores_follows_the_weights_without_delay():
    """Equation 6 with the whole data set as the batch: the error shrinks by exactly 1 - update_rate in each step."""
    torch.manual_seed(0)
    part = make_part(classes=3, each=4)
    model = MIXED.build_model(ImageSchema.of(part)).double()
    loss = EmbeddingLoss(StableAPLoss(update_rate=0.2, link="none")).double()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    previous = PreviousWeights(model, optimiser)
    batch = part.__getitems__(list(range(12)))
    batch = batch._replace(features=batch.features.double())
    errors = []
    for _ in range(4):
        torch.manual_seed(1)  # the same mixture in every step: the same items
        value = MIXED.training_step(model, loss, batch, previous=previous)
        torch.manual_seed(1)
        with torch.no_grad():
            vectors, labels = model.mixed(batch.features, batch.labels)
        similarities = vectors @ vectors.T
        same = (labels[:, None] == labels).fill_diagonal_(False)
        means = torch.stack([similarities[i][same[i]].mean() for i in range(len(labels))])
        ids, rows = loss.loss.tracker.table.ids, loss.loss.tracker.table.rows[:, 0]
        exact = torch.stack([means[labels == label].mean() for label in ids])
        if not errors:
            loss.loss.tracker.table.rows.add_(0.3)  # the remembered mean is off by .3
        errors.append((rows - exact).mean().item())
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
    assert errors == pytest.approx([0.3, 0.24, 0.192, 0.1536], abs=1e-6)


def test_a_mixed_training_with_previous_weights_is_resumed_bit_by_bit(tmp_path):
    options = {"steps": 4, "every": 4, "gradient": {"previous_weights": True}}
    straight = train(MIXED, checkpoints=Checkpoints(tmp_path, keep=100), save_every=1, **options)
    for path in Checkpoints(tmp_path).paths()[1::2]:
        assert_same(straight, train(MIXED, start=read_checkpoint(path), **options))


def test_without_torchvision_the_small_network_learns_from_arrays(monkeypatch):
    for name in ("torchvision", "PIL"):
        monkeypatch.setitem(sys.modules, name, None)
    train(RETRIEVAL, steps=2)
    train(LONGTAIL, steps=2)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'rankwise\[vision\]'"):
        RETRIEVAL.changed(model={"name": "resnet18"}).build_model(replace(SCHEMA, channels=3))


def test_probes_are_complete_classes_of_the_size_of_a_batch():
    batch = RETRIEVAL.probe_batch(DATA.train)
    assert torch.bincount(batch.labels).unique().tolist() == [0, 8]
    assert len(batch.labels) == 24
    assert len(LONGTAIL.probe_batch(LONG.train).labels) <= 16


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda: ImageRetrieval(model={"name": "resnet34"}), "Input should be 'conv', 'resnet18' or 'resnet50'"),
        (lambda: ImageRetrieval(model={"stem": "small"}), "expected a ResNet with weights, .* got conv"),
        (lambda: RETRIEVAL.changed(model={"name": "resnet18"}).build_model(SCHEMA), "channels: expected images with 3"),
        (
            lambda: RETRIEVAL.changed(batches={"classes": 12}).train_loader(DATA.train, 0),
            "batches.classes: expected at most the 9 classes to train on, got 12",
        ),
        (lambda: RETRIEVAL.changed(augmentation="shft"), "did you mean 'shift'"),
        (
            lambda: RETRIEVAL.cut(replace(DATA, test=DATA.test.take(torch.arange(8))), 0),
            "data: expected at least 2 classes in test, got 1",
        ),
        (
            lambda: RETRIEVAL.cut(replace(DATA, validation=DATA.test.take(torch.tensor([0, 8, 16]))), 0),
            "data: expected 2 images of some class in validation, to find each other, got 1 of each",
        ),
        (lambda: LongTail(model={"name": "resnet18", "mixup": True}), "expected no mixup"),
        (lambda: build_loss(LONGTAIL.changed(loss="triplet")), "loss: expected a loss over lists, got 'triplet'"),
    ],
)
def test_wrong_choices_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()


@pytest.mark.slow
@pytest.mark.realdata
def test_omniglot_by_its_recipe_for_a_few_steps(real_data):
    """A hundred of its thousand steps, judged on the held-out alphabets: far above chance and raw pixels."""
    folder = real_data("omniglot")
    problem = load_problem(
        "omniglot",
        [
            f"data.train={folder}/images_background.npz",
            f"data.test={folder}/images_evaluation.npz",
            "budget.steps=100",
            "loss.prior.steps=100",
            "evaluation={every: null, weights: last}",
        ],
    )
    schema, split = problem.read({})
    split = problem.cut(split, 0)
    assert (len(split.train.labels.unique()), len(split.validation.labels.unique())) == (850, 114)
    assert problem.build_loss(schema, split.train, steps=100).after == 70
    run = fit(problem, schema, split)
    assert problem.evaluate(run.model, split.validation).means["map"] > 0.6


def test_the_weights_of_the_blocks_are_those_with_the_best_validation():
    problem, faint = RETRIEVAL, []
    for part in (DATA.train, DATA.validation):  # the classes can hardly be seen
        noise = torch.randint(0, 256, (len(part), 1, 16, 16), generator=torch.Generator().manual_seed(len(faint)))
        pixels = (part.pixels(range(len(part))) * 255 + 4 * noise) / 5
        faint.append(replace(part, source=ArrayImages(pixels.to(torch.uint8))))
    split = Split(*faint)
    torch.manual_seed(0)
    model = problem.build_model(SCHEMA).eval()
    settings = problem.complete_model(model, split)
    with torch.no_grad():
        blocks = [model.blocks(part.pixels(range(len(part)))) for part in faint]
    labels = torch.cat([split.validation.labels, split.train.labels])
    values = {}
    for weights in problem.model.whitening.weights[1:]:  # fewer than ten classes: not the network alone
        model.fit(blocks[0], split.train.labels, weights=weights, shrinkage=0.5)
        result = evaluate_retrieval(model.join(torch.cat(blocks[::-1])), labels, ["map"], bootstrap=0)
        values[weights] = float(result.per_query["map"][: len(blocks[1])].mean())
    best = max(values, key=values.get)
    assert len(set(values.values())) > 1
    assert tuple(settings["weights"]) == best
    assert settings["validation"] == pytest.approx(values[best], abs=1e-6)
    assert problem.complete_model(model, Split(split.train), settings) == settings  # a refit chooses nothing


def test_the_vectors_of_the_network_can_be_kept():
    problem = RETRIEVAL.changed(model={"dimensions": 16, "whitening": None})
    model = problem.build_model(SCHEMA)
    assert isinstance(model, ConvEmbedder)
    assert problem.complete_model(model, SPLITS[problem.kind]) == {}
    assert problem.baselines(model, SPLITS[problem.kind].test, {}) == {}


@pytest.mark.parametrize(
    "options, rate",
    [
        ({}, 6e-3),
        ({"model": {"name": "resnet18", "weights": "start.pt"}}, 1e-4),
        ({"model": {"name": "resnet18", "weights": "start.pt"}, "optimiser": {"weight_decay": 0.0}}, 1e-4),
        ({"model": {"name": "resnet18", "weights": "start.pt"}, "optimiser": {"learning_rate": 0.01}}, 0.01),
    ],
)
def test_the_learning_rate_is_smaller_with_weights_to_start_from(options, rate):
    problem = ImageRetrieval(**options)
    assert problem.optimiser.learning_rate == rate
    assert problem.changed(budget={"steps": 5}).optimiser.learning_rate == rate
