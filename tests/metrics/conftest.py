"""What the tests of the metrics share."""

from __future__ import annotations

from types import ModuleType

import pytest


@pytest.fixture
def scikit_learn() -> ModuleType:
    """scikit-learn, to compare with; a test that uses it is skipped without it."""
    pytest.importorskip("sklearn.metrics")
    return pytest.importorskip("sklearn")
