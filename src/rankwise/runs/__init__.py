"""Runs: train a problem, open what was trained, use it. Needs `pip install "rankwise[train]"`."""

from rankwise.runs.folder import RunFolder
from rankwise.runs.predictions import Detections, Predictions, RankedLists, write_tables
from rankwise.runs.run import Run, load_run, load_runs
from rankwise.runs.training import Watcher, train, train_seeds

__all__ = [
    "Detections",
    "Predictions",
    "RankedLists",
    "Run",
    "RunFolder",
    "Watcher",
    "load_run",
    "load_runs",
    "train",
    "train_seeds",
    "write_tables",
]
