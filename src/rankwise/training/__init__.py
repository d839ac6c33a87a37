"""Training: the loop, checkpoints, fair comparisons, and the demonstration. Needs `pip install "rankwise[train]"`."""

from rankwise.training.averaging import AverageWeights, averaged
from rankwise.training.checkpoints import Checkpoints, read_checkpoint
from rankwise.training.devices import Place, make_fabric
from rankwise.training.estimates import EstimateCheck, check_estimates
from rankwise.training.history import History, Run, Step
from rankwise.training.interrupts import Interrupted
from rankwise.training.linear import LinearRun, fit_linear
from rankwise.training.loop import fit
from rankwise.training.optimisers import adamw, constant, cosine, sgd, steps_down, warmed_up
from rankwise.training.previous import PreviousWeights
from rankwise.training.trials import Contender, Outcome, Summary, Trial, compete, summarise

__all__ = [
    "AverageWeights",
    "Checkpoints",
    "Contender",
    "EstimateCheck",
    "History",
    "Interrupted",
    "LinearRun",
    "Outcome",
    "Place",
    "PreviousWeights",
    "Run",
    "Step",
    "Summary",
    "Trial",
    "adamw",
    "averaged",
    "check_estimates",
    "compete",
    "constant",
    "cosine",
    "fit",
    "fit_linear",
    "make_fabric",
    "read_checkpoint",
    "sgd",
    "steps_down",
    "summarise",
    "warmed_up",
]
