"""Detection: the loss is what it says, all losses learn, runs resume bit by bit, figures are those of the boxes."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest
import torch

from rankwise.data import Boxes, DetectionSchema
from rankwise.losses import StableAPLoss
from rankwise.losses.baselines import ALRPLoss
from rankwise.metrics import box_thresholds
from rankwise.models import InChunks, RetinaNetDetector, make_anchors
from rankwise.models.anchors import moved
from rankwise.problems import Detection
from rankwise.problems.detection import DetectionLoss
from rankwise.problems.detection.boxes import true_boxes
from rankwise.training import Checkpoints, read_checkpoint
from workers.boxed_pictures import CLASSES, make_part, make_split
from workers.fitting import fit_with

pytest.importorskip("torchvision")

DATA = make_split(32)
SCHEMA = DetectionSchema.of(DATA.train)
PROBLEM = Detection(
    loss={"name": "stable-ap", "rho": 0.03},
    model={"channels": 16, "scale": 2},
    augmentation="none",
    batches={"size": 8},
    metrics=("ap50", "ap"),
)
LOSSES = {
    "stable-ap": PROBLEM,
    "soprc": PROBLEM.changed(loss={"name": "soprc", "prior": 0.9, "tau": 1.0}),
    "ap-loss": PROBLEM.changed(loss="ap-loss"),
    "alrp": PROBLEM.changed(loss="alrp"),
    "focal": PROBLEM.changed(loss={"name": "focal", "per": "positive"}, lists="all"),
}


def train(problem, **options):
    return fit_with(problem, DATA, schema=SCHEMA, **{"optimiser": {"learning_rate": 1e-2}, **options})


def loss_of(problem):
    return problem.build_loss(SCHEMA, DATA.train, steps=1)


def outputs_of(grid, images=2, seed=0, classes=2):
    return torch.randn(images, len(grid.corners), classes + 4, generator=torch.Generator().manual_seed(seed)) * 0.5


GRID = make_anchors((48, 64), (8, 16), scale=2)
BOXES = Boxes(
    torch.tensor([[[5.0, 6.0, 25.0, 21.0], [30.0, 20.0, 44.0, 33.0]], [[11.0, 9.0, 33.0, 20.0], [0.0, 0.0, 0.0, 0.0]]]),
    torch.tensor([[True, True], [True, False]]),
    torch.zeros(2, 2, dtype=torch.bool),
)
LABELS = torch.tensor([[0, 1], [1, 0]])


def by_hand(outputs, ranking, box_weight=2.0, bias_weight=0.001):
    """The three terms from their definitions, class by class and anchor by anchor."""
    from rankwise.models import assign_anchors

    given = assign_anchors(GRID, BOXES.corners, BOXES.mask)
    lists, found, errors = [[], []], [], []
    for image in range(2):
        for anchor in range(len(GRID.corners)):
            own = int(LABELS[image, given.object[image, anchor]]) if given.positive[image, anchor] else None
            for label in range(2):
                lists[label].append((outputs[image, anchor, label], int(own == label)))
            if own is not None:
                found.append(outputs[image, anchor, own])
                box = moved(GRID.corners[anchor], outputs[image, anchor, 2:])
                errors.append(1 - generalised_overlap(box, BOXES.corners[image, given.object[image, anchor]]))
    values = [ranking(torch.stack([s for s, _ in each]), torch.tensor([y for _, y in each])) for each in lists]
    bias = (sum(found) / len(found)) ** 2
    return sum(values) / 2 + box_weight * sum(errors) / len(errors) + bias_weight * bias


def generalised_overlap(one, other):
    def area(box):
        return (box[2] - box[0]).clamp_min(0) * (box[3] - box[1]).clamp_min(0)

    shared = area(torch.cat([torch.maximum(one[:2], other[:2]), torch.minimum(one[2:], other[2:])]))
    hull = area(torch.cat([torch.minimum(one[:2], other[:2]), torch.maximum(one[2:], other[2:])]))
    union = area(one) + area(other) - shared
    return shared / union - (hull - union) / hull


def test_the_loss_is_the_sum_of_its_three_terms():
    outputs = outputs_of(GRID).requires_grad_()
    loss = DetectionLoss(StableAPLoss(lists="columns", link="none"), GRID, 2)
    value = loss(outputs, LABELS, BOXES)
    # A list apart has a memory of its own, so each class gets a fresh loss; they are the first of their class here too.
    expected = by_hand(outputs, lambda s, y: StableAPLoss(link="none")(s, y))
    torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-5)
    gradients = [torch.autograd.grad(each, outputs, retain_graph=True)[0] for each in (value, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-6)
    assert loss.unmatched == 0


def test_all_lists_as_one_and_focal_without_bias():
    outputs = outputs_of(GRID)
    loss = loss_of(LOSSES["focal"])
    assert loss.bias_weight == 0
    assert loss.lists == "all"
    seen = []
    loss.ranking.register_forward_hook(lambda module, given, value: seen.append(given[0].shape))
    small = DetectionLoss(loss.ranking, GRID, 2, lists="all", bias_weight=0)
    small(outputs, LABELS, BOXES)
    assert seen == [(2 * len(GRID.corners) * 2,)]


def test_a_constant_added_to_all_scores_changes_the_bias_term_alone():
    outputs = outputs_of(GRID)
    shifted = outputs + torch.tensor([3.0, 3.0, 0, 0, 0, 0])
    for weight, equal in ((0.0, True), (0.001, False)):
        values = [
            DetectionLoss(StableAPLoss(lists="columns"), GRID, 2, bias_weight=weight)(each, LABELS, BOXES).item()
            for each in (outputs, shifted)
        ]
        assert (values[0] == pytest.approx(values[1], abs=1e-5)) == equal


def test_the_sum_that_is_printed_would_drown_the_ranking():
    """Why the bias term is of the mean score: the square of the sum grows with the square of the number of objects."""
    outputs = outputs_of(GRID).requires_grad_()
    logits = outputs[..., :2]
    ranking = DetectionLoss(StableAPLoss(0.03, lists="columns"), GRID, 2, box_weight=0, bias_weight=0)
    (of_ranking,) = torch.autograd.grad(ranking(outputs - 4.6, LABELS, BOXES), outputs, retain_graph=True)
    positives = logits[:, :300].flatten()[:300] - 4.6  # as many as a batch of 8 small images has
    (of_sum,) = torch.autograd.grad(0.001 * positives.sum().square(), outputs, retain_graph=True)
    (of_mean,) = torch.autograd.grad(0.001 * positives.mean().square(), outputs)
    assert of_sum.abs().max() > 10 * of_ranking.abs().max()
    assert of_mean.abs().max() < 0.1 * of_ranking.abs().max()


def test_ignored_objects_are_neither_right_nor_wrong():
    outputs = outputs_of(GRID)
    ignored = BOXES._replace(ignored=torch.tensor([[True, False], [False, False]]))
    loss = DetectionLoss(StableAPLoss(lists="columns"), GRID, 2)
    before = loss(outputs, LABELS, ignored)
    changed = outputs.clone()
    from rankwise.models import assign_anchors

    given = assign_anchors(GRID, BOXES.corners, BOXES.mask, ignored.ignored)
    assert not given.counted.all()
    changed[..., :2] += 5.0 * (~given.counted[..., None])
    after = DetectionLoss(StableAPLoss(lists="columns"), GRID, 2)(changed, LABELS, ignored)
    torch.testing.assert_close(before, after)


def test_a_batch_without_objects_is_a_zero_with_a_gradient():
    outputs = outputs_of(GRID).requires_grad_()
    nothing = Boxes(torch.zeros(2, 0, 4), torch.zeros(2, 0, dtype=torch.bool), torch.zeros(2, 0, dtype=torch.bool))
    for ranking in (StableAPLoss(lists="columns"), ALRPLoss()):
        loss = DetectionLoss(ranking, GRID, 2)
        value = loss(outputs, torch.zeros(2, 0, dtype=torch.int64), nothing)
        value.backward()
        assert value.item() == 0
    assert DetectionLoss(StableAPLoss(lists="columns"), GRID, 2).skipped == 0


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_learns_to_find_the_objects(name):
    run = train(LOSSES[name], steps=60, every=60)
    before, after = run.history.curve("ap50")
    assert before < 0.01
    assert after > 0.06, run.history.losses[::10]


@pytest.mark.parametrize("name", ["stable-ap", "soprc"])
def test_resumed_after_any_step_equals_uninterrupted(name, tmp_path):
    problem = LOSSES[name].changed(augmentation="flip-both")
    options = {"steps": 6, "every": 3, "gradient": {"previous_weights": name == "stable-ap"}}
    straight = train(problem, checkpoints=Checkpoints(tmp_path, keep=100), save_every=1, **options)
    for path in Checkpoints(tmp_path).paths()[1::3]:
        resumed = train(problem, start=read_checkpoint(path), **options)
        for part in ("model", "loss"):
            left, right = (getattr(run, part).state_dict() for run in (straight, resumed))
            assert all(torch.equal(left[key], right[key]) for key in left), part
        assert straight.history.metrics == resumed.history.metrics


def test_rows_at_once_and_workers_change_nothing():
    problem = PROBLEM.changed(batches={"size": 4})
    model, loss = problem.build_model(SCHEMA).eval(), loss_of(problem)
    batch = next(iter(problem.train_loader(DATA.train, 0)))
    values = [problem.training_step(each, loss_of(problem), batch) for each in (model, InChunks(model, 3))]
    torch.testing.assert_close(*values)
    assert loss.unmatched == 0
    ahead = problem.changed(data={"workers": 2})
    for alone, together in zip(problem.train_loader(DATA.train, 3), ahead.train_loader(DATA.train, 3), strict=True):
        assert torch.equal(alone.features, together.features)
        assert torch.equal(alone.boxes.corners, together.boxes.corners)
    assert torch.equal(problem.predict(model, DATA.test).corners, ahead.predict(model, DATA.test).corners)


@pytest.mark.parametrize("fit, size", [("squash", (96, 64)), ("keep", (96, 96))])
def test_perfect_outputs_find_everything_and_boxes_come_in_pixels_of_the_files(fit, size):
    part = replace(make_part(6, seed=7, size=size), fit=fit)
    anchors = PROBLEM.model.anchors(part.size)

    class Perfect(RetinaNetDetector):
        """Gives the true box of the object nearest to each anchor, surest where it is nearest."""

        def __init__(self):
            super().__init__(2, part.size, channels=16, scale=2)

        def forward(self, images):
            outputs = torch.full((len(images), len(anchors.corners), 6), -20.0)
            for place, image in enumerate(images):
                number = next(n for n in range(6) if torch.equal(part[n].features[0], image))
                boxes, labels = part[number].boxes.corners[0], part[number].labels[0]
                middles = (anchors.corners[:, :2] + anchors.corners[:, 2:]) / 2
                away = torch.cdist(middles, (boxes[:, :2] + boxes[:, 2:]) / 2)
                near = away.argmin(1)
                own, side = boxes[near], anchors.corners[:, 2:] - anchors.corners[:, :2]
                outputs[place, :, 2:4] = ((own[:, :2] + own[:, 2:]) / 2 - middles) / side
                outputs[place, :, 4:] = ((own[:, 2:] - own[:, :2]) / side).log()
                outputs[place].scatter_(1, labels[near][:, None], -away.min(1).values[:, None] / 10)
            return outputs

    found = PROBLEM.inspect(Perfect(), part, bootstrap=50).evaluation
    assert found.means["ap50"] > 0.9
    assert set(found.means) == {"ap50", "ap", *(f"ap50 {name}" for name in CLASSES), "ap per image"}
    boxes = PROBLEM.predict(Perfect(), part)
    assert float(boxes.corners[:, 3].max()) <= 48
    assert PROBLEM.evaluate(Perfect(), part).means.keys() == {"ap50", "ap"}


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: PROBLEM.changed(metrics=("map",)), "unknown metric of boxes 'map'"),
        (lambda: loss_of(PROBLEM.changed(loss="song")), "loss: expected a loss over lists of labels 0 and 1"),
        (lambda: loss_of(PROBLEM.changed(loss="triplet")), "loss: expected a loss over lists of labels 0 and 1"),
        (lambda: DetectionLoss(ALRPLoss(), GRID, 2, lists="class"), "lists: unknown word 'class'"),
        (
            lambda: DetectionLoss(ALRPLoss(), GRID, 2, lists="balanced"),
            "lists: expected classes or all with aLRP, which takes no weights, got balanced",
        ),
        (lambda: DetectionLoss(StableAPLoss(), GRID, 2), 'ranking: expected a loss made with lists="columns"'),
        (lambda: loss_of(PROBLEM)(outputs_of(GRID), LABELS, BOXES), "outputs: expected the shape of images, anchors"),
    ],
)
def test_wrong_choices_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_calibration_decides_the_boxes_that_are_drawn():
    torch.manual_seed(0)
    model = PROBLEM.build_model(SCHEMA)
    assert PROBLEM.inspect(model, DATA.test).drawings == ()
    (least, most) = (
        PROBLEM.inspect(model, DATA.test, calibration={"thresholds": [each, each]}).drawings for each in (-1e9, None)
    )
    assert len(least) == len(most) == 6
    assert all(box.correct is None for drawing in most for box in drawing.boxes)
    assert all(any(box.correct is not None for box in drawing.boxes) for drawing in least)


def test_calibration_is_plain_and_none_for_a_class_without_a_right_box():
    model = train(PROBLEM, steps=40, every=None).model
    squares = [n for n in range(len(DATA.validation)) if set(DATA.validation.truth(n).labels.tolist()) == {1}]
    for part in (DATA.validation, DATA.validation.take(torch.tensor(squares))):
        found = PROBLEM.calibrate(model, part)
        truth = true_boxes(part)
        best = box_thresholds(PROBLEM.predict(model, part), truth, images=len(part), classes=2).tolist()
        assert json.loads(json.dumps(found, allow_nan=False)) == found
        assert found["thresholds"] == [None if each == float("inf") else each for each in best]
    assert found["thresholds"][0] is None


def test_without_torchvision_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(ModuleNotFoundError, match=r"RetinaNet needs torchvision: pip install 'rankwise\[vision\]'"):
        PROBLEM.build_model(SCHEMA)
