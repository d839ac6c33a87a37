"""What people train with today, in the same form, to compare with."""

from rankwise.losses.rivals.approx_ndcg import ApproxNDCGLoss
from rankwise.losses.rivals.bpr import BPRLoss
from rankwise.losses.rivals.cross_entropy import BalancedCrossEntropyLoss, CrossEntropyLoss
from rankwise.losses.rivals.gumbel_approx_ndcg import GumbelApproxNDCGLoss
from rankwise.losses.rivals.lambdaloss import LambdaLoss, LambdaRankLoss
from rankwise.losses.rivals.listmle import ListMLELoss
from rankwise.losses.rivals.listnet import ListNetLoss
from rankwise.losses.rivals.neural_ndcg import NeuralNDCGLoss
from rankwise.losses.rivals.pointwise import SquaredErrorLoss
from rankwise.losses.rivals.ranknet import RankNetLoss
from rankwise.losses.rivals.softmax import SampledSoftmaxLoss, SoftmaxLoss

__all__ = [
    "ApproxNDCGLoss",
    "BPRLoss",
    "BalancedCrossEntropyLoss",
    "CrossEntropyLoss",
    "GumbelApproxNDCGLoss",
    "LambdaLoss",
    "LambdaRankLoss",
    "ListMLELoss",
    "ListNetLoss",
    "NeuralNDCGLoss",
    "RankNetLoss",
    "SampledSoftmaxLoss",
    "SoftmaxLoss",
    "SquaredErrorLoss",
]
