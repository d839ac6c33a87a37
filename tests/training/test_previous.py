"""Outputs under the weights before the last step: right, at the price of one forward, without side effects, savable."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rankwise.losses import StableAPLoss
from rankwise.models import FeatureMixup, MLPScorer
from rankwise.training import PreviousWeights

FEATURES = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
LABELS = (torch.arange(40) % 5 == 0).long()


def make(model=None, rate=0.3):
    torch.manual_seed(0)
    model = MLPScorer(6, hidden=(8,)) if model is None else model
    optimiser = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    return model, optimiser, PreviousWeights(model, optimiser)


def step(model, optimiser, value):
    optimiser.zero_grad()
    value.backward()
    optimiser.step()


def test_outputs_are_those_before_the_last_step():
    model, optimiser, previous = make()
    torch.testing.assert_close(previous(FEATURES), model(FEATURES).detach())
    for _ in range(4):
        before = model(FEATURES)
        step(model, optimiser, before.square().mean())
        for _ in range(2):  # asking twice, as when gradients are accumulated, changes nothing
            ours = previous(FEATURES)
            torch.testing.assert_close(ours, before.detach())
            assert not ours.requires_grad
        assert not torch.allclose(model(FEATURES), before)


def test_a_step_costs_one_forward_more_and_keeps_no_second_graph():
    model, optimiser, previous = make()
    loss, calls = StableAPLoss(), []
    model.layers[0].register_forward_hook(lambda module, given, output: calls.append(output.requires_grad))
    for _ in range(3):
        calls.clear()
        before = previous(FEATURES)
        value = loss(model(FEATURES), LABELS, previous_scores=before)
        step(model, optimiser, value)
        assert calls == [False, True]


def test_full_batch_error_shrinks_by_exactly_one_minus_the_rate():
    """The claim of METHODS 2.4 end to end: model, optimiser, previous weights, loss."""
    torch.manual_seed(0)
    rate = 0.1
    model, optimiser, previous = make(MLPScorer(6, hidden=(8,)).double(), rate=0.5)
    loss, features = StableAPLoss(update_rate=rate).double(), FEATURES.double()
    loss(model(features) + 0.5, LABELS)  # the mean starts off by .5
    for number in range(1, 30):
        before = previous(features)
        scores = model(features)
        step(model, optimiser, loss(scores, LABELS, previous_scores=before))
        error = loss.tracker.table.rows[0, 0] - scores.detach()[LABELS == 1].mean()
        assert error.item() == pytest.approx(0.5 * (1 - rate) ** number, rel=1e-9)
    assert (scores.detach() - model(features).detach()).abs().max() > 1e-3  # the weights did move


def test_running_statistics_and_random_state_are_left_alone():
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))
    model, optimiser, previous = make(model)
    step(model, optimiser, model(FEATURES).square().mean())
    statistics = {name: buffer.clone() for name, buffer in model.named_buffers()}
    random = torch.get_rng_state()
    previous(FEATURES)
    assert torch.equal(torch.get_rng_state(), random)
    for name, buffer in model.named_buffers():
        assert torch.equal(buffer, statistics[name]), name
    assert model.training


def test_random_models_draw_the_same_right_after():
    class Mixing(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.mix, self.last = nn.Linear(6, 8), FeatureMixup(0.5), nn.Linear(8, 1)

        def forward(self, features, labels):
            features, labels = self.mix(self.first(features).relu(), labels)
            return self.last(features).squeeze(-1), labels

    model, optimiser, previous = make(Mixing(), rate=0.0)  # a step that moves nothing
    step(model, optimiser, model(FEATURES, LABELS)[0].sum())
    scores, labels = previous(FEATURES, LABELS)
    now, same = model(FEATURES, LABELS)
    torch.testing.assert_close(scores, now.detach())
    assert torch.equal(labels, same)


def test_another_method_can_be_called():
    class Scaled(MLPScorer):
        def scaled(self, features, factor):
            return self(features) * factor

    model, optimiser, previous = make(Scaled(6, hidden=(8,)))
    before = model(FEATURES)
    step(model, optimiser, before.square().mean())
    torch.testing.assert_close(previous(FEATURES, 3.0, method="scaled"), 3 * before.detach())


def test_frozen_and_tied_weights():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.frozen, self.one, self.other = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)
            self.other.weight = self.one.weight
            self.frozen.requires_grad_(False)

        def forward(self, x):
            return self.other(self.one(self.frozen(x))).sum(1)

    model = Tied()
    model, optimiser, previous = make(model)
    before = model(FEATURES)
    step(model, optimiser, before.square().mean())
    torch.testing.assert_close(previous(FEATURES), before.detach())
    assert sorted(previous.state_dict()) == ["one.bias", "one.weight", "other.bias"]


def test_state_survives_a_file(tmp_path):
    model, optimiser, previous = make()
    for _ in range(2):
        step(model, optimiser, model(FEATURES).square().mean())
    parts = {"model": model, "optimiser": optimiser, "previous": previous}
    torch.save({name: part.state_dict() for name, part in parts.items()}, tmp_path / "state.pt")
    saved = torch.load(tmp_path / "state.pt", weights_only=True)
    again = dict(zip(parts, make(), strict=True))
    for name, part in again.items():
        part.load_state_dict(saved[name])
    assert torch.equal(again["previous"](FEATURES), previous(FEATURES))
    assert not torch.equal(again["previous"](FEATURES), model(FEATURES))
    # What was loaded is a copy: the saved tensors do not follow the next step.
    kept = saved["previous"]["layers.0.weight"].clone()
    step(again["model"], again["optimiser"], again["model"](FEATURES).sum())
    assert torch.equal(saved["previous"]["layers.0.weight"], kept)


def test_bad_input_is_named():
    model, optimiser, previous = make()
    with pytest.raises(TypeError, match="model: expected a module, got str"):
        PreviousWeights("model", optimiser)
    with pytest.raises(TypeError, match="optimiser: expected a torch optimiser, got MLPScorer"):
        PreviousWeights(model, model)
    with pytest.raises(ValueError, match=r"state: expected weights of this model, got 'last\.weight'"):
        previous.load_state_dict({"last.weight": torch.zeros(1)})
    with pytest.raises(ValueError, match=r"state: expected 'layers.2.bias' of shape \(1,\), got \(2,\)"):
        previous.load_state_dict({"layers.2.bias": torch.zeros(2)})
