"""The quality suite: cells survive an interruption, halves share no rows, and its figures are those of the formulas."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch

from benchmarks.quality.suite.__main__ import KINDS
from benchmarks.quality.suite.cells import Cell, Cells
from benchmarks.quality.suite.report import report
from benchmarks.quality.suite.tables import TABLES, load_table
from rankwise.data import Part


def test_cells_are_there_after_an_interruption(tmp_path):
    path = tmp_path / "cells.csv"
    cell = Cell("a table, with a comma", "ours", 1, 0.1 + 0.2, 1.5)
    Cells(path).add(cell)
    again = Cells(path)
    assert cell.key in again
    assert again[cell.key] == cell
    assert cell.key not in Cells(path, redo=frozenset(["ours"]))


def test_no_family_is_in_both_halves():
    halves = {}
    for record in TABLES:
        halves.setdefault(record.family, set()).add(record.half)
    assert all(len(found) == 1 for found in halves.values())
    for half in ("development", "confirmation"):
        assert sum(record.half == half for record in TABLES) >= 10


@pytest.mark.parametrize("name", ["eights at 2 %", "breast cancer at 8 %"])
def test_positives_are_left_out_to_reach_the_share(name):
    record = next(record for record in TABLES if record.name == name)
    X, y = load_table(record)
    assert y.mean() == pytest.approx(record.share, abs=0.005)
    assert len(X) == len(y) <= record.most_rows
    assert (X.std(0) > 0).all()
    np.testing.assert_array_equal(X, load_table(record)[0])


def test_report_compares_on_the_same_cuts():
    own, other = np.array([[0.5, 0.7], [0.2, 0.4]]), np.array([[0.4, 0.6], [0.3, 0.5]])
    results = {"ours()": (own, own), "theirs": (other, 2 * other)}
    text = report(results, ["first", "second"], ours="ours()", metric="AP")
    rows = {line.split(" | ")[0].strip("| "): line.split(" | ") for line in text.splitlines() if line.startswith("|")}
    assert rows["ours()"][1:3] == ["0.4500", "1.50"]
    assert rows["theirs"][3] == "+0.0000 (-0.1000, +0.1000)"
    assert rows["theirs"][4] == "1 of 2"
    assert rows["theirs"][5] == "0.90 |"
    assert rows["first"][3] == "+0.1000 (theirs)"
    assert rows["second"][3] == "-0.1000 (theirs)"


@pytest.mark.parametrize("kind", KINDS)
def test_halves_of_a_kind_share_no_data(kind):
    module = importlib.import_module(f"benchmarks.quality.suite.{kind}")
    assert module.OURS in module.CONTENDERS
    development, confirmation = (set(module.data_sets(half)) for half in ("development", "confirmation"))
    assert development
    assert confirmation
    assert not development & confirmation


def test_few_queries_are_whole():
    from benchmarks.quality.suite.search import _few

    part = Part(torch.rand(40, 2), torch.zeros(40), torch.arange(40) // 4)
    some, others = _few(part, 0.3, seed=0)
    assert (len(some), len(others)) == (12, 28)
    assert not set(some.query_ids.tolist()) & set(others.query_ids.tolist())


def test_own_contenders_are_no_rivals():
    means = {"NDCGRanker()": 0.5, "rankwise train": 0.9, "theirs": 0.4}
    values = {name: np.full((2, 2), mean) for name, mean in means.items()}
    text = report({name: (each, each) for name, each in values.items()}, ["a", "b"], ours="NDCGRanker()", metric="m")
    assert text.count("+0.1000 (theirs)") == 2
