"""Late memory: the batch alone at first, then also the batch with the vectors of earlier ones."""

from __future__ import annotations

import pytest
import torch

from rankwise.estimators.groups import PriorSchedule
from rankwise.losses import AUPRCLoss, EmbeddingLoss, LateMemoryLoss, StableAPLoss


def batches(count, rows=8, classes=3):
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(count, rows, 5, generator=generator, dtype=torch.float64)
    return list(zip(vectors, torch.randint(classes, (count, rows), generator=generator), strict=True))


def by_hand(vectors, labels, others, other_labels):
    """The mean over queries and both of their lists, one list at a time."""
    unit = torch.nn.functional.normalize(vectors)
    values = []
    for longer in (False, True):
        for query in range(len(labels)):
            rest = torch.arange(len(labels)) != query
            ranked, classes = unit[rest], labels[rest]
            if longer:
                ranked, classes = torch.cat([ranked, others]), torch.cat([classes, other_labels])
            relevant = classes == labels[query]
            if relevant.any() and not relevant.all():
                values.append(AUPRCLoss(recall="batch")(ranked @ unit[query], relevant))
    return torch.stack(values).mean()


def test_equals_the_list_loss_over_both_lists_of_every_query():
    loss = LateMemoryLoss(AUPRCLoss(recall="batch"), memory=16, after=2)
    plain = EmbeddingLoss(AUPRCLoss(recall="batch"))
    seen = []
    for number, (vectors, labels) in enumerate(batches(5)):
        given = vectors.clone().requires_grad_()
        value = loss(given, labels)
        value.backward()
        known = vectors.clone().requires_grad_()
        if number < 2:
            expected = plain(known, labels)
        else:
            others = torch.cat([torch.nn.functional.normalize(v) for v, _ in seen[-2:]])
            expected = by_hand(known, labels, others, torch.cat([c for _, c in seen[-2:]]))
        expected.backward()
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(given.grad, known.grad)
        seen.append((vectors, labels))


def test_a_step_counts_once_for_a_schedule():
    prior = PriorSchedule(0.5, 0.1, steps=10)
    loss = LateMemoryLoss(AUPRCLoss(prior), memory=16)
    for vectors, labels in batches(4):
        loss(vectors, labels)
    assert int(prior.step) == int(loss.step) == 4


def test_nothing_is_written_in_eval_mode():
    loss = LateMemoryLoss(AUPRCLoss(), memory=16)
    (first, labels), (second, others) = batches(2)
    loss(first, labels)
    before = {name: value.clone() for name, value in loss.state_dict().items()}
    loss.eval()
    assert float(loss(second, others)) == float(loss(second, others))
    assert all(torch.equal(value, before[name]) for name, value in loss.state_dict().items())


def test_previous_vectors_reach_both_lists():
    (first, labels), (second, others) = batches(2)
    means = []
    for previous in (None, second * 0.5 + 1):
        loss = LateMemoryLoss(StableAPLoss(update_rate=0.5), memory=16)
        loss(first, labels)
        loss(second, others, previous_embeddings=previous)
        means.append(loss.loss.tracker.table.rows.clone())
    assert not torch.equal(*means)


@pytest.mark.parametrize("cut", [1, 2, 3, 5])
def test_resumed_equals_uninterrupted(cut, tmp_path):
    def training():
        torch.manual_seed(0)
        model = torch.nn.Linear(5, 4).double()
        loss = LateMemoryLoss(AUPRCLoss(PriorSchedule(0.5, 0.1, steps=5)), memory=20, after=2)
        return model, loss, torch.optim.AdamW(model.parameters(), lr=0.1)

    def run(parts, some):
        model, loss, optimiser = parts
        for vectors, labels in some:
            optimiser.zero_grad()
            loss(model(vectors), labels).backward()
            optimiser.step()
        return parts

    data = batches(7)
    straight = run(training(), data)
    torch.save([part.state_dict() for part in run(training(), data[:cut])], tmp_path / "state.pt")
    resumed = training()
    for part, state in zip(resumed, torch.load(tmp_path / "state.pt", weights_only=True), strict=True):
        part.load_state_dict(state)
    run(resumed, data[cut:])
    for left, right in zip(straight[:2], resumed[:2], strict=True):
        assert all(torch.equal(value, right.state_dict()[name]) for name, value in left.state_dict().items())


@pytest.mark.parametrize(
    "options, message",
    [({"memory": 0}, "memory: expected a whole number of at least 1"), ({"memory": 8, "after": -1}, "after: expected")],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        LateMemoryLoss(AUPRCLoss(), **options)
