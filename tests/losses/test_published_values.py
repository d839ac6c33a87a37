"""Values that rax prints in its documentation and states in closed form in its tests, and the same losses here."""

from __future__ import annotations

import math

import pytest
import torch

from rankwise.losses import create_loss
from rankwise.metrics import ndcg

SCORES, LABELS = torch.tensor([[0.0, 3.0, 1.0, 2.0]], dtype=torch.float64), torch.tensor([[0, 0, 1, 1]])


def softplus(x):
    return math.log1p(math.exp(x))


# rax sums over items or pairs where the losses here take the mean.
CLOSED_FORMS = {
    "softmax": math.log(sum(map(math.exp, range(4)))) - 1.5,
    "listwise-cross-entropy": math.log(sum(map(math.exp, range(4)))) - 1.5,
    "ranknet": (softplus(-1) + softplus(2) + softplus(1) + softplus(-2)) / 4,
    "cross-entropy": (softplus(0) + softplus(3) + softplus(-1) + softplus(-2)) / 4,
    "squared-error": (0 + 9 + 0 + 1) / 4,
}


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_closed_forms(name):
    assert create_loss(name)(SCORES, LABELS).item() == pytest.approx(CLOSED_FORMS[name], abs=1e-12)


def test_softmax_of_a_batch_with_a_mask():
    scores = torch.tensor([[2.0, 1.0, 3.0], [1.0, 0.5, 1.5]])
    labels, mask = torch.tensor([[1, 0, 0], [0, 0, 1]]), torch.tensor([[True, True, False], [True, True, True]])
    loss = create_loss("softmax")
    assert loss(scores[:1], labels[:1]).item() == pytest.approx(1.4076059, abs=1e-6)
    assert loss(scores, labels, mask=mask).item() == pytest.approx(0.49676564, abs=1e-6)


@pytest.mark.parametrize("labels, value", [([2, 0, 1], 0.79670763), ([1, 0, 0], 0.63092977)])
def test_ndcg(labels, value):
    assert ndcg(torch.tensor([2.0, 1.0, 3.0]), torch.tensor(labels)).item() == pytest.approx(value, abs=1e-7)
