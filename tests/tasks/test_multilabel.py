"""Many labels per example: lists over labels or over examples."""

from __future__ import annotations

import pytest
import torch
from sklearn.metrics import average_precision_score, ndcg_score

from rankwise.data import MultiLabel, MultiLabelSplit, SparseRows, cut_multilabel
from rankwise.tasks import MultilabelTask
from rankwise.training import adamw, fit

WORDS, LABELS = 12, 6


def sparse(matrix):
    rows, columns = matrix.nonzero(as_tuple=True)
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), (matrix != 0).sum(1).cumsum(0)])
    return SparseRows(starts, columns, matrix[rows, columns].float(), matrix.shape[1])


def made_up(examples, seed):
    generator = torch.Generator().manual_seed(seed)
    words = torch.rand(examples, WORDS, generator=generator) * (torch.rand(examples, WORDS, generator=generator) < 0.4)
    noise = 0.1 * torch.randn(examples, LABELS, generator=generator)
    # A label goes with two words.
    return MultiLabel(sparse(words), sparse((words[:, :LABELS] + words[:, LABELS:] + noise > 0.7).float()))


DATA = MultiLabelSplit(made_up(300, 0), made_up(80, 1), made_up(80, 2))


def test_rows_are_judged_as_lists_of_labels():
    task = MultilabelTask(DATA, "song", metrics=("ndcg@3",))
    model = task.build_model().eval()
    labels = DATA.test.labels.dense()
    scores = model(DATA.test.features.dense()).detach()
    some = labels.any(1)
    expected = ndcg_score(labels[some], scores[some], k=3)
    assert task.evaluate(model, "test")["ndcg@3"] == pytest.approx(expected, abs=1e-6)


def test_columns_are_judged_as_lists_of_examples():
    task = MultilabelTask(DATA, "soprc", lists="columns", metrics=("ap",))
    model = task.build_model().eval()
    scores = model(DATA.test.features.dense()).detach()
    expected = average_precision_score(DATA.test.labels.dense(), scores, average="macro")
    assert task.evaluate(model, "test")["ap"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("loss", ["song", "k-song", "softmax", "cross-entropy"])
def test_every_loss_learns_to_rank_labels(loss):
    task = MultilabelTask(DATA, loss, hidden=(), dropout=0.0, batch_size=30)
    run = fit(task, steps=150, optimiser=adamw(0.03))
    assert task.evaluate(run.model, "test")["ndcg@3"] > 0.85


@pytest.mark.parametrize("loss", ["soprc", "song", "cross-entropy"])
def test_every_loss_learns_to_rank_examples(loss):
    task = MultilabelTask(DATA, loss, lists="columns", hidden=(), dropout=0.0, batch_size=30, metrics=("ap",))
    torch.manual_seed(0)
    before = task.evaluate(task.build_model(), "test")["ap"]
    run = fit(task, steps=300, optimiser=adamw(0.03))
    assert before < 0.5 < 0.65 < task.evaluate(run.model, "test")["ap"]


def test_a_loss_over_examples_is_told_how_many_there_are():
    loss = MultilabelTask(DATA, "song", lists="columns").build_loss()
    assert loss.totals.size.tolist() == [300] * LABELS
    assert loss.totals.relevant.tolist() == DATA.train.labels.dense().sum(0).long().tolist()


def test_parts_of_other_widths_are_refused():
    narrow = MultiLabel(sparse(torch.eye(4)), sparse(torch.eye(4)[:, :3]))
    wide = MultiLabel(sparse(torch.eye(4)), sparse(torch.eye(4)))
    with pytest.raises(ValueError, match=r"labels: expected as many in training, validation and test, got \[4, 3, 4\]"):
        MultiLabelSplit(wide, narrow, wide)


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
