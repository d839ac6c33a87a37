"""What people train with today, in the same form, to compare with."""

from rankwise.losses.rivals.approx_ndcg import ApproxNDCGLoss
from rankwise.losses.rivals.bpr import BPRLoss
from rankwise.losses.rivals.cross_entropy import BalancedCrossEntropyLoss, CrossEntropyLoss
from rankwise.losses.rivals.greedy_top_k import GreedyTopKLoss
from rankwise.losses.rivals.gumbel_approx_ndcg import GumbelApproxNDCGLoss
from rankwise.losses.rivals.lambdaloss import LambdaLoss, LambdaRankLoss
from rankwise.losses.rivals.listmle import ListMLELoss
from rankwise.losses.rivals.listnet import ListNetLoss
from rankwise.losses.rivals.neural_ndcg import NeuralNDCGLoss
from rankwise.losses.rivals.partial_auc import HingePartialAUCLoss
from rankwise.losses.rivals.pointwise import SquaredErrorLoss
from rankwise.losses.rivals.precision_at_k import PrecisionAtKLoss
from rankwise.losses.rivals.ranknet import RankNetLoss
from rankwise.losses.rivals.softmax import SampledSoftmaxLoss, SoftmaxLoss

__all__ = [
    "ApproxNDCGLoss",
    "BPRLoss",
    "BalancedCrossEntropyLoss",
    "CrossEntropyLoss",
    "GreedyTopKLoss",
    "GumbelApproxNDCGLoss",
    "HingePartialAUCLoss",
    "LambdaLoss",
    "LambdaRankLoss",
    "ListMLELoss",
    "ListNetLoss",
    "NeuralNDCGLoss",
    "PrecisionAtKLoss",
    "RankNetLoss",
    "SampledSoftmaxLoss",
    "SoftmaxLoss",
    "SquaredErrorLoss",
]
