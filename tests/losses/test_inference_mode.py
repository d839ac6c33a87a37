"""A call under `torch.inference_mode()` counts as any other, and the loss can be trained, saved and loaded after it."""

from __future__ import annotations

import copy

import pytest
import torch

pytest.importorskip("torchmetrics")
pytest.importorskip("pytorch_metric_learning")

from rankwise.estimators import (
    IdTable,
    MeanTracker,
    PairAverages,
    QuantileTracker,
    RecentRows,
    ThresholdTracker,
    interpolate_quantiles,
)
from workers.stateful import LOSS_BUILDS, call_loss


def train(name, loss, steps):
    pairs = (call_loss(name, loss, step) for step in steps)
    return [torch.autograd.grad(value, leaf)[0] for leaf, value in pairs]


def same_state(left, right):
    left, right = left.state_dict(), right.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("training", [True, False], ids=["training mode", "eval mode"])
@pytest.mark.parametrize("name", LOSS_BUILDS)
def test_a_call_in_inference_mode_leaves_what_one_without_gradient_leaves(name, training):
    straight, loss = LOSS_BUILDS[name](), LOSS_BUILDS[name]()
    for each in (straight, loss):
        train(name, each, range(2))
        each.load_state_dict(copy.deepcopy(each.state_dict()))  # so that tables build their index anew
        each.train(training)
    with torch.no_grad():
        expected = call_loss(name, straight, 2)[1]
    with torch.inference_mode():
        value = call_loss(name, loss, 2)[1]
        assert torch.equal(value, expected)
    assert same_state(straight, loss)
    assert not any(tensor.is_inference() for tensor in loss.state_dict(keep_vars=True).values())
    for each in (straight, loss):
        each.train()
    for left, right in zip(train(name, straight, range(3, 6)), train(name, loss, range(3, 6)), strict=True):
        assert torch.equal(left, right)
    assert same_state(straight, loss)
    again = LOSS_BUILDS[name]()
    with torch.inference_mode():
        again.load_state_dict(loss.state_dict())
    assert same_state(again, loss)
    train(name, again, range(6, 7))


ESTIMATORS = {
    "table": (lambda: IdTable(1), lambda t, ids, x: t.update(ids, x[:, None], 0.5)),
    "pairs": (PairAverages, lambda t, ids, x: t(torch.stack([ids, ids], 1), x)),
    "mean": (MeanTracker, lambda t, ids, x: t(x, torch.ones_like(ids, dtype=torch.bool), ids)),
    "quantiles": (
        lambda: QuantileTracker(2),
        lambda t, ids, x: t(x[:, None].repeat(1, 2), torch.ones_like(ids, dtype=torch.bool), ids),
    ),
    "threshold": (
        lambda: ThresholdTracker(1),
        lambda t, ids, x: t(x[:, None] * torch.arange(4), torch.full((len(x), 4), 0.25), ids * 0 + 4, ids),
    ),
    "recent": (lambda: RecentRows(50), lambda t, ids, x: t.add(x[:, None], ids)),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_written_in_inference_mode_can_be_written_after_it(name):
    build, write = ESTIMATORS[name]
    straight, other = build(), build()
    ids, x = torch.arange(10), torch.linspace(0, 1, 10)
    write(straight, ids, x)
    with torch.inference_mode():
        write(other, ids, x)
    for each in (straight, other):
        write(each, ids + 5, x * 2)
    assert same_state(straight, other)
    assert not any(tensor.is_inference() for tensor in other.buffers())


def test_quantiles_seen_first_in_inference_mode_have_gradients_later():
    scores = torch.linspace(0, 1, 37)[None]
    with torch.inference_mode():
        interpolate_quantiles(scores, None, 11)
    interpolate_quantiles(scores.clone().requires_grad_(), None, 11)
