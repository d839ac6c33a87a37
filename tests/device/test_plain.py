"""Plain versions whose kernels are counted beside ours: they compute the same value and gradient."""

from __future__ import annotations

import pytest
import torch

from benchmarks.device.cases import CASES
from benchmarks.device.plain import PLAIN

# The plain SOPRC takes unscaled scores and the nearest one as a quantile, without interpolation. That of retrieval
# takes the recall of the batch instead of running quantiles.
SIMPLER = {"SOPRC, 64 + 960", "retrieval SOPRC, 224"}


def steps(build, batch):
    """Return the values and gradients of some training steps."""
    loss, results = build(), []
    for seed in (0, 1, 2, 2):
        (scores, *others), options = batch(seed)
        scores.requires_grad_()
        value = loss(scores, *others, **options)
        value.backward()
        results.append((value.detach(), scores.grad))
    return results


@pytest.mark.parametrize("name", [name for name in PLAIN if name not in SIMPLER])
def test_a_plain_version_computes_the_same(name):
    for (ours, gradient), (plain, expected) in zip(steps(*CASES[name]), steps(*PLAIN[name]), strict=True):
        torch.testing.assert_close(plain, ours, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(expected, gradient, rtol=1e-3, atol=1e-4 * gradient.abs().max().item())
