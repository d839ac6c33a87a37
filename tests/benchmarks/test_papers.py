"""The benchmark of the papers' parts: its rows can be run, its differences are between rows, its results are kept."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from benchmarks.quality.images.plan import Outcome
from benchmarks.quality.papers import __main__ as papers
from rankwise.problems.problem import LossChoice

TRAINING = {"previous_weights"}


@pytest.mark.parametrize("name", papers.COMPARISONS)
def test_every_row_is_a_loss_and_every_difference_is_between_two_rows(name):
    comparison = papers.COMPARISONS[name]()
    for row in comparison.plan.rows:
        options = {key: value for key, value in row.tries["fixed"].items() if key not in TRAINING}
        if isinstance(options.get("prior"), dict):
            options["prior"] = {**options["prior"], "steps": comparison.plan.steps}
        LossChoice.of(row.loss, **options)
    titles = [row.title for row in comparison.plan.rows]
    assert len(set(titles)) == len(titles)
    assert all(row in comparison.plan.rows for pair in comparison.pairs for row in pair)


def test_a_run_that_is_kept_is_not_made_again(tmp_path, monkeypatch):
    made = []

    def run(row, options, trial):
        made.append(trial)
        value = 0.5 + 0.01 * len(row.title) + 0.001 * trial.seed
        lists = torch.linspace(0, 1, 20) * value
        return Outcome({"validation": value, "ndcg@5": value, "ndcg@10": value}, lists)

    comparison = papers.compare_mq2008()
    changed = replace(comparison, plan=replace(comparison.plan, run=run))
    monkeypatch.setitem(papers.COMPARISONS, "mq2008", lambda: changed)
    papers.run("mq2008", tmp_path, tmp_path / "lists", stop_at=float("inf"))
    assert len(made) == 3 * len(comparison.plan.rows)
    papers.run("mq2008", tmp_path, tmp_path / "lists", stop_at=float("inf"))
    assert len(made) == 3 * len(comparison.plan.rows)
    page = (tmp_path / "mq2008.md").read_text()
    assert "K-SONG 5, rank, whole lists minus K-SONG 5, sigmoid, whole lists | 3 | -3.00" in page


def test_nothing_is_begun_after_the_time_given(tmp_path):
    papers.run("omniglot", tmp_path, tmp_path / "lists", stop_at=0.0)
    assert "| stable AP | plain | 0 | - |" in (tmp_path / "omniglot.md").read_text()
