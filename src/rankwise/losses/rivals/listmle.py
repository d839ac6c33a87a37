"""ListMLE: the likelihood of the right order under the Plackett-Luce model."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from rankwise.lists import Lists, PackedLists
from rankwise.losses.base import ListLoss
from rankwise.losses.rivals.preferences import by_grade
from rankwise.losses.rivals.weighing import grades_differ, log_weights, relative_weights

__all__ = ["ListMLELoss"]

# Exponentials of such differences are still far from the ends of float64; the sum of none is taken for the least.
_SAFE_SPREAD, _LEAST_SUM = 500.0, 1e-300


class ListMLELoss(ListLoss):
    """Minus the log likelihood of the items in order of grade: `sum_p log sum_{j at p or below} exp(s_j) - s_p`.

    Grades nearly always tie, and the paper's formula then depends on the order of the input. Here items of one grade
    are taken together (Efron's treatment of ties in survival analysis): while the m of them are placed, the l-th is
    chosen from all items of lower grade and the whole group, of which the share l / m counts as placed already. Without
    ties that is the paper's formula.

    The sum over the list, so long lists cost more; log L! for constant scores. An item of weight w has w times
    the exponential and a tie group the mean weight of its items, the weights of a list scaled to a mean of 1. Lists of
    one grade have no order to learn and are left out.

    Example:
        >>> ListMLELoss()(torch.zeros(3), torch.tensor([2, 1, 0])).exp()
        tensor(6.)

    Paper: Xia et al., Listwise approach to learning to rank: theory and algorithm, ICML 2008; Efron, The efficiency of
    Cox's likelihood function for censored data, JASA 1977.
    """

    label_kind = "grades"

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = packed.map(_minus_log_likelihood)
        return values, valid


def _minus_log_likelihood(lists: Lists) -> tuple[Tensor, Tensor]:
    graded = by_grade(lists)
    scores, logs, weights = (
        t.gather(1, graded.order) for t in (lists.scores, log_weights(lists), relative_weights(lists))
    )
    # Log of the sum over each item and all behind it, and nothing behind the last one.
    behind = pad(_log_sums_behind(scores + logs, graded.mask), (0, 1), value=torch.finfo(scores.dtype).min / 4)
    size = (graded.end - graded.start).to(scores.dtype)
    placed = (torch.arange(scores.shape[1], device=scores.device) - graded.start) / size
    choices = torch.logaddexp(
        behind.gather(1, graded.start) + torch.log1p(-placed), behind.gather(1, graded.end) + placed.log()
    )
    reached = pad(weights.cumsum(1), (1, 0))
    group_weight = (reached.gather(1, graded.end) - reached.gather(1, graded.start)) / size
    value = (group_weight * choices - weights * scores).masked_fill(~graded.mask, 0).sum(1)
    return value, grades_differ(lists)


def _log_sums_behind(logits: Tensor, mask: Tensor) -> Tensor:
    """(Q, L) log of the sum of exponentials of each item and all behind it."""
    top = logits.detach().amax(1, keepdim=True) if logits.shape[1] else logits
    if bool((((logits.detach() - top) < -_SAFE_SPREAD) & mask).any()):
        return torch.logcumsumexp(logits.flip(1), 1).flip(1)
    # Plain sums in float64 are as good and many times faster.
    sums = (logits - top).double().exp().flip(1).cumsum(1).flip(1)
    return (sums.clamp_min(_LEAST_SUM).log() + top).to(logits.dtype)
