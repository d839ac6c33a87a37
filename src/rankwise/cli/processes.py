"""Which process of a run this is, before torch is asked."""

from __future__ import annotations

import os

__all__ = ["is_first_process", "lost_a_process"]


def is_first_process() -> bool:
    """Whether this process speaks for the run; the others are silent unless something goes wrong."""
    return os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) == "0"


def lost_a_process(problem: RuntimeError) -> bool:
    """Whether an error means that another process of the run is gone."""
    signs = ("closed by peer", "connection reset", "broken pipe", "connection refused", "timed out", "nccl error")
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and any(sign in str(problem).lower() for sign in signs)
