"""The linear solver: the method as stated, choices by the metric, warm starts, early stops."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from benchmarks.quality.linear import fit_linear
from rankwise.data import Part
from rankwise.losses import BinaryCrossEntropyLoss, PApLoss
from rankwise.losses.baselines import HingePartialAUCLoss
from rankwise.metrics import evaluate


def make_part(seed, users=12, length=25, noise=1.0):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(users * length, 5, generator=generator)
    wish = features[:, 0] - features[:, 1] + noise * torch.randn(len(features), generator=generator)
    return Part(features, (wish > 0.7).long(), torch.arange(len(features)) % users)


TRAIN, VALIDATION = make_part(0), make_part(1)


def metric_of(model, part, name):
    scores = model(part.features).detach()
    return evaluate(scores, part.labels, [name], query_ids=part.query_ids, bootstrap=0).means[name]


def plain_descent(part, loss, steps, rate, penalty):
    """The same by an ordinary model and torch's own gradients."""
    model = nn.Linear(5, 1)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    for step in range(1, steps + 1):
        value = loss(model(part.features)[:, 0], part.labels, query_ids=part.query_ids)
        gradients = torch.autograd.grad(value, list(model.parameters()), allow_unused=True)
        length = rate / math.sqrt(step + 1)
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter -= length * gradient
            model.weight /= 1 + 2 * length * penalty
    return torch.cat([model.weight[0], model.bias]).detach()


@pytest.mark.parametrize("loss", [BinaryCrossEntropyLoss(), PApLoss(4, surrogate="avg+"), HingePartialAUCLoss(0.3)])
def test_every_run_of_the_grid_is_the_plain_method(loss):
    for rate in (0.1, 0.5):
        for penalty in (0.0, 0.05):
            options = {"steps": 7, "rates": (rate,), "penalties": (penalty,), "start": "zeros", "eval_every": 7}
            run = fit_linear(TRAIN, TRAIN, loss, metric="pap@4", **options)
            expected = plain_descent(TRAIN, loss, run.step, rate, penalty)
            found = torch.cat([run.model.layers[0].weight[0], run.model.layers[0].bias]).detach()
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
            assert run.step == 7


def test_runs_of_a_grid_do_not_see_each_other():
    # In float64: rounding in another order then changes no rank.
    parts = [replace(part, features=part.features.double()) for part in (TRAIN, VALIDATION)]

    def run(rates, penalties):
        options = {"metric": "pap@4", "steps": 15, "start": "zeros"}
        return fit_linear(*parts, PApLoss(4), rates=rates, penalties=penalties, **options)

    alone = {(rate, penalty): run((rate,), (penalty,)) for rate in (0.03, 0.3) for penalty in (0.001, 0.1)}
    together = run((0.03, 0.3), (0.001, 0.1))
    assert together.value == pytest.approx(max(each.value for each in alone.values()), abs=1e-12)
    assert together.curve == pytest.approx(alone[together.rate, together.penalty].curve, abs=1e-12)


def test_the_best_judged_weights_are_returned():
    run = fit_linear(TRAIN, VALIDATION, PApLoss(4), metric="pap@4", steps=35, eval_every=10)
    assert run.steps == [0, 10, 20, 30, 35]
    assert run.value == max(run.curve) == run.curve[run.steps.index(run.step)]
    assert metric_of(run.model, VALIDATION, "pap@4") == pytest.approx(run.value, abs=1e-12)


def test_a_convex_loss_that_is_smallest_at_zero_does_not_return_zero():
    """With noise labels "max" is smallest near w = 0; by the metric the start is kept instead."""
    hard = make_part(3, noise=4.0)
    start = fit_linear(hard, hard, BinaryCrossEntropyLoss(), metric="pap@4", start="zeros", steps=50)
    loss = PApLoss(4, surrogate="max")
    run = fit_linear(hard, hard, loss, metric="pap@4", start=start, steps=200, rates=(0.3,), penalties=(0.1,))
    zero = loss(torch.zeros(len(hard)), hard.labels, query_ids=hard.query_ids)
    chosen = loss(run.model(hard.features), hard.labels, query_ids=hard.query_ids)
    assert chosen.item() > zero.item()
    assert run.value >= start.value > 0.3


def test_it_begins_at_the_start_it_is_given_and_by_default_at_cross_entropy():
    start = fit_linear(TRAIN, VALIDATION, BinaryCrossEntropyLoss(), metric="pap@4", start="zeros", steps=20)
    given = fit_linear(TRAIN, VALIDATION, PApLoss(4), metric="pap@4", start=start, steps=20)
    default = fit_linear(TRAIN, VALIDATION, PApLoss(4), metric="pap@4", steps=20)
    assert given.curve[0] == pytest.approx(start.value, abs=1e-12)
    assert default.curve == given.curve


def test_it_stops_when_nothing_improves():
    steps = []
    run = fit_linear(
        TRAIN,
        VALIDATION,
        PApLoss(4),
        metric="pap@4",
        steps=500,
        rates=(1e-6,),
        penalties=(0.0,),
        eval_every=5,
        patience=2,
        on_step=lambda step, value: steps.append(step),
    )
    assert run.taken == len(steps) == run.step + 10


def test_direct_training_ranks_better_than_nothing_and_reports_progress():
    losses = []
    run = fit_linear(
        TRAIN, VALIDATION, PApLoss(4), metric="pap@4", steps=40, on_step=lambda step, value: losses.append(value)
    )
    assert run.value > 0.7
    assert len(losses) == 40
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"rates": ()}, "rates: expected at least one number, got none"),
        ({"rates": (0.0,)}, "rates: expected a finite number > 0, got 0"),
        ({"penalties": (-1.0,)}, "penalties: expected a finite number >= 0, got -1"),
        ({"steps": 0}, "steps: expected a whole number of at least 1, got 0"),
        ({"start": "zero"}, "start: unknown word 'zero'; did you mean 'zeros'"),
        ({"metric": "pap@400"}, "validation: expected a list on which pap@400 is defined, got none"),
        ({"metric": "pp@4"}, "did you mean 'pap'"),
    ],
)
def test_bad_options_are_named(options, message):
    given = {"metric": "pap@4", "steps": 3} | options
    with pytest.raises(ValueError, match=message):
        fit_linear(TRAIN, VALIDATION, PApLoss(4), **given)
