"""Permutation importance: the drop of a run's own metric when one column is shuffled."""

from __future__ import annotations

import csv
import json

import numpy as np
import polars as pl
import pytest
import torch
from sklearn.base import BaseEstimator
from sklearn.inspection import permutation_importance
from torch import nn

import rankwise as rw
from rankwise.cli import main
from rankwise.data import Part, TableSchema
from rankwise.metrics import evaluate_grades
from rankwise.problems import Bipartite, Retrieval, SearchRanking, Tabular
from rankwise.problems.importance import measure_importance, quick_importance
from workers.rows import PAP, write_table, write_users

SHORT = {"budget": {"steps": 60}, "evaluation": {"every": 30}, "optimiser": {"learning_rate": 0.01}}


class Sum(nn.Module):
    """The sum of some inputs of a row."""

    def __init__(self, *inputs):
        super().__init__()
        self.inputs = list(inputs)

    def forward(self, features):
        return features[:, self.inputs].sum(1)


def part_of(rows=600, width=3, queries=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(rows, width, generator=generator)
    noise = torch.randn(rows, generator=generator)
    labels = (features[:, 0] + 0.5 * features[:, 1] + 0.5 * noise > 1).long()
    return Part(features, labels, None if queries is None else torch.arange(rows) * queries // rows)


@pytest.mark.parametrize("problem, queries", [(Tabular(), None), (SearchRanking(), 30), (Bipartite(k=3), 30)])
def test_a_column_that_the_model_does_not_use_has_no_importance(problem, queries):
    part = part_of(queries=queries)
    found = measure_importance(problem, Sum(0), TableSchema.of(part), part)
    assert found.columns[0] == "column 1"
    assert bool((found.drops[0] > 0.1).all())
    assert not found.drops[1:].any()
    assert found.metric == problem.metric
    assert found.value == pytest.approx(problem.evaluate(Sum(0), part).means[found.metric], abs=1e-12)


@pytest.mark.parametrize("queries, metric", [(None, "ap"), (None, "auroc"), (30, "ndcg@10"), (30, "map")])
def test_the_drops_are_those_of_shuffles_one_by_one(queries, metric):
    part = part_of(queries=queries)
    problem = Tabular() if queries is None else SearchRanking()
    found = measure_importance(problem, Sum(0, 1), TableSchema.of(part), part, metric=metric, repeats=3)
    generator = torch.Generator().manual_seed(0)

    def value(features):
        scores = features[:, 0] + features[:, 1]
        return evaluate_grades(scores, part.labels, [metric], query_ids=part.query_ids, bootstrap=0).means[metric]

    for column in range(3):
        drops = []
        for _ in range(3):
            features = part.features.clone()
            features[:, column] = features[torch.randperm(600, generator=generator), column]
            drops.append(value(part.features) - value(features))
        row = found.columns.index(f"column {column + 1}")
        assert found.drops[row].tolist() == pytest.approx(drops, abs=1e-9)
    assert found.means.tolist() == sorted(found.means.tolist(), reverse=True)


def test_it_agrees_with_scikit_learn():
    part = part_of()

    class Scorer(BaseEstimator):
        def fit(self, X, y): ...

        def predict(self, X):
            return X[:, 0] + X[:, 1]

    def metric(estimator, X, y):
        return rw.evaluate(estimator.predict(X), y, ["ap"], bootstrap=0).means["ap"]

    theirs = permutation_importance(
        Scorer(), part.features.numpy(), part.labels.numpy(), scoring=metric, n_repeats=40, random_state=1
    )
    ours = measure_importance(Tabular(), Sum(0, 1), TableSchema.of(part), part, repeats=40)
    for name, drops in zip(ours.columns, ours.drops, strict=True):
        column = int(name.split()[1]) - 1
        error = np.hypot(float(drops.std()), theirs.importances_std[column]) / 40**0.5
        assert abs(float(drops.mean()) - theirs.importances_mean[column]) <= 5 * error + 1e-12


def test_the_inputs_of_a_category_are_shuffled_together():
    random = np.random.default_rng(0)
    site = np.array(["left", "right", "none"])[random.integers(0, 3, 400)]
    label = ((site == "left") & (random.random(400) < 0.8)).astype(int)
    frame = pl.DataFrame({"noise": random.normal(size=400), "site": site, "ill": label})
    run = rw.train(Tabular(**SHORT), train=frame)
    seen = []

    class Watched(nn.Module):
        def forward(self, features):
            seen.append(features.clone())
            return run.model(features)

    part = run.part("validation")
    found = measure_importance(run.problem, Watched(), run.schema, part)
    assert found.columns == ("site", "noise")
    assert float(found.means[0]) > 0.3
    position = [index for index, name in enumerate(run.schema.inputs) if name.startswith("site")]
    assert len(position) == 3
    for features in seen:
        assert bool((features[:, position].sum(1) == 1).all())


def test_long_data_are_looked_at_in_part_and_the_definition_says_so():
    part = part_of(rows=60_000, width=2)
    found = measure_importance(Tabular(), Sum(0), TableSchema.of(part), part)
    assert found.rows == 20_000
    assert found.definition.startswith(f"Drop of ap from {found.value:.4f} when the values of one column are shuffled")
    assert "among the 20,000 rows (of 60,000, evenly spread): mean, smallest and largest of 5" in found.definition
    lists = part_of(rows=60_000, width=2, queries=600)
    some = measure_importance(SearchRanking(), Sum(0), TableSchema.of(lists), lists)
    assert some.rows == 20_000  # 200 whole queries


def test_wide_tables_are_not_measured_unasked():
    part = part_of(rows=600, width=400)
    schema = TableSchema.of(part)
    assert quick_importance(Tabular(), Sum(0), schema, part) is None
    assert quick_importance(Tabular(), Sum(0), schema, part.take(torch.arange(0, 600, 6))) is not None


def test_other_kinds_are_refused():
    part = part_of()
    with pytest.raises(ValueError, match="expected a run that scores the rows of a table, got retrieval"):
        measure_importance(Retrieval(), nn.Identity(), TableSchema.of(part), part)
    with pytest.raises(ValueError, match="ndgc"):
        measure_importance(Tabular(), Sum(0), TableSchema.of(part), part, metric="ndgc")


def read_csv(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_a_run_over_a_table_shows_which_columns_matter(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = write_table(tmp_path / "rows.csv", rows=1200)
    run = rw.train(Tabular(data={"train": str(path), "label": "ill"}, **SHORT), out=tmp_path / "run")
    written = read_csv(tmp_path / "run" / "importance.csv")
    # The label was drawn with a, b and e; c and d are noise.
    assert [row["column"] for row in written[:2]] == ["a", "b"]
    assert float(written[0]["smallest"]) > 0.05
    assert run.importance().table()["importance"] == pytest.approx([float(row["importance"]) for row in written])
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Which columns matter" in page
    assert f"{float(written[0]['importance']):.4f}" in page
    assert rw.load_run(tmp_path / "run").report(tmp_path / "again.html").read_text() == page
    assert (
        main(["--json", "evaluate", "run", "--data", "rows.csv", "--importance", "all.csv", "--metric", "auroc"]) == 0
    )
    printed = json.loads(capsys.readouterr().out)["importance"]
    assert printed["metric"] == "auroc"
    assert printed["rows"] == 1200
    assert printed["column"] == [row["column"] for row in read_csv(tmp_path / "all.csv")]
    assert main(["evaluate", "run", "--importance", "own.csv"]) == 0
    assert "on the test part" in " ".join(capsys.readouterr().out.split())
    assert read_csv(tmp_path / "own.csv") == written


def test_a_run_over_lists_has_importance_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_users(tmp_path / "users.csv")
    (tmp_path / "pap.yaml").write_text(PAP)
    assert main(["train", "pap.yaml", "--out", "run"]) == 0
    assert {row["column"] for row in read_csv("run/importance.csv")} == {"x", "y", "z"}


def test_a_file_of_scores_has_no_columns_to_judge(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scores.csv").write_text("score,label\n1,1\n0,0\n")
    assert main(["evaluate", "scores.csv", "--importance", "importance.csv"]) == 2
    assert "expected the folder of a run with --data, --scores-out, --report or --importance" in capsys.readouterr().err
