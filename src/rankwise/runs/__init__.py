"""Runs: train a problem, open what was trained, use it. Needs `pip install "rankwise[train]"`."""

from rankwise.runs.folder import RunFolder
from rankwise.runs.predictions import Detections, Predictions, RankedLists, write_tables
from rankwise.runs.run import Run, load_run, load_runs
from rankwise.runs.training import Watcher, continue_run, train, train_seeds

__all__ = [
    "Detections",
    "Predictions",
    "RankedLists",
    "Run",
    "RunFolder",
    "Watcher",
    "continue_run",
    "load_run",
    "load_runs",
    "train",
    "train_seeds",
    "write_tables",
]
