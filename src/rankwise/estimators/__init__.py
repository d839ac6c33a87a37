"""What survives between batches: state held in registered buffers only."""

from rankwise.estimators.recent import RecentRows
from rankwise.estimators.table import IdTable
from rankwise.estimators.thresholds import ThresholdTracker
from rankwise.estimators.trackers import GroupTracker, MeanTracker, PairAverages, QuantileTracker, interpolate_quantiles

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
