"""SOAP: loss for average precision with moving averages for every positive."""

from __future__ import annotations

import torch
from torch import Tensor

from rankwise.checks import check_share, first_order_only
from rankwise.estimators import IdTable
from rankwise.estimators.groups import Link
from rankwise.lists import Lists, PackedLists, Sides, split_sides, take
from rankwise.losses.base import ListLoss
from rankwise.pairs import mean_over_negatives, pair_sums
from rankwise.registry import LossRecord
from rankwise.surrogates import SquaredHinge

__all__ = ["SOAPLoss"]


class SOAPLoss(ListLoss):
    """Loss for average precision: 1 - the mean over positives i of u+_i / u_i, with moving averages u+ and u.

    With l the squared hinge of s_i - s_j, g+_i and g_i are the sums of l over the positives j and over all items j of
    the list, divided by the number of items. u+ and u are their moving averages over the batches that contain item i.
    The gradient is that of - (g+_i / u_i - u+_i g_i / u_i^2), with constant averages.

    The averages are stored by `sample_ids`. Without `sample_ids` no state is kept, and u+ and u are those of the batch.
    An item of several lists (queries, classes) has averages for each, so lists need ids too (`query_ids`; a single list
    and columns have ids of their own).

    Args:
        margin: margin of the squared hinge.
        update_rate: weight of the new batch in the averages (the paper's gamma), in (0, 1].
        link: map of scores to a range that suits the margin, see `AUPRCLoss`; the authors take sigmoids of logits.
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> loss = SOAPLoss()
        >>> value = loss(torch.tensor([3.0, -1.0, 0.0]), torch.tensor([1, 1, 0]), sample_ids=torch.tensor([8, 3, 5]))
        >>> loss.table.ids
        tensor([3, 8])

    Paper: Qi et al., Stochastic Optimization of Areas Under Precision-Recall Curves with Provable Convergence, NeurIPS
    2021.
    """

    remembers = ("surrogate.margin", "link.kind")

    def __init__(
        self,
        margin: float = 1.0,
        update_rate: float = 0.1,
        *,
        link: str = "sigmoid",
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        self.surrogate = SquaredHinge(margin)
        self.update_rate = check_share("update_rate", update_rate, open_end=False)
        self.link = Link(link)
        self.table = IdTable(width=2)

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        if group_ids is None and any(lists.sample_ids is not None for lists in packed.blocks):
            raise ValueError(
                "query_ids: expected the id of each list with sample_ids, because an item has averages for each of its "
                "lists, got None"
            )
        blocks = self.link(packed, group_ids).blocks
        sides = [split_sides(lists) for lists in blocks]
        observed = [self._observe(lists, side) for lists, side in zip(blocks, sides, strict=True)]
        averages = [now.detach() for now in observed]
        if group_ids is not None:
            keys = [_keys(lists, side, group_ids[lists.positions]) for lists, side in zip(blocks, sides, strict=True)]
            chosen = [side.mask & side.valid[:, None] for side in sides]
            averages = self._average(keys, chosen, averages)
        values = []
        for now, average, side in zip(observed, averages, sides, strict=True):
            hits, everything = torch.where(side.mask[..., None], average, 1).unbind(-1)
            linear = now[..., 1] * hits / everything.square() - now[..., 0] / everything
            value = 1 - hits / everything
            values.append(((value + linear - linear.detach()) * side.share).sum(1))
        value = first_order_only(packed.join(values), type(self).__name__, "its gradient holds the averages fixed")
        return value, packed.join([side.valid for side in sides])

    def _observe(self, lists: Lists, sides: Sides) -> Tensor:
        """Compute g+ and g of each positive, (Q, A, 2)."""
        positives = take(lists.scores, sides.index)
        above = mean_over_negatives(lists, sides, self.surrogate)
        among = pair_sums(positives, positives, self.surrogate, weights=sides.share, anchor_mask=sides.mask)
        hits = among * sides.rate[:, None]
        return torch.stack([hits, hits + above * (1 - sides.rate[:, None])], -1)

    @torch.no_grad()
    def _average(self, keys: list[Tensor | None], chosen: list[Tensor], observed: list[Tensor]) -> list[Tensor]:
        """Update the averages of the chosen positives of every block and return them; `observed` without ids."""
        known_keys = [(key, where) for key, where in zip(keys, chosen, strict=True) if key is not None]
        if len(known_keys) < len(keys):
            return observed
        flat = torch.cat([key.flatten() for key, _ in known_keys])
        values = torch.cat([now.flatten(0, 1) for now in observed])
        counted = torch.cat([where.flatten() for where in chosen])
        rows = self.table.follow(flat, values, self.update_rate, training=self.training, chosen=counted)
        averages = torch.where(counted[:, None], rows.to(values.dtype), values)
        parts = averages.split([where.numel() for where in chosen])
        return [part.view_as(now) for now, part in zip(observed, parts, strict=True)]


def _keys(lists: Lists, sides: Sides, group_ids: Tensor) -> Tensor | None:
    """Return one key for each pair of a list's group and one of its positives, (Q, A), or None without item ids.

    The key is the id of the item plus a hash of the group's id (0 for 0). Two pairs collide with a probability of about
    the number of pairs, squared, over 2^64.
    """
    if lists.sample_ids is None:
        return None
    mixed = group_ids
    for multiplier, shift in ((-4658895280553007687, 30), (-7723592293110705685, 27)):
        # A logical shift, which fills with zeros for negative numbers too.
        mixed = (mixed ^ ((mixed >> shift) & ((1 << (64 - shift)) - 1))) * multiplier
    return take(lists.sample_ids, sides.index) + mixed[:, None]


RECORDS = (
    LossRecord(
        name="soap",
        summary="average precision from moving averages kept for every positive",
        build=SOAPLoss,
        role="baseline",
        shift_invariant=False,
        paper="Qi et al., NeurIPS 2021",
        state="two numbers for each positive, by `sample_ids`; the batch alone without them",
        advice="one list, few positives, each seen often",
    ),
)
