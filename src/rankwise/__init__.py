"""rankwise: train what you measure.

Losses that optimise ranking metrics (average precision, and more to come) from mini-batches, and the metrics, exactly.
"""

from rankwise import estimators, losses, metrics, samplers
from rankwise.losses import create_loss
from rankwise.metrics import compare, create_metric, evaluate, evaluate_retrieval
from rankwise.samplers import create_sampler

__version__ = "0.1.0"

__all__ = [
    "compare",
    "create_loss",
    "create_metric",
    "create_sampler",
    "estimators",
    "evaluate",
    "evaluate_retrieval",
    "losses",
    "metrics",
    "samplers",
]
