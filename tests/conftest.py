"""What all tests share: repeatable examples, one thread per worker, the way to the real data."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

# Read when OpenMP is loaded. Threads that wait for each other by spinning make LightGBM twenty times slower when other
# processes hold the cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import pytest
from hypothesis import HealthCheck, settings

from benchmarks.find import find_data

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# All that is imported and collected stays: the garbage collector need not look through half a million objects again.
gc.disable()

# The workers share the cores; OMP_NUM_THREADS asks for more threads than one.
if "PYTEST_XDIST_WORKER" in os.environ:
    import torch

    torch.set_num_threads(int(os.environ.setdefault("OMP_NUM_THREADS", "1")))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Start each test, and the fixtures made for it, from one random state: no test depends on those run before it."""
    import torch

    torch.manual_seed(0)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()


@pytest.fixture
def real_data() -> Callable[[str], Path]:
    """`real_data("omniglot")`: where that data set lies, or a skip that says how to provide it."""

    def find(name: str) -> Path:
        try:
            return find_data(name)
        except FileNotFoundError as missing:
            pytest.skip(str(missing))

    return find
