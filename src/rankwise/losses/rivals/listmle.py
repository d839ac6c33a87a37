"""ListMLE: the likelihood of the right order under the Plackett-Luce model."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from rankwise.lists import Lists, PackedLists
from rankwise.losses.base import ListLoss
from rankwise.losses.rivals.preferences import by_grade
from rankwise.losses.rivals.weighing import grades_differ, log_weights, relative_weights
from rankwise.ranks import RankedLists
from rankwise.registry import LossRecord

__all__ = ["ListMLELoss"]

# Exponentials of such differences are still far from the ends of float64. Of no items, the sum is taken for the least.
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
        >>> ListMLELoss()(torch.zeros(3), torch.tensor([2, 1, 0]))  # log 6: one of six orders
        tensor(1.7918)

    Paper: Xia et al., Listwise approach to learning to rank: theory and algorithm, ICML 2008; Efron, The efficiency of
    Cox's likelihood function for censored data, JASA 1977.
    """

    label_kind = "grades"

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = packed.map(_minus_log_likelihood)
        return values, valid


def _minus_log_likelihood(lists: Lists) -> tuple[Tensor, Tensor]:
    graded = by_grade(lists)
    scores = lists.scores.gather(1, graded.order)
    size = (graded.end - graded.start).to(scores.dtype)
    placed = (torch.arange(scores.shape[1], device=scores.device) - graded.start) / size
    if lists.weights is None:
        value = _log_choices(scores, graded, placed) - scores
    else:
        weights, logs = (t.gather(1, graded.order) for t in (relative_weights(lists), log_weights(lists)))
        reached = pad(weights.cumsum(1), (1, 0))
        group_weight = (reached.gather(1, graded.end) - reached.gather(1, graded.start)) / size
        value = group_weight * _log_choices(scores + logs, graded, placed) - weights * scores
    return value.masked_fill(~graded.mask, 0).sum(1), grades_differ(lists)


def _log_choices(logits: Tensor, graded: RankedLists, placed: Tensor) -> Tensor:
    """(Q, L) log of the sum over what each item is chosen from: its group and all behind, less the share placed."""
    least = torch.finfo(logits.dtype).min / 4
    logits = logits.masked_fill(~graded.mask, least)
    top = logits.detach().amax(1, keepdim=True) if logits.shape[1] else logits
    far = (logits.detach() - top < -_SAFE_SPREAD) & graded.mask
    if bool(far.any()):
        behind = pad(torch.logcumsumexp(logits.flip(1), 1).flip(1), (0, 1), value=least)
        group, after = behind.gather(1, graded.start), behind.gather(1, graded.end)
        return torch.logaddexp(group + torch.log1p(-placed), after + placed.log())
    # Plain sums in float64 are as good and many times faster.
    sums = pad((logits - top).double().exp().flip(1).cumsum(1).flip(1), (0, 1))
    group, after = sums.gather(1, graded.start), sums.gather(1, graded.end)
    return torch.lerp(group, after, placed.double()).clamp_min(_LEAST_SUM).log().to(logits.dtype) + top


RECORDS = (
    LossRecord(
        name="listmle",
        summary="likelihood of the order of grades, ties by Efron's rule",
        build=ListMLELoss,
        role="baseline",
        labels="grades",
        paper="Xia et al., ICML 2008",
    ),
)
