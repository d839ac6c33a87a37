"""Executable contracts of losses, metrics, samplers and problems, for those of this package and your own."""

from __future__ import annotations

from rankwise.testing.losses import check_loss
from rankwise.testing.metrics import check_metric
from rankwise.testing.problems import check_problem
from rankwise.testing.samplers import check_sampler

__all__ = ["check_loss", "check_metric", "check_problem", "check_sampler"]
