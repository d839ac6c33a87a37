"""Expected intervals: they contain the true value as often as they say, whatever the model and the data."""

from __future__ import annotations

import pytest
import torch

from rankwise.data.expectations import ap_interval, expected_ap_loss, mean_reach
from rankwise.metrics import average_precision


@pytest.mark.parametrize("positives", [9, 30, 100])
@pytest.mark.parametrize("prior, separation", [(0.02, 2.0), (0.1, 1.0), (0.1, 2.0), (0.3, 2.0)])
def test_the_interval_contains_the_true_ap(positives, prior, separation):
    draws, rows = 200, round(positives / prior)
    scores = torch.randn(draws, rows, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scores[:, :positives] += separation
    labels = (torch.arange(rows) < positives).long().expand(draws, -1)
    true = 1 - expected_ap_loss(prior, separation=separation)
    measured = average_precision(scores, labels, reduction="none").clamp(1e-3, 1 - 1e-3)
    contained = sum(low <= true <= high for low, high in (ap_interval(float(ap), positives) for ap in measured))
    # 95 % of 200, less 4 standard deviations.
    assert contained >= 178
    # Not wider than twice the spread asks for.
    low, high = ap_interval(true, positives)
    assert high - low < 2 * 3.92 * float(measured.std())


def test_more_positives_make_the_interval_narrower_and_it_stays_within_0_and_1():
    widths = []
    for positives in (1, 4, 16, 64):
        low, high = ap_interval(0.9, positives)
        assert 0 < low < 0.9 < high < 1
        widths.append(high - low)
    assert widths == sorted(widths, reverse=True)


def test_the_mean_of_the_most_scattered_values_lies_within_reach():
    values = torch.randint(2, (2000, 50), generator=torch.Generator().manual_seed(0)).double()
    within = ((values.mean(1) - 0.5).abs() <= mean_reach(50)).double().mean()
    assert 0.93 < float(within) < 0.97


@pytest.mark.parametrize("ap, positives", [(0.0, 5), (1.0, 5), (0.5, 0)])
def test_what_has_no_interval_is_refused(ap, positives):
    with pytest.raises(ValueError, match="expected"):
        ap_interval(ap, positives)
