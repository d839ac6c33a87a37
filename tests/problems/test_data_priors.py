"""`prior: data` is the share of positives in the training part, of each group of lists."""

from __future__ import annotations

import pytest
import torch

from rankwise.estimators.groups import PriorSchedule
from rankwise.losses import EmbeddingLoss, LateMemoryLoss, list_prior
from rankwise.problems import make_problem
from rankwise.training import fit
from workers.kinds import RECIPES, SHORT, write_kinds

# The kinds whose lists have groups, as options beside those of `RECIPES`.
KINDS = {
    "ltr": {"batches": {"queries": 8}, "model": {"ensemble": None}},
    "ltr members": {"batches": {"queries": 8}},
    "pap": {},
    "retrieval": {},
    "image-retrieval": {},
    "longtail": {},
    "multilabel": {},
    "multilabel columns": {"lists": "columns"},
    "recsys": {"model": {"name": "item-item"}, "refit": False},
}


@pytest.fixture
def folder(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.getbasetemp() / "kinds"
    if not folder.exists():
        folder.mkdir()
        write_kinds(folder)
    monkeypatch.chdir(folder)
    return folder


def problem_of(name, prior):
    kind = name.split()[0]
    content = {"task": kind, **SHORT, **RECIPES[kind], **KINDS[name], "loss": {"name": "soprc", "prior": prior}}
    if kind == "ltr":
        content["data"] = {**content["data"], "train": "binary.txt"}
    return make_problem({**content, "budget": {"steps": 2}, "evaluation": {"every": 2}})


def prior_of(loss):
    return (loss.loss if isinstance(loss, EmbeddingLoss | LateMemoryLoss) else loss).prior


def shares(problem, train):
    """The share of positives of each group, counted one by one."""
    if problem.kind in ("retrieval", "image-retrieval"):
        labels = train.labels.tolist()
        return {c: (labels.count(c) - 1) / (len(labels) - 1) for c in set(labels)}
    if problem.kind == "longtail":
        labels = train.labels.tolist()
        return {c: labels.count(c) / len(labels) for c in set(labels)}
    if problem.kind == "multilabel":
        rows = train.labels.dense().double()
        lists = rows.T if problem.lists == "columns" else rows
        return {number: float(row.mean()) for number, row in enumerate(lists)}
    if problem.kind == "recsys":
        return {number: float(row.mean()) for number, row in enumerate(train.known.dense().double())}
    ids, labels = train.query_ids.tolist(), train.labels.tolist()
    found = {i: sum(y for y, j in zip(labels, ids, strict=True) if i == j) / ids.count(i) for i in set(ids)}
    # Each member of an ensemble of M has lists of its own, numbered i * M to i * M + M - 1.
    members = problem.ensemble.folds if problem.kind == "ltr" and problem.ensemble else 1
    return {i * members + member: share for i, share in found.items() for member in range(members)}


@pytest.mark.parametrize("name", KINDS)
def test_each_group_has_the_share_of_its_positives(name, folder):
    lines = (folder / "queries.txt").read_text().splitlines()
    (folder / "binary.txt").write_text("\n".join(str(min(1, int(line[0]))) + line[1:] for line in lines) + "\n")
    problem = problem_of(name, "data")
    schema, split = problem.read({})
    split = problem.cut(split, 0)
    loss = problem.build_loss(schema, split.train, steps=2)
    prior = prior_of(loss)
    expected = shares(problem, split.train)
    assert prior.priors.dtype == torch.float64
    assert set(prior.ids.tolist()) == set(expected)
    for group, share in zip(prior.ids.tolist(), prior.priors.tolist(), strict=True):
        if 0 < expected[group] < 1:
            assert share == pytest.approx(expected[group], abs=1e-12)
    run = fit(problem, schema, split)
    assert run.history.losses


def test_a_schedule_may_end_at_the_data(folder):
    problem = problem_of("retrieval", {"start": 0.5, "end": "data", "steps": 2})
    schema, split = problem.read({})
    split = problem.cut(split, 0)
    schedule = prior_of(problem.build_loss(schema, split.train, steps=2))
    assert isinstance(schedule, PriorSchedule)
    group, rate = torch.tensor([3]), torch.zeros(1, dtype=torch.float64)
    first, middle, last = (float(schedule(rate, group)) for _ in range(3))
    share = shares(problem, split.train)[3]
    assert [first, middle, last] == pytest.approx([0.5, (0.5 * share) ** 0.5, share])


def test_lists_of_one_kind_get_a_prior_between_0_and_1():
    prior = list_prior([1, 1, 0, 0, 0, 1, 0], [5, 5, 2, 2, 2, 9, 9])
    assert prior.ids.tolist() == [2, 5, 9]
    assert prior.priors.tolist() == pytest.approx([0.5 / 3, 1 - 0.5 / 2, 0.5])
