"""Targets that are labels of rows: one list of all rows."""

from __future__ import annotations

import torch
from torch import Tensor

from rankwise.data import Batch, Part, Split
from rankwise.problems.inspection import spread_over

__all__ = ["check_both_kinds", "probe_both_kinds"]

# Rows of each label on which running estimates are compared with exact values.
PROBED_ROWS = 2048


def check_both_kinds(split: Split[Part]) -> None:
    """Refuse a split of which a part lacks positive or negative rows."""
    for name in ("train", "validation", "test"):
        labels = split.part(name).labels
        positives = int((labels == 1).sum())
        if positives in (0, len(labels)):
            of = f"{positives} positive of {len(labels)}"
            raise ValueError(f"data: expected positive and negative rows in the {name} part, got {of}")


def probe_both_kinds(part: Part) -> Batch:
    """Return up to 2,048 rows of each label, evenly spread."""
    kinds: list[Tensor] = [(part.labels == label).nonzero().squeeze(1) for label in (0, 1)]
    return part.__getitems__(torch.cat([rows[spread_over(len(rows), PROBED_ROWS)] for rows in kinds]).tolist())
