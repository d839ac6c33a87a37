"""aLRP: one ranking loss for where objects are and for how they are scored."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rankwise.checks import check_finite, check_labels, check_positive, check_same_shape, check_tensor
from rankwise.distributed import gather_inputs
from rankwise.lists import Lists, pack
from rankwise.losses.first_order import first_order_only
from rankwise.losses.rivals.error_driven import pair_updates
from rankwise.losses.rivals.given_gradient import with_gradient
from rankwise.losses.rivals.soft_ranks import soft_ranks
from rankwise.losses.sides import Sides, split_sides
from rankwise.modes import outside_inference_mode
from rankwise.pairs import pair_sums
from rankwise.surrogates import PiecewiseStep

__all__ = ["ALRPLoss"]


class ALRPLoss(nn.Module):
    """Average localisation-recall-precision: AP-loss in which positives that stand badly in the image cost, too.

    A positive i at rank_i among all items, with N_i negatives above it, costs

        (N_i + sum of E_k over the positives k at or above i) / rank_i,

    E_k in [0, 1] how far its box is off; counts are by the step of `APLoss`. The value is the mean over positives. The
    gradient with respect to the errors E is the derivative, times value / (the part of the errors in the value), so
    that boxes and scores pull alike whatever the state of training. The "gradient" with respect to the scores moves
    every wrong pair by its share of what i would cost less if no other item stood above it: (cost_i - E_i / rank_i) /
    N_i times the step. Perfect boxes (E = 0) make it `APLoss`.

    Args:
        delta: half the width of the step; positives this much above a negative have won.

    Called as `loss(scores, labels, errors, mask=None)`, all of one shape; all items are one list, whatever the shape.
    Errors of negatives are not looked at. Without a positive or a negative it is a zero attached to the graph.

    Example:
        >>> scores = torch.tensor([2.0, -2.0, 0.0], requires_grad=True)
        >>> errors = torch.tensor([0.1, 0.5, 0.0], requires_grad=True)
        >>> value = ALRPLoss()(scores, torch.tensor([1, 1, 0]), errors)
        >>> value.backward()
        >>> round(value.item(), 4), scores.grad
        (0.3167, tensor([ 0.0000, -0.1833,  0.1833]))

    Paper: Oksuz et al., A Ranking-based, Balanced Loss Function Unifying Classification and Localisation in Object
    Detection, NeurIPS 2020; the balance is that of the batch instead of the last epoch's.
    """

    def __init__(self, delta: float = 1.0) -> None:
        super().__init__()
        self.step = PiecewiseStep(check_positive("delta", delta))

    @outside_inference_mode
    def forward(self, scores: Tensor, labels: Tensor, errors: Tensor, *, mask: Tensor | None = None) -> Tensor:
        inputs = gather_inputs(lambda: _check_inputs(scores=scores, labels=labels, errors=errors, mask=mask))
        scores, labels, errors, mask = inputs.values()
        with torch.autocast(scores.device.type, enabled=False):
            kind = torch.promote_types(torch.promote_types(scores.dtype, errors.dtype), torch.float32)
            (lists,) = pack(scores.to(kind), labels, mask=mask).blocks
            check_labels(lists.labels, "binary", lists.mask)
            sides = split_sides(lists)
            missed = errors.to(kind)[None].gather(1, sides.places) * sides.mask
            _check_errors(missed)
            return self._value(lists, sides, missed)

    def _value(self, lists: Lists, sides: Sides, errors: Tensor) -> Tensor:
        positives = lists.scores.detach().gather(1, sides.places)
        with torch.no_grad():
            above, rank = soft_ranks(lists, sides, self.step)
        at_or_above = errors / 2 + pair_sums(
            positives, positives, self.step, weights=errors, anchor_mask=sides.mask, other_mask=sides.mask
        )
        places = (at_or_above / rank * sides.share).sum(1)
        with torch.no_grad():
            costs = (above + at_or_above) / rank
            saved = (costs - errors / rank) * sides.share
            gradient = pair_updates(lists, sides, self.step, torch.where(above > 0, saved / above, 0))
            value = (costs * sides.share).sum(1)
            balance = value / places.clamp_min(torch.finfo(places.dtype).tiny)
        # Its value is `value`, its gradient that of the errors, balanced.
        placed = value + balance * (places - places.detach())
        name, reason = type(self).__name__, "its gradients are updates of pairs and of balanced errors, not derivatives"
        placed = first_order_only(placed, name, reason)
        total = with_gradient(placed.detach(), lists.scores, gradient, name, reason) + placed - placed.detach()
        return (total * sides.valid).sum()


def _check_inputs(**given: object) -> dict[str, Tensor | None]:
    """Return the inputs as tensors, all items one list."""
    inputs = {name: None if value is None else check_tensor(name, value) for name, value in given.items()}
    shape = check_tensor("scores", inputs["scores"]).shape
    for name, tensor in inputs.items():
        if tensor is not None:
            check_same_shape(name, tensor, "scores", shape)
    return {name: None if tensor is None else tensor.flatten() for name, tensor in inputs.items()}


def _check_errors(errors: Tensor) -> None:
    check_finite("errors", errors)
    if bool(((errors < 0) | (errors > 1)).any()):
        wrong = errors[(errors < 0) | (errors > 1)]
        raise ValueError(f"errors: expected numbers from 0 to 1, got {wrong[0].item():g} ({len(wrong)} of them)")
