"""Many labels per example: lists over labels or over examples."""

from __future__ import annotations

import pytest
import torch
from sklearn.metrics import average_precision_score, ndcg_score

from rankwise.data import SparseSchema, Split, cut_multilabel, read_multilabel
from rankwise.problems import MultiLabel
from workers.fitting import fit_with

WORDS, LABELS = 12, 6


def made_up(examples, seed):
    generator = torch.Generator().manual_seed(seed)
    words = torch.rand(examples, WORDS, generator=generator) * (torch.rand(examples, WORDS, generator=generator) < 0.4)
    noise = 0.1 * torch.randn(examples, LABELS, generator=generator)
    # A label goes with two words.
    return read_multilabel((words, words[:, :LABELS] + words[:, LABELS:] + noise > 0.7))


DATA = Split(made_up(300, 0), made_up(80, 1), made_up(80, 2))
SCHEMA = SparseSchema.of(DATA.train)
FAST = {"optimiser": {"learning_rate": 0.03}, "schedule": {"name": "constant"}}
LINEAR = {"model": {"hidden": (), "dropout": 0.0}, "batches": {"size": 30}}


def test_rows_are_judged_as_lists_of_labels():
    problem = MultiLabel(metrics=("ndcg@3",))
    model = problem.build_model(SCHEMA).eval()
    labels = DATA.test.labels.dense()
    scores = model(DATA.test.features.dense()).detach()
    some = labels.any(1)
    expected = ndcg_score(labels[some], scores[some], k=3)
    assert problem.evaluate(model, DATA.test).means["ndcg@3"] == pytest.approx(expected, abs=1e-6)
    torch.testing.assert_close(problem.predict(model, DATA.test), scores)


def test_columns_are_judged_as_lists_of_examples():
    problem = MultiLabel(lists="columns", loss="soprc", metrics=("ap",))
    model = problem.build_model(SCHEMA).eval()
    scores = model(DATA.test.features.dense()).detach()
    expected = average_precision_score(DATA.test.labels.dense(), scores, average="macro")
    assert problem.evaluate(model, DATA.test).means["ap"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("loss", ["song", "k-song", "softmax", "cross-entropy"])
def test_every_loss_learns_to_rank_labels(loss):
    problem = MultiLabel(loss=loss, **LINEAR)
    run = fit_with(problem, DATA, schema=SCHEMA, steps=150, every=None, **FAST)
    assert problem.evaluate(run.model, DATA.test).means["ndcg@3"] > 0.85


@pytest.mark.parametrize("loss", ["soprc", "song", "cross-entropy"])
def test_every_loss_learns_to_rank_examples(loss):
    problem = MultiLabel(loss=loss, lists="columns", metrics=("ap",), **LINEAR)
    torch.manual_seed(0)
    before = problem.evaluate(problem.build_model(SCHEMA), DATA.test).means["ap"]
    run = fit_with(problem, DATA, schema=SCHEMA, steps=300, every=None, **FAST)
    assert before < 0.5 < 0.65 < problem.evaluate(run.model, DATA.test).means["ap"]


def test_a_loss_over_examples_is_told_how_many_there_are():
    loss = MultiLabel(lists="columns").build_loss(SCHEMA, DATA.train, steps=1)
    assert loss.totals.size.tolist() == [300] * LABELS
    assert loss.totals.relevant.tolist() == DATA.train.labels.dense().sum(0).long().tolist()


@pytest.mark.parametrize("part", ["validation", "test"])
@pytest.mark.parametrize("wrong, shape", [("features", (3, 4)), ("labels", (4, 3))])
def test_parts_of_other_widths_are_refused(part, wrong, shape):
    train = (torch.eye(4), torch.eye(4))
    other = (torch.eye(4)[:, : shape[0]], torch.eye(4)[:, : shape[1]])
    with pytest.raises(ValueError, match=f"expected 4 {wrong}, as in the training data, .* got 3"):
        MultiLabel().read({"train": train, "validation": train, "test": train, part: other})


def test_examples_are_cut_into_disjoint_pieces():
    pieces = cut_multilabel(DATA.train, shares=(0.5, 0.3, 0.2), seed=4)
    assert [len(piece) for piece in pieces] == [150, 90, 60]
    rows = torch.cat([torch.cat([p.features.dense(), p.labels.dense()], 1) for p in pieces])
    whole = torch.cat([DATA.train.features.dense(), DATA.train.labels.dense()], 1)
    assert sorted(rows.tolist()) == sorted(whole.tolist())


@pytest.mark.parametrize("shares", [(0.5, 0.4), (1.2, -0.2)])
def test_shares_must_add_up(shares):
    with pytest.raises(ValueError, match="shares: expected positive numbers that add up to 1"):
        cut_multilabel(DATA.train, shares=shares, seed=0)
