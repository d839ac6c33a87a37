"""`rankwise tune` as a user meets it: what it prints, what it refuses, how it is stopped."""

from __future__ import annotations

import json
import re
import signal
import time

import pytest

from rankwise import extras
from rankwise.cli import main
from workers.patience import PATIENCE
from workers.processes import Program
from workers.rows import write_table

SHORT = ["budget.steps=4", "evaluation.every=2", "model.ensemble=null", "refit=false"]


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "rows.csv")
    return tmp_path


def test_it_prints_the_options_the_verdict_and_where_the_recipe_is(capsys, table):
    space = ["--space", "model.hidden=choice:[[4], [8]]", "--space", "loss.tau=fixed"]
    assert main(["tune", "rows.csv", *SHORT, *space, "--trials", "2", "--seeds", "2"]) == 0
    out, err = capsys.readouterr()
    told = " ".join(out.split())
    assert "model.hidden [64, 64]" in told
    assert "loss.tau" not in told
    assert "Validation, 2 trials (" in told
    assert "Best recipe: runs/rows-tuned/best.yaml" in told
    assert "trial 0: complete" in err
    assert (table / "runs" / "rows-tuned" / "report.html").is_file()
    # The same command has nothing left to try, and gives the same result.
    assert main(["--json", "tune", "rows.csv", *SHORT, *space, "--trials", "2", "--seeds", "2"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [trial["number"] for trial in result["trials"]] == [0, 1]
    assert main(["train", "runs/rows-tuned/best.yaml", "--out", "trained"]) == 0


def test_failed_trials_are_told_and_the_best_is_compared_with_the_default(capsys, table):
    """Twelve steps at 1e-6 learn nothing, so that another rate is better; at 1e30 the scores are no numbers."""
    short = ["budget.steps=12", "evaluation.every=6", "model.ensemble=null", "refit=false", "batches.size=64"]
    space = ["--space", "optimiser.learning_rate=choice:[1e-6, 0.05, 1e30]", "optimiser.learning_rate=1e-6"]
    assert main(["--json", "tune", "rows.csv", *short, *space, "--trials", "8", "--seeds", "2", "--out", "tuned"]) == 0
    out, err = capsys.readouterr()
    result = json.loads(out)
    states = [trial["state"] for trial in result["trials"]]
    assert "failed" in states
    assert "failed: scores: expected finite numbers" in err
    assert result["best"] != 0
    assert result["comparison"] is not None
    assert main(["tune", "rows.csv", *short, *space, "--trials", "8", "--seeds", "2", "--out", "tuned"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert (
        f"({states.count('complete')} complete, {states.count('pruned')} pruned, {states.count('failed')} failed)"
        in told
    )
    low, high = result["comparison"]["interval"]
    assert f"{result['comparison']['difference']:+.4f} {low:+.4f} to {high:+.4f}" in told


@pytest.mark.parametrize(
    "arguments, said",
    [
        ([], "expected --trials, --minutes or both"),
        (["--minutes", "0"], "expected a number above 0, got 0"),
        (["--trials", "1", "--space", "loss.tau"], "--space: expected key=space"),
        (["--trials", "1", "--space", "loss.tu=log:1e-3:1"], "space loss.tu=log:0.001:1: loss: "),
        (["--trials", "1", "--space", "loss.tau=0.1"], "space loss.tau: expected log:LOW:HIGH"),
    ],
)
def test_wrong_arguments_end_with_one_line(capsys, table, arguments, said):
    assert main(["tune", "rows.csv", *SHORT, *arguments]) == 2
    err = " ".join(capsys.readouterr().err.split())
    assert said in err
    assert not (table / "runs").exists()


def test_without_optuna_it_says_how_to_get_it(capsys, table, monkeypatch):
    known = extras.find_spec
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "optuna" else known(name))
    assert main(["tune", "rows.csv", "--trials", "1"]) == 1
    assert "tuning needs optuna: pip install 'rankwise[train,tune]'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_request_to_end_keeps_the_trials_and_the_same_command_goes_on(capsys, table):
    arguments = ["tune", "rows.csv", *SHORT, "--out", "kept", "--seeds", "2"]
    program = Program(main, [*arguments, "--minutes", "60"])
    until = time.monotonic() + PATIENCE
    while "trial 1: " not in program.written()[1] and time.monotonic() < until:
        time.sleep(0.1)
    program.send_signal(signal.SIGTERM)
    _, err = program.communicate(PATIENCE)
    assert program.returncode == 130, err
    assert "stopped; kept keeps the trials; the same command goes on" in err
    assert main([*arguments, "--trials", "2"]) == 0
    assert re.search(r"Validation, (\d+) trials", capsys.readouterr().out)
