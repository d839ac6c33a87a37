"""What people train with today, in the same form, to compare with."""

from rankwise.losses.rivals.ap_loss import APLoss
from rankwise.losses.rivals.blackbox_ap import BlackboxAPLoss
from rankwise.losses.rivals.cross_entropy import BalancedCrossEntropyLoss, CrossEntropyLoss
from rankwise.losses.rivals.fast_ap import FastAPLoss
from rankwise.losses.rivals.focal import FocalLoss
from rankwise.losses.rivals.histogram_ap import HistogramAPLoss
from rankwise.losses.rivals.ldam import LDAMLoss
from rankwise.losses.rivals.metric_learning import CrossBatchMemoryLoss, MetricLearningLoss
from rankwise.losses.rivals.pairwise_auroc import PairwiseAUROCLoss
from rankwise.losses.rivals.smooth_ap import SmoothAPLoss
from rankwise.losses.rivals.soap import SOAPLoss

__all__ = [
    "APLoss",
    "BalancedCrossEntropyLoss",
    "BlackboxAPLoss",
    "CrossBatchMemoryLoss",
    "CrossEntropyLoss",
    "FastAPLoss",
    "FocalLoss",
    "HistogramAPLoss",
    "LDAMLoss",
    "MetricLearningLoss",
    "PairwiseAUROCLoss",
    "SOAPLoss",
    "SmoothAPLoss",
]
