"""The quality benchmarks of pAp@k: budgets are equal, cells survive a stop, tables say what the cells say."""

from __future__ import annotations

import pytest
import torch

from benchmarks.quality import pap_margins
from benchmarks.quality.ml100k import plan
from benchmarks.quality.ml100k.features import RatedFilms, cut_rated_films
from benchmarks.quality.ml100k.methods import METHODS
from benchmarks.quality.ml100k.plan import CUTOFFS, Cell, train_cell, train_start
from benchmarks.quality.ml100k.results import Results
from benchmarks.quality.ml100k.table import write_table
from rankwise.losses import pap_margins as margins_of


def small_split():
    generator = torch.Generator().manual_seed(0)
    features = torch.rand(900, 6, generator=generator)
    labels = (features[:, 0] + torch.randn(900, generator=generator) > 1.2).long()
    return cut_rated_films(RatedFilms(features, labels, torch.arange(900) % 9), seed=0)


def test_every_method_trains_and_has_as_many_runs(monkeypatch):
    monkeypatch.setattr(plan, "STEPS", 3)
    split = small_split()
    start = train_start(split, 8)
    assert len(plan.RATES) == len(plan.LONG_RATES)
    for method in METHODS:
        cell = train_cell(split, start, 8, method)
        assert cell.validation >= start.value
        assert 0 < cell.test < 1
        assert cell.users + cell.left_out == 9


def test_cells_are_written_as_they_come_and_read_again(tmp_path):
    path = tmp_path / "results.csv"
    cell = Cell(0.5, 0.25, 400, 3, 0.125, 0.001, 40)
    Results(path).add(1, 8, "pAp@k ts*", cell)
    again = Results(path)
    assert again.has(1, 8, "pAp@k ts*")
    assert not again.has(0, 8, "pAp@k ts*")
    assert again.get(1, 8, "pAp@k ts*") == cell
    assert not Results(path, fresh=True).has(1, 8, "pAp@k ts*")


def test_the_table_holds_means_and_paired_differences(tmp_path):
    results = Results(tmp_path / "results.csv")
    for seed in (0, 1):
        for k in CUTOFFS:
            for place, method in enumerate(METHODS):
                results.add(seed, k, method.name, Cell(0.5 - 0.01 * place + 0.1 * seed, 0.5, 7, 2, 0.1, 0.01, seed))
    text = write_table(results, (0, 1))
    assert "| pAp@k avg | 54.00 +-" in text
    assert "| **55.00 +-" in text
    assert "| ramp - cross entropy | +6.00 (+6.00 to +6.00)" in text
    assert "k = 8: 7 / 2" in text
    assert "cross entropy 5" in text


@pytest.mark.parametrize("name", pap_margins.CONDITIONS)
def test_lists_of_the_margin_study_meet_their_condition(name):
    part, weights = pap_margins.CONDITIONS[name](seed=7)
    margins = margins_of(part.features @ weights, part.labels, k=pap_margins.K)
    assert getattr(margins, name.split()[0]).item() >= 1 - 1e-4
    assert (int(part.labels.sum()), len(part)) == (250, 2250)
