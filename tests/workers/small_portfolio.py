"""The default model of APClassifier with smaller ensembles, for tests of what does not depend on their size."""

from __future__ import annotations

import pytest

from rankwise.models import mixing, trees


def shrink_ensembles(patch: pytest.MonkeyPatch) -> None:
    """Let the ensembles of the portfolio have a tenth of their trees, and its mix a tenth of its bootstrap draws."""
    patch.setattr(trees, "EXTRA_TREES", trees.EXTRA_TREES._replace(trees=6))
    patch.setattr(trees, "BOOSTING", trees.BOOSTING._replace(trees=10))
    patch.setattr(mixing, "_DRAWS", 20)
