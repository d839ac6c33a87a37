"""`rankwise simulate` and `rankwise audit`, as a user meets them."""

from __future__ import annotations

import csv
import os
import re
import signal
import sys
import time

import polars
import pytest
import torch

from rankwise.cli import main
from workers.patience import PATIENCE
from workers.processes import Program


@pytest.fixture
def file(tmp_path):
    """A small file of scores with features and queries, in a folder of its own."""
    generator = torch.Generator().manual_seed(0)
    labels = (torch.arange(240) % 6 == 0).long()
    scores = torch.randn(240, generator=generator) + 2 * labels
    columns = {"prob": scores.tolist(), "y": labels.tolist(), "qid": [f"q{i % 7}" for i in range(240)]}
    features = {f"x{d}": (torch.randn(240, generator=generator) + labels).tolist() for d in range(3)}
    folder = tmp_path / "data"
    folder.mkdir()
    polars.DataFrame(columns | features).write_csv(folder / "scores.csv")
    return folder / "scores.csv"


def test_the_simulation_prints_its_tables_and_writes_page_and_numbers(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(["simulate", "--repeats", "3", "--csv", "numbers.csv"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80
    shown = re.findall(r"^(binormal|bibeta|offset uniform) +0\.\d{4} +(\d+%) +([+-]\S+)", out, re.M)
    rows = list(csv.DictReader((tmp_path / "numbers.csv").read_text().splitlines()))
    assert len(shown) == len(rows) == 15
    for (name, rate, bias), row in zip(shown, rows, strict=True):
        assert name == row["distribution"]
        assert float(rate[:-1]) == pytest.approx(100 * float(row["rate"]))
        assert float(bias) == pytest.approx(float(row["plain_bias"]), abs=6e-4)
    assert sorted(os.listdir(tmp_path)) == ["numbers.csv", "simulation.html"]
    assert "</html>" in (tmp_path / "simulation.html").read_text(encoding="utf-8")


def test_the_audit_answers_every_question_and_writes_its_page(capsys, monkeypatch, tmp_path, file):
    monkeypatch.chdir(tmp_path)
    assert main(["audit", str(file), "--quick", "--features", "x*"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80
    titles = ["Bias of mini-batches", "Stability of the losses", "Stability of training", "Bounds", "Generalisation"]
    assert [line for line in out.splitlines() if line in titles] == titles
    assert "of each list with AUPRCLoss(prior=0.17)" in " ".join(out.split())
    assert sorted(os.listdir(tmp_path)) == ["audit.html", "data"]
    page = (tmp_path / "audit.html").read_text(encoding="utf-8")
    assert page.count('<figure class="card">') == 5
    assert "the features of the file" in page


def test_one_question_is_answered_alone(capsys, monkeypatch, tmp_path, file):
    monkeypatch.chdir(tmp_path)
    assert main(["audit", str(file), "--ask", "bounds", "--out", "b.html"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Bounds\n")
    assert "Stability" not in out
    assert (tmp_path / "b.html").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["audit"], "Missing argument"),
        (["audit", "none.csv"], "no such file"),
        (["audit", "{file}", "--score", "skore"], "no score column 'skore'"),
        (["audit", "{file}", "--query", "quid"], "did you mean 'qid'"),
        (["audit", "{file}", "--features", "z*"], "no feature column 'z*'"),
        (["audit", "{file}", "--label", "x0"], "column 'x0': expected a label of 0 or more"),
        (["audit", "{file}", "--label", "stars"], "expected labels of 0 and 1, got 2"),
        (["audit", "{file}", "--label", "same"], "expected both labels 0 and 1, got 1 only"),
        (["audit", "{file}", "--ask", "bound"], "did you mean 'bounds'"),
        (["audit", "{file}", "--positives", "0"], "--positives"),
        (["audit", "{file}", "--out", "no/such/a.html"], "does not exist"),
        (["simulate", "--repeats", "1"], "--repeats"),
        (["simulate", "--csv", "."], "is a folder"),
        (["simulate", "--out", "no/such/a.html"], "does not exist"),
    ],
)
def test_wrong_arguments_give_exit_code_2_and_one_line(capsys, monkeypatch, tmp_path, file, arguments, message):
    frame = polars.read_csv(file)
    frame.with_columns(stars=polars.lit(2), same=polars.lit(1)).write_csv(file)
    monkeypatch.chdir(tmp_path)
    assert main([argument.format(file=file) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("rankwise: ")
    assert err.count("\n") == 1
    assert message in err
    assert os.listdir(tmp_path) == ["data"]


def simulation_that_tells():
    from rankwise.audit import simulation

    measure = simulation._measure

    def telling(*arguments):
        print("measuring", file=sys.stderr, flush=True)
        return measure(*arguments)

    simulation._measure = telling
    return main(["simulate", "--csv", "numbers.csv"])


def test_ctrl_c_leaves_nothing_half_written(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    program = Program(simulation_that_tells)
    while "measuring\n" not in program.written()[1]:
        assert program.poll() is None, program.written()
        time.sleep(0.05)
    program.send_signal(signal.SIGINT)
    out, err = program.communicate(timeout=PATIENCE)
    assert program.returncode == 130
    assert out == ""
    assert err.replace("measuring\n", "") == "rankwise: stopped by Ctrl-C; nothing was written\n"
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("command", ["simulate", "audit"])
def test_help_is_readable_without_the_papers(capsys, command):
    assert main([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert "verage precision" in text
    for symbol in ("pi0", "OP1", "phi", "epsilon"):
        assert symbol not in text
