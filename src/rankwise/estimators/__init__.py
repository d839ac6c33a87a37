"""What survives between batches: state held in registered buffers only."""

from rankwise.estimators.averages import PairAverages
from rankwise.estimators.means import MeanTracker
from rankwise.estimators.quantiles import QuantileTracker, interpolate_quantiles
from rankwise.estimators.recent import RecentRows
from rankwise.estimators.table import IdTable
from rankwise.estimators.thresholds import ThresholdTracker
from rankwise.estimators.tracker import GroupTracker

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
