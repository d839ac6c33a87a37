"""rankwise: train what you measure.

Losses that optimise ranking metrics (average precision, NDCG, NDCG@k, pAp@k) from mini-batches, the metrics themselves,
exact and fast, and a program that takes a file to a trained model and its predictions.

`import rankwise` needs torch and numpy only; what needs more is imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rankwise import estimators, losses, metrics, samplers
from rankwise.losses import create_loss
from rankwise.metrics import compare, create_metric, evaluate, evaluate_retrieval
from rankwise.samplers import create_sampler

if TYPE_CHECKING:
    from rankwise import boosting, problems, runs, sklearn, testing
    from rankwise.problems import load_problem
    from rankwise.runs import continue_run, load_run, load_runs, train, train_seeds
    from rankwise.runs.tuning import tune

__version__ = "0.1.0"

__all__ = [
    "boosting",
    "compare",
    "continue_run",
    "create_loss",
    "create_metric",
    "create_sampler",
    "estimators",
    "evaluate",
    "evaluate_retrieval",
    "load_problem",
    "load_run",
    "load_runs",
    "losses",
    "metrics",
    "problems",
    "runs",
    "samplers",
    "sklearn",
    "testing",
    "train",
    "train_seeds",
    "tune",
]

_MODULES = ("boosting", "problems", "runs", "sklearn", "testing")
_NAMES = {
    "continue_run": "runs",
    "load_problem": "problems",
    "load_run": "runs",
    "load_runs": "runs",
    "train": "runs",
    "train_seeds": "runs",
    "tune": "runs.tuning",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"rankwise.{name}")
    if name in _NAMES:
        return getattr(import_module(f"rankwise.{_NAMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
