"""Faster R-CNN as a task: its loss is what it says, every list loss trains it, runs resume bit by bit."""

from __future__ import annotations

import math

import pytest
import torch

from rankwise.data import DetectionSchema, Split
from rankwise.losses import LOSSES, StableAPLoss
from rankwise.losses.baselines import ALRPLoss, SquaredErrorLoss
from rankwise.models import InChunks, Sampled
from rankwise.problems import Detection, load_problem
from rankwise.problems.detection import ProposalLoss
from rankwise.training import Checkpoints, PreviousWeights, read_checkpoint
from workers.boxed_pictures import make_split
from workers.fitting import fit_with

pytest.importorskip("torchvision")

DATA = make_split(32)
SCHEMA = DetectionSchema.of(DATA.train)
PROBLEM = Detection(
    loss={"name": "stable-ap", "rho": 0.1, "tau": 1.0},
    model={"kind": "faster-rcnn", "channels": 16, "scale": 2, "sampled": 24},
    augmentation="none",
    batches={"size": 8},
    metrics=("ap50", "ap"),
)
FAST = {"optimiser": {"learning_rate": 1e-2}}
FITTING = [record.name for record in LOSSES if record.labels == "binary" and record.takes("lists")]


def loss_of(problem):
    return problem.build_loss(SCHEMA, DATA.train, steps=1)


def sampled(seed=0, classes=2):
    random = torch.Generator().manual_seed(seed)
    logits = torch.randn(40, classes, generator=random).requires_grad_()
    labels = torch.randint(-1, classes, (40,), generator=random)
    return Sampled(logits, labels, torch.tensor(0.3, requires_grad=True), torch.tensor(0.7, requires_grad=True), [])


@pytest.mark.parametrize("lists", ["classes", "all"])
def test_the_loss_is_the_sum_of_its_four_terms(lists):
    given = sampled()
    layout = {"lists": "columns"} if lists == "classes" else {}
    loss = ProposalLoss(StableAPLoss(link="none", **layout), 2, lists=lists, box_weight=3.0, bias_weight=0.01)
    value = loss(given)
    scores, right = [[], []], [[], []]
    for row, label in zip(given.logits, given.labels.tolist(), strict=True):
        for number in range(2):
            place = number if lists == "classes" else 0
            scores[place].append(row[number])
            right[place].append(int(label == number))
    kept = [number for number in range(2) if scores[number]]
    lists_of = [StableAPLoss(link="none")(torch.stack(scores[n]), torch.tensor(right[n])) for n in kept]
    own = [row[label] for row, label in zip(given.logits, given.labels.tolist(), strict=True) if label >= 0]
    expected = sum(lists_of) / len(lists_of) + 3 * given.box_loss + given.proposal_loss
    expected = expected + 0.01 * (sum(own) / len(own)) ** 2
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-6)
    wanted = (given.logits, given.box_loss, given.proposal_loss)
    for left, right_one in zip(*(torch.autograd.grad(each, wanted) for each in (value, expected)), strict=True):
        torch.testing.assert_close(left, right_one, rtol=1e-4, atol=1e-6)
    assert loss.skipped == 0


def test_balanced_lists_count_every_class_as_the_root_of_its_positives():
    given = sampled()._replace(labels=torch.tensor([0] * 16 + [1] * 4 + [-1] * 20))
    ranking = SquaredErrorLoss()
    loss = ProposalLoss(ranking, 2, lists="balanced", box_weight=0.0, bias_weight=0.0)
    value = loss(given) - given.proposal_loss
    weights, scores, right = [], [], []
    for row, label in zip(given.logits, given.labels.tolist(), strict=True):
        for number, positives in ((0, 16), (1, 4)):
            # 16 and 4 positives count as 4 and 2, which are 20 in all.
            weights.append(20 / (4 + 2) / math.sqrt(positives) if label == number else 1.0)
            scores.append(row[number])
            right.append(int(label == number))
    expected = SquaredErrorLoss()(torch.stack(scores), torch.tensor(right), weights=torch.tensor(weights))
    torch.testing.assert_close(value, expected)
    assert sum(weight for weight, label in zip(weights, right, strict=True) if label) == pytest.approx(20)


@pytest.mark.parametrize("lists", ["classes", "all", "balanced"])
def test_a_class_that_is_not_in_the_batch_changes_nothing_but_its_own_scores(lists):
    given = sampled(classes=3)._replace(labels=torch.tensor([0] * 10 + [1] * 3 + [-1] * 27))
    value = loss_of(PROBLEM.changed(lists=lists)).ranking
    layout = ProposalLoss(value, 3, lists=lists)
    layout(given).backward()
    assert bool(torch.isfinite(given.logits.grad).all())
    assert (given.logits.grad[:, 2] >= 0).all()


@pytest.mark.parametrize("name", FITTING)
def test_every_loss_over_lists_moves_right_classes_up(name):
    problem = PROBLEM.changed(loss=name, bias_weight=0.0)
    given = sampled()
    loss_of(problem)(given).backward()
    assert bool(torch.isfinite(given.logits.grad).all())
    right = given.labels[:, None] == torch.arange(2)
    if name != "semi-variance":  # it pulls towards the mean of a kind, from both sides
        assert given.logits.grad[right].sum() < 0


def test_the_previous_weights_score_the_same_proposals():
    problem = PROBLEM.changed(loss={"name": "stable-ap", "update_rate": 0.2})
    torch.manual_seed(0)
    model, loss, seen = problem.build_model(SCHEMA), loss_of(problem), []
    previous = PreviousWeights(model, torch.optim.SGD(model.parameters(), lr=0.1))
    loss.register_forward_pre_hook(
        lambda _, given, named: seen.append((given[0].logits, named["previous"])), with_kwargs=True
    )
    batch = next(iter(problem.train_loader(DATA.train, 0)))
    problem.training_step(model, loss, batch, previous=previous)
    ((logits, before),) = seen
    torch.testing.assert_close(logits.detach(), before)  # no step was taken: both are outputs of the same weights


def test_a_batch_without_objects_trains_the_first_stage_alone():
    given = sampled()._replace(labels=torch.full((40,), -1), box_loss=torch.tensor(0.0))
    loss = loss_of(PROBLEM)
    assert loss(given).item() == pytest.approx(0.7)
    assert loss.skipped == 2


@pytest.mark.parametrize("name", ["stable-ap", "soprc"])
def test_it_learns_to_find_the_objects(name):
    problem = PROBLEM if name == "stable-ap" else PROBLEM.changed(loss={"name": name, "prior": 0.5, "tau": 1.0})
    run = fit_with(problem, DATA, schema=SCHEMA, steps=40, every=40, **FAST)
    before, after = run.history.curve("ap50")
    assert before < 0.05
    assert after > 0.1, run.history.losses[::10]


def test_resumed_after_any_step_equals_uninterrupted(tmp_path):
    options = {"schema": SCHEMA, "steps": 4, "every": 2, **FAST}
    straight = fit_with(PROBLEM, DATA, checkpoints=Checkpoints(tmp_path, keep=100), save_every=1, **options)
    for path in Checkpoints(tmp_path).paths()[1::2]:
        resumed = fit_with(PROBLEM, DATA, start=read_checkpoint(path), **options)
        for part in ("model", "loss"):
            left, right = (getattr(run, part).state_dict() for run in (straight, resumed))
            assert all(torch.equal(left[key], right[key]) for key in left), part
        assert straight.history.metrics == resumed.history.metrics


def step(**changes):
    problem = PROBLEM.changed(batches={"size": 2})
    batch = next(iter(problem.train_loader(DATA.train, 0)))
    model = problem.build_model(SCHEMA)
    wrap = changes.pop("wrap", None)
    return problem.training_step(model if wrap is None else wrap(model), loss_of(problem), batch, **changes)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: PROBLEM.changed(loss="alrp"), "expected a loss over lists with model.kind: faster-rcnn, got alrp"),
        (lambda: step(wrap=lambda model: InChunks(model, 1)), "rows_at_once: expected a RetinaNet"),
        (lambda: ProposalLoss(StableAPLoss(), 2), 'ranking: expected a loss made with lists="columns"'),
    ],
)
def test_wrong_choices_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_alrp_is_no_list_loss():
    with pytest.raises(TypeError, match="ranking: expected a list loss, got ALRPLoss"):
        ProposalLoss(ALRPLoss(), 2)


def test_what_is_no_detector_is_named():
    with pytest.raises(TypeError, match="model: expected a detector, got Linear"):
        PROBLEM.predict(torch.nn.Linear(1, 1), DATA.test)


@pytest.mark.realdata
@pytest.mark.slow
def test_blood_cells_are_found_better_after_some_steps(real_data):
    changes = [f"data.train={real_data('bccd')}/BCCD", "model.kind=faster-rcnn", "model.sampled=64"]
    problem = load_problem("bccd", [*changes, "batches.size=4"])
    schema, split = problem.read({})
    some = Split(*(split.part(name).take(torch.arange(16)) for name in ("train", "validation", "test")))
    run = fit_with(problem, some, schema=schema, steps=120, every=120, optimiser={"learning_rate": 2e-3})
    before, after = run.history.curve("ap")
    assert before < 0.02 < after
