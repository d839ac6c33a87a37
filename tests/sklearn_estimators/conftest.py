"""What the tests of the estimators share."""

from __future__ import annotations

import pytest

from workers.small_portfolio import shrink_ensembles


@pytest.fixture
def few_trees(monkeypatch):
    """Give the portfolio small ensembles."""
    shrink_ensembles(monkeypatch)
