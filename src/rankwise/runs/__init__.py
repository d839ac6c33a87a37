"""Runs: train a problem, open what was trained, use it. Needs `pip install "rankwise[train]"`."""

from rankwise.runs.folder import RunFolder
from rankwise.runs.predictions import Predictions
from rankwise.runs.run import Run, load_run, load_runs
from rankwise.runs.training import Watcher, train, train_seeds

__all__ = ["Predictions", "Run", "RunFolder", "Watcher", "load_run", "load_runs", "train", "train_seeds"]
