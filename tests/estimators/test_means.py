"""The running mean: METHODS 2.3 and what 2.4 says of it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankwise.estimators import MeanTracker

HERE = torch.tensor([True])
GROUP = torch.tensor([7])

numbers = st.floats(-5, 5, allow_subnormal=False)


def one(value):
    return torch.tensor([value], dtype=torch.float64)


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=8), st.sampled_from([0.01, 0.3, 1.0]), st.booleans())
def test_mean_equals_the_recursion(steps, rate, reduced):
    tracker, expected = MeanTracker(rate).double(), None
    for now, before in steps:
        given = one(before) if reduced else None
        ours = tracker(one(now), HERE, GROUP, given).item()
        expected = now if expected is None else now + (1 - rate) * (expected - (before if reduced else now))
        assert ours == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_error_of_the_full_batch_shrinks_by_one_minus_the_rate_whatever_the_weights_do():
    rate, generator = 0.05, torch.Generator().manual_seed(0)
    tracker = MeanTracker(rate).double()
    tracker(one(3.0), HERE, GROUP)
    truth = one(0.5)  # so the error starts at 2.5
    for step in range(1, 40):
        moved = truth + torch.randn(1, generator=generator, dtype=torch.float64) * step
        error = tracker(moved, HERE, GROUP, truth) - moved
        assert error.item() == pytest.approx(2.5 * (1 - rate) ** step, rel=1e-9)
        truth = moved


def test_the_plain_average_lags_where_the_reduced_one_does_not():
    """Scores rise by .1 a step: the moving average settles .1 (1 - rate) / rate behind."""
    plain, reduced = MeanTracker(0.1).double(), MeanTracker(0.1).double()
    for step in range(300):
        now, before = one(0.1 * step), one(0.1 * (step - 1))
        behind = now - plain(now, HERE, GROUP)
        exact = now - reduced(now, HERE, GROUP, before)
    assert behind.item() == pytest.approx(0.9, rel=1e-6)
    assert exact.item() == pytest.approx(0, abs=1e-9)


def test_the_reduced_mean_is_less_noisy_than_the_batch():
    """Batches of noise 1 around a moving mean: the error ends near sqrt(rate / 2), far below 1."""
    rate, lists = 0.02, 2000
    tracker, groups, present = MeanTracker(rate).double(), torch.arange(lists), torch.ones(lists, dtype=torch.bool)
    generator = torch.Generator().manual_seed(0)
    for step in range(400):
        noise = torch.randn(lists, generator=generator, dtype=torch.float64)
        mean = tracker(0.1 * step + noise, present, groups, 0.1 * (step - 1) + noise)
    assert float((mean - 0.1 * step).std()) == pytest.approx((rate / (2 - rate)) ** 0.5, rel=0.1)
    assert float((mean - 0.1 * step).mean()) == pytest.approx(0, abs=0.01)


def test_rate_one_gives_the_batch_mean_exactly():
    tracker = MeanTracker(1.0)
    for now, before in ((0.25, 3.0), (-1.5, 0.1), (0.7, 0.7)):
        given = torch.tensor([now])
        assert torch.equal(tracker(given, HERE, GROUP, torch.tensor([before])), given)


def test_the_first_observation_starts_the_mean_whatever_came_before():
    assert MeanTracker(0.01)(one(0.4), HERE, GROUP, one(-9.0)).item() == pytest.approx(0.4)
    tracker = MeanTracker(0.5).double()
    tracker(one(1.0), HERE, GROUP)
    both = tracker(
        torch.tensor([2.0, 5.0]), torch.tensor([True, True]), torch.tensor([7, 8]), torch.tensor([1.0, -9.0])
    )
    assert both.tolist() == pytest.approx([2.0, 5.0])


def test_several_lists_of_a_group_are_averaged():
    tracker = MeanTracker(0.5).double()
    tracker(one(0.0), HERE, GROUP)
    mean = tracker(torch.tensor([1.0, 3.0]), torch.tensor([True, True]), torch.tensor([7, 7]))
    assert mean.tolist() == pytest.approx([1.0, 1.0])


def test_nothing_is_written_in_eval_mode_without_groups_or_of_absent_lists():
    tracker = MeanTracker(0.5)
    assert tracker(torch.tensor([2.0]), HERE, None, torch.tensor([1.0])).tolist() == [2.0]
    assert tracker.eval()(torch.tensor([2.0]), HERE, GROUP, torch.tensor([1.0])).tolist() == [2.0]
    assert len(tracker.table) == 0
    tracker.train()(torch.tensor([1.0]), HERE, GROUP)
    assert tracker(torch.tensor([9.0]), ~HERE, GROUP, torch.tensor([3.0])).tolist() == [1.0]
    assert tracker.eval()(torch.tensor([9.0]), HERE, GROUP, torch.tensor([3.0])).tolist() == [1.0]


def test_no_gradient_flows_and_the_state_is_two_buffers():
    tracker = MeanTracker()
    observed = torch.tensor([0.5], requires_grad=True)
    assert not tracker(observed, HERE, GROUP).requires_grad
    assert list(tracker.state_dict()) == ["table.ids", "table.rows"]


def test_loading_a_state_that_has_seen_nothing_warns():
    with pytest.warns(UserWarning, match="has seen nothing"):
        MeanTracker().load_state_dict(MeanTracker().state_dict())
