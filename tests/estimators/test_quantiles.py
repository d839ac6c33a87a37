"""Interpolated quantiles and their moving averages: METHODS 1.2 and Proposition 1."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.device.pretend import PretendDevice
from oracles import auprc as oracle
from rankwise.estimators import QuantileTracker, interpolate_quantiles

scores = st.lists(st.floats(-10, 10, allow_subnormal=False), min_size=1, max_size=12)


def phi(values, count, bounds=None):
    row = torch.tensor([values], dtype=torch.float64)
    return interpolate_quantiles(row, torch.ones_like(row, dtype=torch.bool), count, bounds)[0]


@given(scores, st.integers(1, 30), st.sampled_from([None, (-10, 10), (-10, 40), (-30, 11)]))
def test_quantiles_equal_the_definition(values, count, bounds):
    expected = torch.tensor(oracle.interpolate(values, count, *([bounds] if bounds else [])), dtype=torch.float64)
    torch.testing.assert_close(phi(values, count, bounds), expected, rtol=1e-9, atol=1e-9)


weighted = st.lists(st.tuples(st.floats(-10, 10, allow_subnormal=False), st.floats(0.01, 3)), min_size=1, max_size=12)


@given(weighted, st.integers(1, 30), st.sampled_from([None, (-10, 10), (-30, 11)]), st.randoms())
def test_weighted_quantiles_equal_the_definition_in_any_order(items, count, bounds, random):
    expected = oracle.interpolate_weighted(*zip(*items, strict=True), count, *([bounds] if bounds else []))
    random.shuffle(items)
    # Two empty slots at the end, and one of weight 0 among them.
    rows = torch.tensor([[*items, (50.0, 0.0), (-50.0, 0.0)]], dtype=torch.float64)
    mask = torch.arange(rows.shape[1])[None] < len(items)
    ours = interpolate_quantiles(rows[..., 0], mask, count, bounds, rows[..., 1])[0]
    torch.testing.assert_close(ours, torch.tensor(expected, dtype=torch.float64), rtol=1e-7, atol=1e-7)


@given(scores, st.integers(1, 30), st.floats(0.1, 5))
def test_equal_weights_change_nothing(values, count, weight):
    row = torch.tensor([values], dtype=torch.float64)
    ours = interpolate_quantiles(row, None, count, None, torch.full_like(row, weight))[0]
    torch.testing.assert_close(ours, phi(values, count), rtol=1e-7, atol=1e-7)


@given(scores, st.randoms())
def test_order_of_scores_changes_nothing(values, random):
    shuffled = list(values)
    random.shuffle(shuffled)
    assert torch.equal(phi(values, 9), phi(shuffled, 9))


@given(scores)
def test_quantiles_ascend(values):
    assert bool((phi(values, 20).diff() >= -1e-9).all())


def test_constant_scores_give_constant_quantiles():
    assert phi([0.3] * 4, 7).tolist() == pytest.approx([0.3] * 7)
    assert phi([0.3], 7).tolist() == pytest.approx([0.3] * 7)


def test_ends_are_cut_to_the_bounds():
    cut, whole = phi([0.1, 0.9], 50, (0.0, 1.0)), phi([0.1, 0.9], 50)
    assert 0 <= float(cut.min()) < float(cut.max()) <= 1
    assert float(whole.min()) < 0 < 1 < float(whole.max())


def test_padding_changes_nothing():
    values = torch.tensor([[0.2, 0.8, 0.5, 99.0], [1.0, 99.0, 99.0, 99.0], [99.0] * 4])
    mask = torch.tensor([[True, True, True, False], [True, False, False, False], [False] * 4])
    ours = interpolate_quantiles(values, mask, 6)
    torch.testing.assert_close(ours[0].double(), phi([0.2, 0.8, 0.5], 6))
    assert ours[1].tolist() == [1.0] * 6
    assert ours[2].tolist() == [0.0] * 6


@pytest.mark.parametrize("mask", [None, torch.ones(2, 0, dtype=torch.bool)])
def test_no_scores_at_all_give_zeros(mask):
    assert interpolate_quantiles(torch.ones(2, 0), mask, 3).tolist() == [[0.0] * 3] * 2


def test_spread_of_the_estimate_grows_with_the_sample_as_stated():
    """E[phi] against the true quantiles of N(0, 1): spread x .79 at n = 4, x .95 at 20, x .99 at 100."""
    levels = (torch.arange(100, dtype=torch.float64) + 0.5) / 100
    true = torch.special.ndtri(levels)
    for n, share in ((4, 0.79), (20, 0.95), (100, 0.99)):
        draws = torch.randn(20_000, n, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
        mean = interpolate_quantiles(draws, torch.ones_like(draws, dtype=torch.bool), 100).mean(0)
        assert float((mean * true).sum() / (true * true).sum()) == pytest.approx(share, abs=0.02)


def test_tracker_follows_proposition_1():
    """E V_T = E phi + (1 - beta)^T (V_1 - E phi), and Var V <= Var phi * beta / (2 - beta) in the long run."""
    beta, rounds, repeats = 0.1, 60, 4000
    tracker = QuantileTracker(count=1, update_rate=beta)
    groups = torch.arange(repeats)
    generator = torch.Generator().manual_seed(0)
    tracker(torch.full((repeats, 1), 5.0), torch.ones(repeats, dtype=torch.bool), groups)
    for _ in range(rounds):
        observed = 1 + torch.randn(repeats, 1, generator=generator)
        values = tracker(observed, torch.ones(repeats, dtype=torch.bool), groups)
    assert float(values.mean()) == pytest.approx(1 + (1 - beta) ** rounds * 4, abs=0.02)
    assert float(values.var()) <= beta / (2 - beta) * 1.1


def test_nothing_is_written_in_eval_mode_or_without_groups():
    tracker = QuantileTracker(count=2)
    observed, present = torch.tensor([[1.0, 2.0]]), torch.tensor([True])
    assert torch.equal(tracker(observed, present, None), observed)
    assert torch.equal(tracker.eval()(observed, present, torch.tensor([3])), observed)
    assert len(tracker.table) == 0


def test_a_list_without_positives_leaves_its_group_as_it_is():
    tracker = QuantileTracker(count=1)
    tracker(torch.tensor([[1.0]]), torch.tensor([True]), torch.tensor([3]))
    after = tracker(torch.tensor([[9.0]]), torch.tensor([False]), torch.tensor([3]))
    assert after.tolist() == [[1.0]]


def test_loading_a_state_that_has_seen_nothing_warns():
    with pytest.warns(UserWarning, match="has seen nothing"):
        QuantileTracker().load_state_dict(QuantileTracker().state_dict())


@pytest.mark.parametrize("bounds", [None, (-1.0, 1.0)])
@pytest.mark.parametrize("count", [1, 7, 100])
def test_an_accelerator_gives_the_quantiles_of_the_cpu(bounds, count):
    """Lists of no, one, two and many scores."""
    scores = torch.rand(5, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 2 - 1
    mask = torch.arange(12) < torch.tensor([0, 1, 2, 7, 12])[:, None]
    expected = interpolate_quantiles(scores, mask, count, bounds)
    with PretendDevice() as device:
        found = interpolate_quantiles(device.put(scores), device.put(mask), count, bounds)
        torch.testing.assert_close(found.cpu(), expected)
