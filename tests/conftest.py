"""What all tests share: repeatable examples, one thread per worker, the way to the real data."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)


@pytest.fixture
def real_data() -> Callable[[str], Path]:
    """`real_data("omniglot")`: where that data set lies, or a skip that says how to provide it."""

    def find(name: str) -> Path:
        named = os.environ.get("RANKWISE_DATA")
        root = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
        path = root / name
        if not path.exists():
            pytest.skip(f"no real data {name!r}: set RANKWISE_DATA to the folder that holds it")
        return path

    return find
