"""Training: the loop, fair comparisons, and the demonstration. Needs `pip install "rankwise[train]"`."""

from rankwise.training.linear import LinearRun, fit_linear
from rankwise.training.loop import History, Run, adamw, cosine, fit
from rankwise.training.trials import Contender, Outcome, Summary, Trial, compete, summarise

__all__ = [
    "Contender",
    "History",
    "LinearRun",
    "Outcome",
    "Run",
    "Summary",
    "Trial",
    "adamw",
    "compete",
    "cosine",
    "fit",
    "fit_linear",
    "summarise",
]
