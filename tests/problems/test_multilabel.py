"""Many labels per example: lists over labels or over examples."""

from __future__ import annotations

import pytest
import torch
from sklearn.metrics import average_precision_score, ndcg_score

from rankwise.data import SparseSchema, Split, cut_multilabel, read_multilabel
from rankwise.models import BagOfWordsScorer, Blend, Ridge
from rankwise.problems import MultiLabel, multilabel
from rankwise.runs import train
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


RIDGE = {"regularisation": (0.1, 3.0), "share": (0.0, 0.4, 1.0)}


def test_the_blend_takes_what_is_best_on_validation():
    problem = MultiLabel(model={"hidden": (8,), "ridge": RIDGE}, metrics=("ndcg@3",), batches={"size": 30})
    model = fit_with(problem, DATA, schema=SCHEMA, steps=30, every=None, **FAST).model
    settings = problem.complete_model(model, DATA)
    found = {}
    for regularisation in RIDGE["regularisation"]:
        ridge = Ridge(WORDS, LABELS, regularisation=regularisation)
        other = Blend(model.trained, ridge.fit(DATA.train.features.dense(), DATA.train.labels.dense()))
        for share in RIDGE["share"]:
            other.share.fill_(share)
            found[regularisation, share] = problem.evaluate(other, DATA.validation).means["ndcg@3"]
    chosen = found[settings["regularisation"], settings["share"]]
    assert chosen == pytest.approx(max(found.values()), abs=1e-6)
    assert problem.evaluate(model, DATA.validation).means["ndcg@3"] == pytest.approx(chosen, abs=1e-6)


def test_the_default_is_refitted_with_its_ridge_regression():
    run = train(MultiLabel(batches={"size": 30}), train=DATA.train, validation=DATA.validation, test=DATA.test)
    both = DATA.train.join(DATA.validation)
    ridge = Ridge(WORDS, LABELS, regularisation=run.record["settings"]["regularisation"])
    torch.testing.assert_close(run.model.solved.weights, ridge.fit(both.features.dense(), both.labels.dense()).weights)
    assert float(run.model.share) == pytest.approx(run.record["settings"]["share"])
    assert run.test.means["ndcg@3"] > 0.85


def test_lists_of_examples_and_ridge_null_have_the_network_alone():
    for problem in (MultiLabel(lists="columns", loss="soprc", metrics=("ap",)), MultiLabel(model={"ridge": None})):
        model = problem.build_model(SCHEMA)
        assert isinstance(model, BagOfWordsScorer)
        assert problem.complete_model(model, DATA) == {}


def test_the_weights_of_the_ridge_regression_are_limited(monkeypatch):
    monkeypatch.setattr(multilabel, "MOST_WEIGHTS", 3 * LABELS)
    problem = MultiLabel()
    model = problem.build_model(SCHEMA)
    problem.complete_model(model, DATA)
    assert model.solved.weights.shape == (3, LABELS)
