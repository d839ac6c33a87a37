"""DR loss and SoDeep: what holds beside their definitions, which `test_ap_baselines` checks."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import softplus

from rankwise.losses import DistributionalRankingLoss, SoDeepLoss, Sorter, train_sorter

SCORES = torch.randn(50, 80, generator=torch.Generator().manual_seed(7))
SHARES = torch.full_like(SCORES, 1 / 80)


def error(sorter):
    true = (SCORES.argsort(1, descending=True).argsort(1) + 0.5) / 80
    return (sorter(SCORES, SHARES) - true).abs().mean().item()


def test_a_trained_sorter_knows_the_ranks_and_an_untrained_one_does_not():
    torch.manual_seed(0)
    assert error(train_sorter()) < 0.04 < 0.2 < error(Sorter())


def test_training_a_sorter_leaves_random_state_and_gradients_alone_and_can_be_repeated():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    with torch.no_grad():
        first = train_sorter(width=4, steps=3, seed=1)
    assert torch.equal(before, torch.get_rng_state())
    assert not any(weight.requires_grad for weight in first.parameters())
    again = train_sorter(width=4, steps=3, learning_rate=0.02 + 1e-12, seed=1)  # not from the cache
    other = train_sorter(width=4, steps=3, seed=2)
    torch.testing.assert_close(first.state_dict(), again.state_dict())
    assert not torch.equal(first.thresholds, other.thresholds)


def test_a_loss_has_a_sorter_of_its_own():
    sorter = train_sorter()
    kept = sorter.thresholds.clone()
    loss = SoDeepLoss(sorter)
    loss.sorter.thresholds.zero_()
    assert torch.equal(sorter.thresholds, kept)
    assert not any(weight.requires_grad for weight in loss.parameters())


def test_another_module_is_no_sorter():
    with pytest.raises(TypeError, match="sorter: expected a Sorter, see train_sorter, got Linear"):
        SoDeepLoss(torch.nn.Linear(1, 1))


def test_the_scale_of_the_scores_changes_no_learned_rank():
    labels = (torch.arange(80) % 5 == 0).long().repeat(50, 1)
    value = SoDeepLoss()(SCORES.double(), labels)
    for scale in (1e-6, 1e3, 1e20):
        torch.testing.assert_close(SoDeepLoss()(SCORES.double() * scale, labels), value, rtol=1e-6, atol=1e-6)


def test_tied_scores_have_a_gradient_towards_the_better_order():
    scores = torch.zeros(6, requires_grad=True)
    SoDeepLoss()(scores, torch.tensor([1, 1, 0, 0, 0, 0])).backward()
    assert bool((scores.grad[:2] < 0).all())
    assert bool((scores.grad[2:] > 0).all())


def test_learned_ranks_train_a_linear_model():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(400, 5, generator=generator)
    labels = (features[:, 0] + 0.3 * torch.randn(400, generator=generator) > 1.2).long()
    weight = torch.zeros(5, requires_grad=True)
    optimiser, loss = torch.optim.Adam([weight], lr=0.1), SoDeepLoss()
    for _ in range(40):
        optimiser.zero_grad()
        loss(features @ weight, labels).backward()
        optimiser.step()
    assert int(weight.detach().abs().argmax()) == 0
    assert weight[0] > 0


def test_a_list_without_positives_pushes_its_highest_negatives_down():
    scores = torch.tensor([2.0, -2.0, 0.0], requires_grad=True)
    loss = DistributionalRankingLoss()
    value = loss(scores, torch.zeros(3, dtype=torch.int64))
    value.backward()
    assert loss.skipped == 0
    assert scores.grad[0] > scores.grad[2].abs() + scores.grad[1].abs()
    p = torch.sigmoid(torch.tensor(2.0))
    # With one negative alone P- is its probability, and P+ is 1.
    alone = loss(torch.tensor([[2.0]]), torch.tensor([[0]]))
    torch.testing.assert_close(alone, softplus(6 * (p - 1 + 0.5)) / 6)


def test_easy_negatives_do_not_outweigh_a_hard_one():
    few, many = ([1] + [0] * n for n in (10, 1000))
    values = [
        DistributionalRankingLoss(negative_temperature=0.02)(
            torch.tensor([1.0, 1.0] + [-5.0] * (len(labels) - 2)), torch.tensor(labels)
        )
        for labels in (few, many)
    ]
    torch.testing.assert_close(*values, rtol=1e-4, atol=1e-4)
    assert math.isclose(values[0].item(), float(softplus(torch.tensor(3.0)) / 6), rel_tol=1e-4)
