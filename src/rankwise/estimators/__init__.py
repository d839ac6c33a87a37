"""Running estimates that losses keep between batches, in registered buffers only."""

from rankwise.estimators.groups import GroupTracker, MeanTracker, QuantileTracker, interpolate_quantiles
from rankwise.estimators.recent import RecentRows
from rankwise.estimators.table import IdTable, PairAverages
from rankwise.estimators.thresholds import ThresholdTracker

__all__ = [
    "GroupTracker",
    "IdTable",
    "MeanTracker",
    "PairAverages",
    "QuantileTracker",
    "RecentRows",
    "ThresholdTracker",
    "interpolate_quantiles",
]
