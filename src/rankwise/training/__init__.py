"""The training loop, its options, checkpoints and history. Needs `pip install "rankwise[train]"`."""

from rankwise.training.checkpoints import Checkpoints, read_checkpoint
from rankwise.training.estimates import EstimateCheck, check_estimates
from rankwise.training.history import Fitted, History, Step
from rankwise.training.loop import fit
from rankwise.training.options import (
    AverageOptions,
    Budget,
    CheckpointOptions,
    DeviceOptions,
    EvaluationOptions,
    GradientOptions,
    OptimiserOptions,
    ScheduleOptions,
    make_fabric,
)
from rankwise.training.processes import Interrupted
from rankwise.training.profiling import Profile
from rankwise.training.trainable import Outputs, Trainable
from rankwise.training.weights import AverageWeights, PreviousWeights

__all__ = [
    "AverageOptions",
    "AverageWeights",
    "Budget",
    "CheckpointOptions",
    "Checkpoints",
    "DeviceOptions",
    "EstimateCheck",
    "EvaluationOptions",
    "Fitted",
    "GradientOptions",
    "History",
    "Interrupted",
    "OptimiserOptions",
    "Outputs",
    "PreviousWeights",
    "Profile",
    "ScheduleOptions",
    "Step",
    "Trainable",
    "check_estimates",
    "fit",
    "make_fabric",
    "read_checkpoint",
]
