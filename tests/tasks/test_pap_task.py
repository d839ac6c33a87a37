"""PApTask: whole lists of a few users in a batch, the metric of `rankwise.metrics`, and training that helps."""

from __future__ import annotations

import pytest
import torch

from rankwise.data import Part, Split
from rankwise.losses import PApLoss
from rankwise.metrics import pap
from rankwise.tasks import PApTask
from rankwise.training import adamw, fit


def make_part(seed, users=30):
    generator = torch.Generator().manual_seed(seed)
    counts = torch.randint(12, 40, (users,), generator=generator)
    ids = torch.repeat_interleave(torch.arange(users) * 7 - 3, counts)
    features = torch.randn(len(ids), 4, generator=generator)
    return Part(features, (features[:, 0] + torch.randn(len(ids), generator=generator) > 0.8).long(), ids)


DATA = Split(make_part(0), make_part(1), make_part(2))


def test_batches_hold_whole_lists_of_the_promised_users():
    length = dict(zip(*(t.tolist() for t in DATA.train.query_ids.unique(return_counts=True)), strict=True))
    seen = []
    for batch in PApTask(DATA, k=4, users=6).train_loader(seed=0):
        users, counts = batch.query_ids.unique(return_counts=True)
        assert len(users) == 6
        assert counts.tolist() == [length[user] for user in users.tolist()]
        seen += users.tolist()
    assert sorted(seen) == sorted(length)


def test_items_cut_the_lists():
    batch = next(iter(PApTask(DATA, k=4, users=6, items=10).train_loader(seed=0)))
    assert batch.query_ids.unique(return_counts=True)[1].tolist() == [10] * 6


def test_the_metric_is_micro_pap_at_k():
    task = PApTask(DATA, k=4)
    model = task.build_model()
    scores = model(DATA.test.features).detach()
    expected = pap(scores, DATA.test.labels, k=4, query_ids=DATA.test.query_ids).item()
    assert task.evaluate(model, "test") == {"pap@4": pytest.approx(expected, abs=1e-12)}


def test_k_reaches_the_losses_that_take_one():
    loss = PApTask(DATA, k=5, loss_options={"surrogate": "ts*"}).build_loss()
    assert isinstance(loss, PApLoss)
    assert (loss.k, loss.surrogate) == (5, "ts*")
    assert PApTask(DATA, k=5, loss_options={"k": 9}).build_loss().k == 9
    assert not hasattr(PApTask(DATA, k=5, loss="cross-entropy").build_loss(), "k")


@pytest.mark.parametrize("hidden", [(), (8,)])
def test_training_improves_the_metric(hidden):
    task = PApTask(DATA, k=4, users=10, hidden=hidden)
    run = fit(task, steps=60, optimiser=adamw(0.03), eval_every=60)
    # .77 +- .01 over seeds; an untrained model has .1 to .7, here .3.
    assert run.history.curve("pap@4")[-1] > 0.7


def test_rows_without_users_are_refused():
    lone = Part(torch.rand(4, 2), torch.tensor([1, 0, 0, 0]))
    with pytest.raises(ValueError, match=r"data: expected the user of each row in test\.query_ids, got None"):
        PApTask(Split(DATA.train, DATA.validation, lone))
