"""A comparison: what is run and in what order, that it goes on where it was, and what the page says."""

from __future__ import annotations

import sys

import pytest
import torch

from benchmarks.quality.grid.command import run_plan
from benchmarks.quality.grid.plan import Key, Method, Plan

OURS = Method("ours", "song", ours=True)
RIVAL = Method("rival", "softmax")
PAIRS = Method("pairs", "bpr", slow=True)


@pytest.fixture
def plan(tmp_path, monkeypatch):
    """Figures by a formula: a larger rate is better for ours, a smaller one for the rival."""
    calls = []

    def run(key, method):
        calls.append(key)
        value = {"ours": 0.5 + key.rate, "rival": 0.5 - key.rate}.get(key.method, 0.3)
        if key.fitted == "train":
            return {"train": 0.9, "seconds": 1.0, "validation": value}, None
        lists = torch.linspace(value - 0.1, value + 0.1, 50) + 0.01 * key.seed
        return {"train": 0.8, "seconds": 1.0, "ndcg@5": lists.mean().item()}, lists

    made = Plan(
        "About.",
        scorers=("linear",),
        methods=(OURS, RIVAL, PAIRS),
        settings=((0.1, 0.0), (0.2, 0.0)),
        seeds=(0, 1),
        metrics=("ndcg@5",),
        run=run,
        closed_form=(Key("exact", "closed form", 0.0, 7.0, 0, "train"),),
    )

    def start(*arguments):
        calls.clear()
        monkeypatch.setattr(sys, "argv", ["grid", "--lists", str(tmp_path / "lists"), *arguments])
        run_plan(made, tmp_path)
        return list(calls), (tmp_path / "RESULTS.md").read_text()

    return start


def test_settings_are_chosen_on_validation_and_the_chosen_are_fitted_to_all(plan):
    calls, page = plan()
    assert [key.fitted for key in calls] == ["train"] * 5 + ["all"] * 5
    final = {(key.method, key.rate, key.seed) for key in calls if key.fitted == "all"}
    assert final == {("ours", 0.2, 0), ("ours", 0.2, 1), ("rival", 0.1, 0), ("rival", 0.1, 1), ("closed form", 0, 0)}
    assert "| linear | ours | 0.2, 0 | 2 | 2 | 0.7050 | 0.7000 | 0.8000 |" in page
    assert "| linear | rival | 0.1, 0 | 2 | 2 | 0.4050 | 0.4000 | 0.8000 |" in page
    assert "| exact | closed form | 7 | 1 | 1 | 0.3000 | 0.3000 | 0.8000 |" in page
    assert "Not run: linear with pairs." in page
    assert "| linear, rival | +0.3000 | +0.3000 to +0.3000 |" in page


def test_a_second_command_runs_only_what_is_missing(plan):
    first, before = plan("--only", "ours", "--settings", "1")
    assert {key.rate for key in first} == {0.1}
    again, page = plan("--only", "ours", "--settings", "1")
    assert not again
    assert page == before
    rest, _ = plan()
    assert not {key for key in rest if key in first}
    everything, _ = plan("--fresh")
    assert len(everything) == 10


def test_slow_methods_and_scorers_are_asked_for(plan):
    calls, page = plan("--slow", "--scorers", "linear")
    assert {key.method for key in calls} == {"ours", "rival", "pairs"}
    assert "Not run: exact with closed form." in page


def test_no_time_means_no_runs(plan):
    assert plan("--minutes", "-1")[0] == []
