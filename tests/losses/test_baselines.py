"""Baselines: the textbook formulas, in the same dress."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from rankwise.losses import BalancedCrossEntropyLoss, BinaryCrossEntropyLoss


def test_cross_entropy_is_torchs_on_one_list():
    scores, labels = torch.randn(9, dtype=torch.float64), torch.tensor([1, 0, 0, 1, 0, 0, 0, 0, 1])
    torch.testing.assert_close(
        BinaryCrossEntropyLoss()(scores, labels), binary_cross_entropy_with_logits(scores, labels.double())
    )


def test_balanced_cross_entropy_does_not_see_how_many_there_are_of_a_kind():
    scores, labels = torch.tensor([0.3, -0.2]), torch.tensor([1, 0])
    few = BalancedCrossEntropyLoss()(scores, labels)
    many = BalancedCrossEntropyLoss()(torch.tensor([0.3] + [-0.2] * 9), torch.tensor([1] + [0] * 9))
    torch.testing.assert_close(few, many)
    torch.testing.assert_close(few, BinaryCrossEntropyLoss()(scores, labels))


@pytest.mark.parametrize("build", [BinaryCrossEntropyLoss, BalancedCrossEntropyLoss])
def test_gradient_is_that_of_the_value(build):
    scores = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[1, 0, 0, 1, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]])
    assert torch.autograd.gradcheck(lambda s: build()(s, labels), (scores,))


@pytest.mark.parametrize("build", [BinaryCrossEntropyLoss, BalancedCrossEntropyLoss])
def test_one_class_lists_count(build):
    loss = build()
    loss(torch.zeros(2, 3), torch.tensor([[1, 1, 1], [0, 0, 1]]))
    assert loss.skipped == 0
