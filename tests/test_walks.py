"""The files that a command or a loss enters: a newcomer who follows it meets few, and they do not grow unnoticed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import rankwise
from rankwise.cli import main
from rankwise.losses import AUPRCLoss, ListStatistics, NDCGLoss
from workers.rows import write_all

ROOT = Path(rankwise.__file__).parent
# The insides of losses, metrics and reports are walks of their own.
INSIDES = ("losses/", "estimators/", "pairs/", "metrics/", "report/", "lists.py", "ranks.py")
INSIDES += ("surrogates.py", "sorting.py")


def entered(call):
    """The files of the package in which a function runs during a call."""
    files = set()

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_name != "<module>":
            files.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return sorted(Path(name).relative_to(ROOT).as_posix() for name in files if Path(name).is_relative_to(ROOT))


def entered_by_command(*arguments):
    """The files in which a command runs, without the insides of losses, metrics and reports."""

    def command():
        assert main(list(arguments)) == 0

    return [name for name in entered(command) if not name.startswith(INSIDES)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_all(tmp_path)
    return tmp_path


def test_training_and_predicting_enter_few_files(folder):
    short = ["rows.yaml", "budget.steps=4", "evaluation.every=2", "--out"]
    assert main(["train", *short, "first"]) == 0  # all modules are imported by now
    assert main(["predict", "first", "--data", "rows.csv", "--out", "first.csv"]) == 0
    training = entered_by_command("train", *short, "second")
    assert "runs/training.py" in training
    assert len(training) <= 41, training
    predicting = entered_by_command("predict", "second", "--data", "rows.csv", "--out", "second.csv")
    assert "runs/run.py" in predicting
    assert len(predicting) <= 26, predicting
    unused = {"training/loop.py", "runs/training.py", "samplers/seeded.py"}
    assert not unused & set(predicting)  # using a run trains nothing


def test_losses_enter_few_files():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(64, generator=generator, requires_grad=True)
    labels, queries = torch.arange(64) % 8 == 0, torch.arange(64) // 16
    auprc = AUPRCLoss()
    walk = entered(lambda: auprc(scores, labels).backward())
    assert "losses/auprc.py" in walk
    assert len(walk) <= 9, walk
    # Ten more items of each list are irrelevant and not in the batch.
    more = torch.arange(4).repeat_interleave(10)
    statistics = ListStatistics(torch.cat([labels.long(), torch.zeros_like(more)]), torch.cat([queries, more]))
    ndcg = NDCGLoss(statistics)
    walk = entered(lambda: ndcg(scores, labels, query_ids=queries, sample_ids=torch.arange(64)).backward())
    assert "losses/ndcg.py" in walk
    assert len(walk) <= 9, walk
