"""What survives between batches: state held in registered buffers only."""

from rankwise.estimators.quantiles import QuantileTracker, interpolate_quantiles
from rankwise.estimators.table import IdTable

__all__ = ["IdTable", "QuantileTracker", "interpolate_quantiles"]
