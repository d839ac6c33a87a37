"""Bipartite: complete lists of a few users in a batch, the metric of `rankwise.metrics`, training that helps, runs that
score other tables."""

from __future__ import annotations

import shutil

import polars as pl
import pytest
import torch

from rankwise.data import Part, Split, TableSchema
from rankwise.losses import PApLoss
from rankwise.metrics import pap
from rankwise.problems import Bipartite, load_problem
from rankwise.problems.load import BadRecipe, make_problem
from rankwise.runs import load_run, train
from rankwise.training import fit
from workers.rows import PAP, write_users


def make_part(seed, users=30):
    generator = torch.Generator().manual_seed(seed)
    counts = torch.randint(12, 40, (users,), generator=generator)
    ids = torch.repeat_interleave(torch.arange(users) * 7 - 3, counts)
    features = torch.randn(len(ids), 4, generator=generator)
    return Part(features, (features[:, 0] + torch.randn(len(ids), generator=generator) > 0.8).long(), ids)


DATA = Split(make_part(0), make_part(1), make_part(2))
SCHEMA = TableSchema.of(DATA.train)


def build_loss(problem):
    return problem.build_loss(SCHEMA, DATA.train, steps=1)


def test_batches_hold_complete_lists_of_the_promised_users():
    length = dict(zip(*(t.tolist() for t in DATA.train.query_ids.unique(return_counts=True)), strict=True))
    seen = []
    for batch in Bipartite(k=4, batches={"users": 6}).train_loader(DATA.train, seed=0):
        users, counts = batch.query_ids.unique(return_counts=True)
        assert len(users) == 6
        assert counts.tolist() == [length[user] for user in users.tolist()]
        seen += users.tolist()
    assert sorted(seen) == sorted(length)


def test_items_cut_the_lists():
    batch = next(iter(Bipartite(k=4, batches={"users": 6, "items": 10}).train_loader(DATA.train, seed=0)))
    assert batch.query_ids.unique(return_counts=True)[1].tolist() == [10] * 6


def test_a_batch_larger_than_the_data_is_refused():
    with pytest.raises(ValueError, match=r"batches\.users: expected at most the 30 users to train on, got 31"):
        Bipartite(batches={"users": 31}).train_loader(DATA.train, seed=0)
    (batch,) = Bipartite().train_loader(DATA.train, seed=0)
    assert len(batch.labels) == len(DATA.train)


def test_the_metric_is_micro_pap_at_k():
    problem = Bipartite(k=4)
    model = problem.build_model(SCHEMA)
    scores = model(DATA.test.features).detach()
    expected = pap(scores, DATA.test.labels, k=4, query_ids=DATA.test.query_ids).item()
    assert problem.evaluate(model, DATA.test).means == {"pap@4": pytest.approx(expected, abs=1e-12)}
    assert problem.metric == "pap@4"
    assert list(Bipartite(k=4, metrics=["auroc"]).evaluate(model, DATA.test).means) == ["pap@4", "auroc"]


def test_k_reaches_the_losses_that_take_one():
    loss = build_loss(Bipartite(k=5, loss={"name": "pap", "surrogate": "ts*"}))
    assert isinstance(loss, PApLoss)
    assert (loss.k, loss.surrogate) == (5, "ts*")
    assert build_loss(Bipartite(k=5, loss={"name": "pap", "k": 9})).k == 9
    assert not hasattr(build_loss(Bipartite(k=5, loss="cross-entropy")), "k")


@pytest.mark.parametrize("hidden", [[], [8]], ids=["linear", "one hidden layer"])
def test_training_improves_the_metric(hidden):
    problem = Bipartite(
        k=4,
        model={"hidden": hidden, "scaling": "none"},
        batches={"users": 10},
        optimiser={"learning_rate": 0.03},
        schedule={"name": "constant"},
        budget={"steps": 60},
        evaluation={"every": 60},
    )
    # .77 +- .01 over seeds; an untrained model has .1 to .7, here .3.
    assert fit(problem, SCHEMA, DATA).history.curve("pap@4")[-1] > 0.7


def test_rows_without_users_are_refused():
    lone = Part(torch.rand(4, 2), torch.tensor([1, 0, 0, 0]))
    problem = Bipartite()
    for call in (
        lambda: problem.train_loader(lone, seed=0),
        lambda: problem.probe_batch(lone),
        lambda: problem.evaluate(problem.build_model(TableSchema.of(lone)), lone),
    ):
        with pytest.raises(ValueError, match="data: expected query_ids, the list each row belongs to"):
            call()


@pytest.mark.parametrize(
    "recipe, message",
    [
        ({"k": 0}, "k: expected a number of at least 1, got 0"),
        ({"batches": {"items": 1}}, r"batches\.items: expected a number of at least 2, got 1"),
        ({"metrics": ["pp@4"]}, "metrics: unknown metric 'pp'"),
    ],
)
def test_a_wrong_recipe_is_refused_by_key(recipe, message):
    with pytest.raises(BadRecipe, match=message):
        make_problem({"task": "pap", **recipe})


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run, and the same opened from a folder that was moved, with the training data gone."""
    folder = tmp_path_factory.mktemp("users")
    write_users(folder / "users.csv")
    (folder / "users.yaml").write_text(PAP.replace("users.csv", str(folder / "users.csv")))
    run = train(load_problem(folder / "users.yaml"), out=folder / "run")
    shutil.move(folder / "run", folder / "moved")
    (folder / "users.csv").unlink()
    return run, load_run(folder / "moved")


def frame_of(part):
    columns = {name: part.features[:, index].tolist() for index, name in enumerate("xyz")}
    return pl.DataFrame(
        {"liked": part.labels.tolist(), **columns, "user": [part.query_names[u] for u in part.query_ids]}
    )


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_moved_run_scores_unlabelled_tables_in_any_order(runs, tmp_path, ending):
    run, moved = runs
    test = run.part("test")
    expected = run.problem.predict(run.model, test)
    frame = frame_of(test).select("z", "user", "x", "y")
    path = tmp_path / f"test.{ending}"
    frame.write_csv(path) if ending == "csv" else frame.write_parquet(path)
    predictions = moved.predict(path)
    assert torch.allclose(predictions.outputs, expected, atol=1e-6)
    assert predictions.columns()["query"] == frame["user"].to_list()
    predictions.write(tmp_path / "scores.csv")
    assert pl.read_csv(tmp_path / "scores.csv")["query"].to_list() == frame["user"].to_list()
    assert moved.evaluate(frame_of(test)).means == pytest.approx(run.test.means, abs=1e-9)


def test_a_table_that_lacks_users_or_columns_is_refused(runs):
    run, moved = runs
    frame = frame_of(run.part("test"))
    with pytest.raises(ValueError, match="polars frame: expected the query column 'user', got none"):
        moved.predict(frame.drop("user"))
    with pytest.raises(ValueError, match="expected all columns of the training data, got none called 'x', 'z'"):
        moved.predict(frame.drop("x", "z"))
    with pytest.raises(ValueError, match="expected the label column 'liked', got none"):
        moved.evaluate(frame.drop("liked"))


def test_the_report_calls_users_by_their_names(runs):
    run, _ = runs
    shown = run.problem.inspect(run.model, run.part("test"))
    names = {shown.list_name(number) for number in range(len(shown.evaluation.query_ids))}
    assert names <= {f"user u{number}" for number in range(40)}
    assert len(names) == 8
