"""Scaling and resetting: what they do, and that they are saved or repeated exactly."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rankwise.models import ContextAwareRanker, MLPScorer, ScaledRanker, Scaling, fit_scaling, reset_last_layer, scaled

ROWS = torch.randn(200, 4, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 100.0, 1e-3, 1.0])
ROWS[:, 3] = 1e6 + 0.1


def test_features_come_to_mean_0_and_spread_1_and_constants_to_0():
    out = Scaling(4).fit(ROWS)(ROWS)
    assert torch.allclose(out[:, :3].mean(0), torch.zeros(3), atol=1e-5)
    assert torch.allclose(out[:, :3].std(0, correction=0), torch.ones(3), atol=1e-4)
    assert not out[:, 3].any()


def test_log_tames_long_tails_on_both_sides():
    rows = torch.tensor([[-1e6], [0.0], [1e6]])
    assert Scaling(1, "log").fit(rows)(rows).abs().max() < 2


def test_what_was_learned_is_saved_with_the_model():
    model, other = (scaled(MLPScorer(4), 4, "standard") for _ in range(2))
    fit_scaling(model, ROWS)
    other.load_state_dict(model.state_dict())
    assert torch.equal(model(ROWS), other(ROWS))


def test_none_is_the_model_itself():
    model = MLPScorer(4)
    assert scaled(model, 4, "none") is model


@pytest.mark.parametrize("kind", ["standard", "none"])
def test_a_ranker_of_lists_sees_scaled_rows(kind):
    ranker = ContextAwareRanker(4).eval()
    ids = torch.arange(200) // 20
    inputs = Scaling(4).fit(ROWS)(ROWS) if kind == "standard" else ROWS
    both = ScaledRanker(ranker, 4, kind).eval()
    fit_scaling(both, ROWS)
    assert torch.allclose(both(ROWS, ids), ranker(inputs, ids))


@pytest.mark.parametrize("kind", ["standard", "log", "none"])
def test_missing_values_become_the_median_of_the_training_rows(kind):
    rows = ROWS[:, :2].clone()
    rows[::5, 0] = torch.nan
    layer = Scaling(2, kind, fill_missing=True).fit(rows)
    filled = torch.where(rows.isnan(), rows[:, :1].nanquantile(0.5), rows)
    assert torch.equal(layer(rows), layer(filled))
    assert torch.equal(Scaling(2, kind, fill_missing=True).fit(filled)(filled), layer(filled))


def test_an_unknown_scaling_is_refused():
    with pytest.raises(ValueError, match="scaling: unknown word 'standart'; did you mean 'standard'"):
        scaled(MLPScorer(4), 4, "standart")


def test_the_last_layer_is_drawn_anew_and_no_other():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
    before = [parameter.clone() for parameter in model.parameters()]
    state = torch.get_rng_state()
    reset_last_layer(model)
    assert torch.equal(torch.get_rng_state(), state)
    same = [torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)]
    assert same == [True, True, False, False]
    assert model[2].weight.abs().max() <= 1 / 5**0.5
    again = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
    reset_last_layer(again)
    assert torch.equal(again[2].weight, model[2].weight)


def test_a_model_without_a_linear_layer_is_refused():
    with pytest.raises(ValueError, match="model: expected a linear layer to reset, got none"):
        reset_last_layer(nn.Identity())
