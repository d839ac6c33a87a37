"""The files that a command enters: a newcomer who follows it meets few, and they do not grow unnoticed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import rankwise
from rankwise.cli import main
from workers.rows import write_all

ROOT = Path(rankwise.__file__).parent
# The insides of losses, metrics and reports are walks of their own.
INSIDES = ("losses/", "estimators/", "pairs/", "metrics/", "report/", "lists.py", "ranks.py", "positives.py")
INSIDES += ("gains.py", "surrogates.py", "sorting.py")


def entered(*arguments):
    """The files of the package in which a function runs during a command."""
    files = set()

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_name != "<module>":
            files.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        assert main(list(arguments)) == 0
    finally:
        sys.setprofile(before)
    names = {Path(name).relative_to(ROOT).as_posix() for name in files if Path(name).is_relative_to(ROOT)}
    return sorted(name for name in names if not name.startswith(INSIDES))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_all(tmp_path)
    return tmp_path


def test_training_and_predicting_enter_few_files(folder):
    short = ["rows.yaml", "budget.steps=4", "evaluation.every=2", "--out"]
    assert main(["train", *short, "first"]) == 0  # all modules are imported by now
    assert main(["predict", "first", "--data", "rows.csv", "--out", "first.csv"]) == 0
    training = entered("train", *short, "second")
    assert "runs/training.py" in training
    assert len(training) <= 48, training
    predicting = entered("predict", "second", "--data", "rows.csv", "--out", "second.csv")
    assert "runs/run.py" in predicting
    assert len(predicting) <= 34, predicting
    unused = {"training/loop.py", "runs/training.py", "samplers/seeded.py"}
    assert not unused & set(predicting)  # using a run trains nothing
