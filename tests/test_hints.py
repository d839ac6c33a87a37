"""Mistakes of the first hour are answered with a hint."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import rankwise as rw
from rankwise.cli import main
from rankwise.losses import create_loss
from workers.patience import PATIENCE
from workers.processes import Program

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize(
    "name, meant",
    [("AUPRC", "auprc"), ("AUPRCLoss", "auprc"), ("NDCG", "ndcg"), ("cross_entropy", "cross-entropy"), ("BCE", "ce")],
)
def test_a_loss_in_other_letters_is_guessed(name, meant):
    with pytest.raises(ValueError, match=rf"unknown loss '{name}'; did you mean '{meant}'\?"):
        create_loss(name)


@pytest.mark.parametrize("call", [rw.losses.AUPRCLoss(), lambda s, y: rw.evaluate(s, y, "ap")])
def test_labels_that_are_not_binary_come_with_a_hint(call):
    scores = torch.arange(5.0)
    with pytest.raises(ValueError, match=r"continuous labels need a threshold: labels > t"):
        call(scores, torch.tensor([0.1, 0.5, 0.2, 0.9, 0.3]))
    with pytest.raises(ValueError, match=r"of several classes choose the positive one: labels == c"):
        call(scores, torch.tensor([0, 2, 1, 0, 1]))


def test_features_beyond_all_bounds_are_named():
    from rankwise.sklearn import APClassifier, NDCGRanker

    X = np.random.default_rng(0).normal(size=(60, 3))
    y = (X[:, 0] > 0).astype(int)
    for fit in (APClassifier(max_iter=2).fit, lambda X, y: NDCGRanker(max_iter=2).fit(X, y, qid=np.arange(60) // 6)):
        with pytest.raises(ValueError, match=r"X: expected numbers up to 1e\+?150 in size, got .*e\+?200; divide"):
            fit(X * 1e200, y)


@pytest.mark.parametrize(
    "name", ["plain_torch.py", "accelerate_loop.py", "huggingface_trainer.py", "lightning_module.py"]
)
def test_examples_without_arguments_say_how_they_are_called(name, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(EXAMPLES / name)])
    # Python prints a text that a program ends with, and returns 1.
    with pytest.raises(SystemExit, match=f"python examples/{name}"):
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def write_to_a_closed_pipe(arguments):
    reader, writer = os.pipe()
    os.dup2(writer, sys.stdout.fileno())
    os.close(reader)
    return main(arguments)


@pytest.mark.parametrize("arguments", [["--help"], ["list", "losses", "--json"]])
def test_a_reader_that_stops_early_is_no_failure(arguments):
    program = Program(write_to_a_closed_pipe, arguments)
    _, said = program.communicate(timeout=PATIENCE)
    assert said == ""
    assert program.returncode == 0


def test_nothing_is_said_when_python_ends_after_its_reader():
    with subprocess.Popen(
        [sys.executable, "-m", "rankwise", "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        program.stdout.close()  # as `| head` does
        said = program.stderr.read()
    assert said == ""
    assert program.returncode == 0
