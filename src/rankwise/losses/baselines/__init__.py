"""Common losses of other authors with the same interface, to compare with."""

from rankwise.losses.baselines.batch_ap import ALRPLoss, APLoss, BlackboxAPLoss, SmoothAPLoss
from rankwise.losses.baselines.distributional_ranking import DistributionalRankingLoss
from rankwise.losses.baselines.histogram_ap import FastAPLoss, HistogramAPLoss
from rankwise.losses.baselines.listwise import (
    ApproxNDCGLoss,
    GumbelApproxNDCGLoss,
    ListMLELoss,
    ListNetLoss,
    SampledSoftmaxLoss,
    SoftmaxLoss,
)
from rankwise.losses.baselines.metric_learning import CrossBatchMemoryLoss, MetricLearningLoss
from rankwise.losses.baselines.neural_ndcg import NeuralNDCGLoss
from rankwise.losses.baselines.pairwise import BPRLoss, LambdaLoss, LambdaRankLoss, PairwiseAUROCLoss, RankNetLoss
from rankwise.losses.baselines.pointwise import (
    BalancedCrossEntropyLoss,
    BinaryCrossEntropyLoss,
    FocalLoss,
    LDAMLoss,
    SquaredErrorLoss,
)
from rankwise.losses.baselines.soap import SOAPLoss
from rankwise.losses.baselines.sodeep import SoDeepLoss, Sorter, train_sorter
from rankwise.losses.baselines.top_k import GreedyTopKLoss, HingePartialAUCLoss, PrecisionAtKLoss

__all__ = [
    "ALRPLoss",
    "APLoss",
    "ApproxNDCGLoss",
    "BPRLoss",
    "BalancedCrossEntropyLoss",
    "BinaryCrossEntropyLoss",
    "BlackboxAPLoss",
    "CrossBatchMemoryLoss",
    "DistributionalRankingLoss",
    "FastAPLoss",
    "FocalLoss",
    "GreedyTopKLoss",
    "GumbelApproxNDCGLoss",
    "HingePartialAUCLoss",
    "HistogramAPLoss",
    "LDAMLoss",
    "LambdaLoss",
    "LambdaRankLoss",
    "ListMLELoss",
    "ListNetLoss",
    "MetricLearningLoss",
    "NeuralNDCGLoss",
    "PairwiseAUROCLoss",
    "PrecisionAtKLoss",
    "RankNetLoss",
    "SOAPLoss",
    "SampledSoftmaxLoss",
    "SmoothAPLoss",
    "SoDeepLoss",
    "SoftmaxLoss",
    "Sorter",
    "SquaredErrorLoss",
    "train_sorter",
]
