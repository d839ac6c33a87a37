"""What estimators remember in float32 stays near what they would remember in float64, however often they are told."""

from __future__ import annotations

import pytest

from benchmarks.trust.drift import ESTIMATORS, LARGEST_DRIFT, drift


@pytest.mark.parametrize("updates", [1000, pytest.param(1_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_rounding_does_not_add_up(name, updates):
    found = drift(name, updates)
    assert 0 < max(found.values()) < LARGEST_DRIFT
