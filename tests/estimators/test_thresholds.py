"""Thresholds: the minimum for lists of any length and steps of any width, and the step of a running one."""

from __future__ import annotations

import math

import pytest
import torch

from benchmarks.device.pretend import PretendDevice
from rankwise.estimators import ThresholdTracker


def slope(scores, value, k, tau, tau_norm):
    """Compute the derivative of the objective at the threshold, from its definition."""
    size = scores.shape[1]
    above = torch.sigmoid((scores - value[:, None]) / tau).mean(1)
    return (k + 0.5) / size + tau_norm * (value - scores.mean(1)) - above


def shares(scores):
    return torch.full_like(scores, 1 / scores.shape[1])


@pytest.mark.parametrize("spread", [1e-2, 1.0, 1e3])
@pytest.mark.parametrize("tau", [0.01, 0.3, 5.0])
@pytest.mark.parametrize("length, k", [(3, 1), (3, 2), (40, 3), (40, 39), (500, 3), (500, 200)])
def test_the_slope_is_0_at_the_threshold(length, k, tau, spread):
    """For steps that reach only the best items of a list, as for those that reach all of it."""
    scores = spread * torch.randn(4, length, generator=torch.Generator().manual_seed(k), dtype=torch.float64)
    tracker = ThresholdTracker(k, tau=tau, tau_norm=1e-4)
    found = tracker(scores, shares(scores), torch.full((4,), length), None)
    assert slope(scores, found.value, k, tau, 1e-4).abs().max() < 1e-9
    assert torch.equal(found.value, found.observed_at)
    step = 1e-4 * tau
    around = [slope(scores, found.value + side * step, k, tau, 1e-4) for side in (-1, 1)]
    torch.testing.assert_close(found.curvature, (around[1] - around[0]) / (2 * step), rtol=1e-4, atol=1e-9)


def test_a_search_that_starts_at_0_is_as_exact_as_any():
    scores = torch.randn(4, 40, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    scores -= scores.sort(1, descending=True).values[:, 3:4]  # the fourth is where it starts
    found = ThresholdTracker(3, tau=0.3)(scores, shares(scores), torch.full((4,), 40), None)
    assert slope(scores, found.value, 3, 0.3, 1e-6).abs().max() < 1e-9


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("padding", [-1e9, 0.0, 1e9])
@pytest.mark.parametrize("length, k", [(5, 4), (12, 3), (100, 3)])
def test_padding_of_any_score_changes_nothing(length, k, padding, dtype):
    """Also for an item far from all others, around which the search goes by halves."""
    scores = torch.randn(3, length, generator=torch.Generator().manual_seed(k), dtype=dtype)
    scores[1, 0], scores[2, :k] = 50.0, scores[2, :k] + 40.0
    size = torch.full((3,), length)
    wide = torch.cat([torch.full((3, 200), padding, dtype=dtype), scores], 1)
    share = torch.cat([torch.zeros(3, 200, dtype=dtype), shares(scores)], 1)
    tracker = ThresholdTracker(k, tau=0.01)
    alone = tracker(scores, shares(scores), size, None)
    padded = tracker(wide, share, size, None)
    tolerance = {"rtol": 1e-6, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 1e-9, "atol": 1e-9}
    torch.testing.assert_close(padded.value, alone.value, **tolerance)
    assert slope(scores, alone.value, k, 0.01, 1e-6).abs().max() < (1e-4 if dtype == torch.float32 else 1e-9)


@pytest.mark.parametrize("unit", ["spread", "score"])
def test_a_running_threshold_takes_the_stated_step(unit):
    first, second = torch.randn(2, 1, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    k, tau, tau_norm, size = 2, 0.3, 0.01, 12
    tracker = ThresholdTracker(k, tau=tau, tau_norm=tau_norm, step_size=0.5, step_unit=unit, update_rate=0.2)
    group = torch.tensor([5])
    start = tracker(first, shares(first), torch.tensor([size]), group)
    found = tracker(second, shares(second), torch.tensor([size]), group)
    level = (k + 0.5) / size
    step = 0.5 * slope(second, start.value, k, tau, tau_norm)
    if unit == "spread":
        step = step * (second - second.mean()).abs().mean() / math.sqrt(level * (1 - level))
    torch.testing.assert_close(found.value, start.value - step, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.observed_at, start.value, rtol=1e-6, atol=1e-6)
    above = torch.sigmoid((second - start.value[:, None]) / tau)
    here = (above * (1 - above)).mean(1) / tau + tau_norm
    torch.testing.assert_close(found.curvature, 0.8 * start.curvature + 0.2 * here, rtol=1e-5, atol=1e-5)


def test_a_new_list_starts_beside_a_known_one_as_it_starts_alone():
    scores = torch.randn(2, 30, generator=torch.Generator().manual_seed(1))
    size = torch.full((2,), 30)
    together, alone = (ThresholdTracker(3, tau=0.1) for _ in range(2))
    together(scores[:1], shares(scores)[:1], size[:1], torch.tensor([1]))
    both = together(scores, shares(scores), size, torch.tensor([1, 2]))
    new = alone(scores[1:], shares(scores)[1:], size[1:], torch.tensor([2]))
    for found, expected in zip(both, new, strict=True):
        torch.testing.assert_close(found[1], expected[0])
    known = alone(scores[:1], shares(scores)[:1], size[:1], torch.tensor([1]))
    again = alone(scores[:1], shares(scores)[:1], size[:1], torch.tensor([1]))
    assert again.observed_at == known.value
    torch.testing.assert_close(both.value[0], again.value[0])


@pytest.mark.parametrize("running", [False, True])
def test_an_accelerator_gives_the_threshold_of_the_cpu(running):
    scores = torch.randn(3, 60, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    sizes, groups = torch.full((3,), 60), torch.arange(3) if running else None

    def run(put):
        tracker = ThresholdTracker(4, tau=0.1).to(put(scores).device)
        rows = None if groups is None else put(groups)
        for shift in (0.0, 0.5, 0.2):
            found = tracker(put(scores + shift), put(shares(scores)), put(sizes), rows)
        return [each.cpu() for each in found]

    expected = run(torch.clone)
    with PretendDevice() as device:
        torch.testing.assert_close(run(device.put), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "kind, spread",
    [(kind, spread) for kind in ("plain", "ties") for spread in (0.01, 1.0, 30.0)] + [("shares", 1.0)],
)
@pytest.mark.parametrize("k", [1, 7, 40])
def test_an_accelerator_converges_in_its_fixed_steps(k, kind, spread):
    scores = spread * torch.randn(64, 60, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    share, sizes = shares(scores), torch.full((64,), 60)
    if kind == "ties":
        scores = (scores / spread).round() * spread
    if kind == "shares":
        weights = torch.rand(64, 60, generator=torch.Generator().manual_seed(4), dtype=torch.float64).square() + 0.01
        share = weights / weights.sum(1, keepdim=True)
    tracker = ThresholdTracker(k, tau=0.1)
    expected = tracker(scores, share, sizes, None).value
    with PretendDevice() as device:
        found = tracker(*map(device.put, (scores, share, sizes)), None, pulled=False)
        assert found.curvature is None
        torch.testing.assert_close(found.value.cpu(), expected, rtol=1e-5, atol=1e-3 * 0.1)
