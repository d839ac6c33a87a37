"""The default of search ranking: networks and trees by folds of queries, mixed by queries that they did not see."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import polars as pl
import pytest
import torch

import rankwise as rw
from rankwise.data import Part, Split, TableSchema, put_lists_in_folds
from rankwise.models import StackedRanker
from rankwise.models.list_stack import LIST_LEARNERS
from rankwise.problems import SearchRanking
from rankwise.training import Interrupted

BRIEF = {"budget": {"steps": 12}, "evaluation": {"every": 4}, "batches": {"queries": 8}}


def lists(queries=40, length=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(queries * length, 4, generator=generator)
    noise = torch.randn(len(features), generator=generator)
    grades = (features[:, 0] * features[:, 1].sign() + 0.3 * noise).clamp(0, 3).round().long()
    return Part(features, grades, torch.arange(queries).repeat_interleave(length))


def table(**made):
    part = lists(**made)
    columns = {f"x{each}": part.features[:, each].numpy() for each in range(4)}
    return pl.DataFrame({**columns, "query": part.query_ids.numpy(), "grade": part.labels.numpy()})


def test_lists_stay_whole_and_folds_share_those_with_a_relevant_row():
    part = lists(23)
    labels = torch.where(part.query_ids < 9, 0, part.labels.clamp_min(1))
    folds = put_lists_in_folds(replace(part, targets=labels), 3, seed=1).folds
    of_list = folds.view(23, 8)
    assert torch.equal(of_list, of_list[:, :1].expand_as(of_list))
    assert of_list[:9, 0].bincount().tolist() == [3, 3, 3]
    assert sorted(of_list[9:, 0].bincount().tolist()) == [4, 5, 5]
    assert not torch.equal(folds, put_lists_in_folds(part, 3, seed=2).folds)


def test_networks_of_a_fold_learn_nothing_from_it():
    part = put_lists_in_folds(lists(), 3, seed=0)
    problem = SearchRanking(model={"ensemble": {"folds": 3}}, batches={"queries": 30})
    torch.manual_seed(0)
    model = problem.build_model(TableSchema.of(part))
    batch = next(iter(problem.train_loader(part, seed=0)))
    for member in range(3):
        gradients = []
        for labels in (batch.labels, torch.where(batch.folds == member, 3 - batch.labels, batch.labels)):
            loss = problem.build_loss(TableSchema.of(part), part, steps=1)
            model.zero_grad()
            problem.training_step(model, loss, batch._replace(labels=labels)).backward()
            # Without biases: the gradient of the last one is 0 up to rounding.
            gradients.append([weight.grad.clone() for weight in model.network.weights])
        for first, second in zip(*gradients, strict=True):
            changed = [not torch.equal(first[each], second[each]) for each in range(3)]
            assert changed == [each != member for each in range(3)]


def test_the_loss_of_members_is_the_mean_of_the_losses_of_their_lists():
    part = put_lists_in_folds(lists(), 3, seed=0)
    problem = SearchRanking(model={"ensemble": {"folds": 3}}, loss="listwise-cross-entropy", batches={"queries": 30})
    model = problem.build_model(TableSchema.of(part))
    batch = next(iter(problem.train_loader(part, seed=0)))
    loss = problem.build_loss(TableSchema.of(part), part, steps=1)
    value = problem.training_step(model, loss, batch)
    scores, expected = model(batch.features), []
    for query in batch.query_ids.unique():
        rows = batch.query_ids == query
        for member in set(range(3)) - {int(batch.folds[rows][0])}:
            expected.append(loss(scores[rows, member], batch.labels[rows]))
    assert len(expected) == 60
    torch.testing.assert_close(value, torch.stack(expected).mean())


def test_a_member_learns_from_all_but_its_fold():
    part = put_lists_in_folds(lists(), 3, seed=0)
    gains = part.labels.double() / 3
    model, other = (StackedRanker(4, members=3).eval() for _ in range(2))
    other.load_state_dict(model.state_dict())
    model.fit(part.features, gains, part.query_ids, part.folds)
    other.fit(part.features, torch.where(part.folds == 1, 1 - gains, gains), part.query_ids, part.folds)
    first, second = (each.member_scores(part.features)[..., 1:] for each in (model, other))
    assert torch.equal(first[:, 1], second[:, 1])
    assert not torch.equal(first[:, 0], second[:, 0])


def test_scores_of_lists_in_folds_are_those_of_the_member_that_left_them_out():
    part = put_lists_in_folds(lists(), 3, seed=0)
    model = StackedRanker(4, members=3).eval()
    model.fit(part.features, part.labels.double(), part.query_ids, part.folds)
    model.mix(torch.tensor([0.5, 0.3, 2.0, 1.0]))
    by_member = model.mixed(model.member_scores(part.features))
    problem = SearchRanking()
    torch.testing.assert_close(problem.predict(model, part), by_member[torch.arange(len(part)), part.folds])
    torch.testing.assert_close(problem.predict(model, replace(part, folds=None)), by_member.mean(1))


def test_the_default_is_chosen_out_of_fold_and_trains_once(tmp_path):
    run = rw.train(SearchRanking(data={"query": "query", "label": "grade"}, **BRIEF), train=table())
    assert isinstance(run.model, StackedRanker)
    settings = run.record["settings"]
    assert set(settings["shares"]) == set(settings["alone"]) == set(LIST_LEARNERS)
    assert min(settings["shares"].values()) >= 0
    torch.testing.assert_close(run.model.factors, torch.tensor(settings["factors"]))
    assert len(run.part("train").query_ids.unique()) == 32
    assert run.part("validation") is run.part("train")
    assert "refit" not in run.record
    assert run.finished
    run.save(tmp_path / "run")
    opened = rw.load_run(tmp_path / "run")
    new = table(queries=5, seed=9)
    assert torch.equal(opened.predict(new).outputs, run.predict(new).outputs)
    # The relation is an interaction: trees must carry networks of 12 steps.
    alone = SearchRanking(data={"query": "query", "label": "grade"}, model={"ensemble": None}, refit=False, **BRIEF)
    assert run.test.means["ndcg@10"] > rw.train(alone, train=table()).test.means["ndcg@10"] - 0.05


def test_validation_queries_that_are_given_stay_apart_and_are_refitted():
    problem = SearchRanking(data={"query": "query", "label": "grade"}, **BRIEF)
    run = rw.train(problem, train=table(), validation=table(queries=10, seed=1))
    assert len(run.part("validation").query_ids.unique()) == 10
    assert run.part("validation").folds is None
    assert run.record["refit"]["steps"] == run.record["refit"]["chosen_step"]


@pytest.mark.parametrize(
    "options",
    [
        {"model": {"name": "context-aware"}},
        {"model": {"dropout": 0.2}},
        {"warm_up": {"loss": "listwise-cross-entropy", "steps": 2}},
        {"batches": {"queries": 8, "relevant": 1}},
    ],
)
def test_what_members_cannot_do_trains_one_network(options):
    problem = SearchRanking(**options)
    part = lists()
    cut = problem.cut(Split(part), 0)
    assert problem.ensemble is None
    assert cut.train.folds is None
    assert cut.validation is not cut.train
    assert not isinstance(problem.build_model(TableSchema.of(part)), StackedRanker)


def test_a_run_with_folds_that_was_stopped_goes_on_to_the_same_weights(tmp_path):
    problem = SearchRanking(data={"query": "query", "label": "grade"}, checkpoints={"every": 3}, **BRIEF)
    expected = rw.train(problem, train=table(), out=tmp_path / "whole")

    class Stopper:
        def begins(self, seed, steps, done): ...
        def says(self, text): ...
        def reads(self, path, share): ...
        def evaluation(self, step, metrics): ...
        def step(self, step):
            if step.number == 7:
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        rw.train(problem, train=table(), out=tmp_path / "run", watcher=Stopper())
    run = rw.train(problem, train=table(), out=tmp_path / "run", resume=True)
    for name, weight in expected.model.state_dict().items():
        assert torch.equal(weight, run.model.state_dict()[name]), name
    assert run.record["settings"] == expected.record["settings"]
    assert "What the model is made of" in (tmp_path / "run" / "report.html").read_text()
