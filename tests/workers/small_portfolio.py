"""The default model of APClassifier with smaller ensembles, for tests of what does not depend on their size."""

from __future__ import annotations

from functools import partial

import pytest

from rankwise.models import mixing
from rankwise.sklearn import portfolio


def shrink_ensembles(patch: pytest.MonkeyPatch) -> None:
    """Let the ensembles of the portfolio have a tenth of their trees, and its mix a tenth of its bootstrap draws."""
    patch.setattr(portfolio, "_EXTRA_TREES", partial(portfolio._EXTRA_TREES, n_estimators=6))
    patch.setattr(portfolio, "_BOOSTING", partial(portfolio._BOOSTING, max_iter=10))
    patch.setattr(mixing, "_DRAWS", 20)
