"""Training: the loop, fair comparisons, and the demonstration. Needs `pip install "rankwise[train]"`."""

from rankwise.training.loop import History, Run, adamw, cosine, fit
from rankwise.training.previous import PreviousWeights
from rankwise.training.trials import Contender, Outcome, Summary, Trial, compete, summarise

__all__ = [
    "Contender",
    "History",
    "Outcome",
    "PreviousWeights",
    "Run",
    "Summary",
    "Trial",
    "adamw",
    "compete",
    "cosine",
    "fit",
    "summarise",
]
