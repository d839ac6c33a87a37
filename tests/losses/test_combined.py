"""One loss first and another after it."""

from __future__ import annotations

import pytest
import torch

from rankwise.losses import AUPRCLoss, ListwiseCELoss, NDCGLoss, SwitchLoss

SCORES, LABELS = torch.tensor([0.3, 0.1, 0.9]), torch.tensor([2, 0, 1])


def test_the_second_loss_takes_over_after_so_many_training_steps():
    loss = SwitchLoss(ListwiseCELoss(), NDCGLoss(), after=2)
    values = [loss(SCORES, LABELS).item() for _ in range(4)]
    first, second = ListwiseCELoss()(SCORES, LABELS).item(), NDCGLoss()(SCORES, LABELS).item()
    assert values == pytest.approx([first, first, second, second])


def test_evaluation_does_not_count_as_a_step():
    loss = SwitchLoss(ListwiseCELoss(), NDCGLoss(), after=1).eval()
    loss(SCORES, LABELS)
    assert not loss.switched
    loss.train()(SCORES, LABELS)
    assert loss.switched


def test_a_refused_batch_is_not_counted():
    loss = SwitchLoss(ListwiseCELoss(), NDCGLoss(), after=1)
    with pytest.raises(ValueError, match="scores"):
        loss(SCORES * float("nan"), LABELS)
    assert not loss.switched


def test_lists_left_out_are_counted():
    loss = SwitchLoss(ListwiseCELoss(), NDCGLoss(), after=1)
    loss(SCORES.expand(2, 3), torch.stack([LABELS, LABELS * 0]))
    assert loss.skipped == 1


@pytest.mark.parametrize(
    "first, second, after, error, message",
    [
        (torch.nn.MSELoss(), NDCGLoss(), 1, TypeError, "first: expected a list loss, got MSELoss"),
        (NDCGLoss(), AUPRCLoss(), 1, ValueError, "second: expected a loss of grades labels, got binary"),
        (NDCGLoss(), NDCGLoss(), -1, ValueError, "after: expected a whole number of at least 0, got -1"),
        (NDCGLoss(), NDCGLoss(), True, TypeError, "after: expected a whole number of at least 0, got True"),
    ],
)
def test_bad_input_is_named(first, second, after, error, message):
    with pytest.raises(error, match=message):
        SwitchLoss(first, second, after)
