"""The semi-variance add-on: the formula, and at home with any loss."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oracles import auprc as oracle
from rankwise.losses import AUPRCLoss, BinaryCrossEntropyLoss, EmbeddingLoss, SemiVarianceLoss, SumLoss


@given(
    st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=6),
    st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=6),
)
def test_value_and_gradient_equal_the_definition(positives, negatives):
    leaves = [torch.tensor(s, dtype=torch.float64, requires_grad=True) for s in positives + negatives]
    expected = oracle.semi_variance(leaves[: len(positives)], leaves[len(positives) :], 3.0, 15.0) + 0 * sum(leaves)
    gradient = torch.autograd.grad(expected, leaves)
    scores = torch.tensor(positives + negatives, dtype=torch.float64, requires_grad=True)
    value = SemiVarianceLoss(3, 15)(scores, torch.tensor([1] * len(positives) + [0] * len(negatives)))
    value.backward()
    torch.testing.assert_close(value.detach(), expected.detach())
    torch.testing.assert_close(scores.grad, torch.stack(gradient))


@pytest.mark.parametrize("loss", [AUPRCLoss, BinaryCrossEntropyLoss])
def test_adds_to_any_loss(loss):
    scores, labels = torch.tensor([[0.9, 0.1, 0.4, -0.2]]), torch.tensor([[1, 1, 0, 0]])
    total = SumLoss(loss(), SemiVarianceLoss(3, 15))(scores, labels)
    torch.testing.assert_close(total, loss()(scores, labels) + SemiVarianceLoss(3, 15)(scores, labels))


def test_adds_to_a_retrieval_loss():
    embeddings, labels = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 0, 0, 1, 1, 1])
    parts = [EmbeddingLoss(loss)(embeddings, labels) for loss in (AUPRCLoss(), SemiVarianceLoss(3, 15))]
    total = EmbeddingLoss(SumLoss(AUPRCLoss(), SemiVarianceLoss(3, 15)))(embeddings, labels)
    torch.testing.assert_close(total, sum(parts))


def test_weight_two_is_the_item_twice():
    scores, labels = torch.tensor([0.5, 0.2, 0.3, 0.1]), torch.tensor([1, 1, 0, 0])
    weights = torch.tensor([1.0, 2.0, 3.0, 1.0])
    copies = torch.repeat_interleave(torch.arange(4), weights.long())
    weighted = SemiVarianceLoss()(scores, labels, weights=weights)
    torch.testing.assert_close(weighted, SemiVarianceLoss()(scores[copies], labels[copies]))


def test_equal_scores_have_no_spread_however_large():
    scores = torch.full((14,), 3e27, requires_grad=True)
    value = SemiVarianceLoss()(scores, torch.tensor([1, 0] * 7))
    value.backward()
    assert value.item() == 0
    assert not bool(scores.grad.any())


def test_a_spread_whose_square_leaves_float32_is_infinite_and_still_has_its_gradient():
    labels = torch.tensor([[1, 1, 0, 0, 0], [1, 1, 1, 0, 0]])
    scores = torch.tensor([[4e25, 1e25, 1e25, 2e25, 0], [2e25, 1e25, 0, 1e25, 1e25]], requires_grad=True)
    small = (scores.detach() / 1e25).requires_grad_()
    mask = torch.tensor([[True, True, True, True, False], [True] * 5])
    values = [SemiVarianceLoss(link="none")(leaf, labels, mask=mask) for leaf in (scores, small)]
    sum(values).backward()
    assert values[0].item() == torch.inf
    torch.testing.assert_close(scores.grad / 1e25, small.grad)


def test_combined_refuses_what_is_not_a_list_loss():
    with pytest.raises(TypeError, match="losses: expected two or more list losses"):
        SumLoss(AUPRCLoss())
    with pytest.raises(TypeError, match="losses: expected two or more list losses, got"):
        SumLoss(AUPRCLoss(), torch.nn.BCEWithLogitsLoss())
