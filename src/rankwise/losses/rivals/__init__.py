"""What people train with today, in the same form, to compare with."""

from rankwise.losses.rivals.alrp import ALRPLoss
from rankwise.losses.rivals.ap_loss import APLoss
from rankwise.losses.rivals.approx_ndcg import ApproxNDCGLoss
from rankwise.losses.rivals.blackbox_ap import BlackboxAPLoss
from rankwise.losses.rivals.bpr import BPRLoss
from rankwise.losses.rivals.cross_entropy import BalancedCrossEntropyLoss, CrossEntropyLoss
from rankwise.losses.rivals.fast_ap import FastAPLoss
from rankwise.losses.rivals.focal import FocalLoss
from rankwise.losses.rivals.greedy_top_k import GreedyTopKLoss
from rankwise.losses.rivals.gumbel_approx_ndcg import GumbelApproxNDCGLoss
from rankwise.losses.rivals.histogram_ap import HistogramAPLoss
from rankwise.losses.rivals.lambdaloss import LambdaLoss, LambdaRankLoss
from rankwise.losses.rivals.ldam import LDAMLoss
from rankwise.losses.rivals.listmle import ListMLELoss
from rankwise.losses.rivals.listnet import ListNetLoss
from rankwise.losses.rivals.metric_learning import CrossBatchMemoryLoss, MetricLearningLoss
from rankwise.losses.rivals.neural_ndcg import NeuralNDCGLoss
from rankwise.losses.rivals.pairwise_auroc import PairwiseAUROCLoss
from rankwise.losses.rivals.partial_auc import HingePartialAUCLoss
from rankwise.losses.rivals.pointwise import SquaredErrorLoss
from rankwise.losses.rivals.precision_at_k import PrecisionAtKLoss
from rankwise.losses.rivals.ranknet import RankNetLoss
from rankwise.losses.rivals.smooth_ap import SmoothAPLoss
from rankwise.losses.rivals.soap import SOAPLoss
from rankwise.losses.rivals.softmax import SampledSoftmaxLoss, SoftmaxLoss

__all__ = [
    "ALRPLoss",
    "APLoss",
    "ApproxNDCGLoss",
    "BPRLoss",
    "BalancedCrossEntropyLoss",
    "BlackboxAPLoss",
    "CrossBatchMemoryLoss",
    "CrossEntropyLoss",
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
    "SoftmaxLoss",
    "SquaredErrorLoss",
]
