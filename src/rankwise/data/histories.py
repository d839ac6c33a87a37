"""Interactions as histories: one row per user; held out, joined, and numbered alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rankwise.checks import check_count, check_share
from rankwise.data.interactions import Interactions
from rankwise.data.sparse import SparseRows

__all__ = ["active_users", "histories", "hold_out", "join_interactions", "number_together"]


def histories(interactions: Interactions) -> SparseRows:
    """One row per user, with a 1 for every item the user has chosen, however often.

    Example:
        >>> users, items = torch.tensor([1, 0, 1]), torch.tensor([2, 0, 2])
        >>> histories(Interactions(users, items, None, None, tuple("ab"), tuple("xyz"))).dense()
        tensor([[1., 0., 0.],
                [0., 0., 1.]])
    """
    items, users = len(interactions.item_names), len(interactions.user_names)
    pairs = (interactions.users * items + interactions.items).unique()
    counts = torch.bincount(pairs // items, minlength=users)
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    return SparseRows(starts, pairs % items, torch.ones(len(pairs)), items)


def active_users(interactions: Interactions, least: int) -> Interactions:
    """Without the users who have fewer than `least` pairs; the others are numbered anew.

    Example:
        >>> users, items = torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1])
        >>> active_users(Interactions(users, items, None, None, ("ann", "bob"), ("x", "y")), 2).user_names
        ('bob',)
    """
    check_count("least", least)
    counts = interactions.users.bincount(minlength=len(interactions.user_names))
    active = counts >= least
    kept = interactions.take(_where(active[interactions.users]))
    names = tuple(name for name, wanted in zip(kept.user_names, active.tolist(), strict=True) if wanted)
    return replace(kept, users=(active.cumsum(0) - 1)[kept.users], user_names=names)


def hold_out(interactions: Interactions, *, share: float, seed: int) -> tuple[Interactions, Interactions]:
    """What is kept, and a share of each user's pairs at random (rounded; at least one pair of a user is kept).

    Example:
        >>> users, items = torch.tensor([0, 0, 0, 0, 1]), torch.tensor([0, 1, 2, 3, 3])
        >>> kept, held = hold_out(Interactions(users, items, None, None, tuple("ab"), tuple("wxyz")), share=0.5, seed=0)
        >>> kept.users.tolist(), held.users.tolist()
        ([0, 0, 1], [0, 0])
    """
    check_share("share", share)
    order = torch.randperm(len(interactions), generator=torch.Generator().manual_seed(seed))
    order = order[torch.argsort(interactions.users[order], stable=True)]
    counts = interactions.users.bincount(minlength=len(interactions.user_names))
    of_pair = interactions.users[order]
    place = torch.arange(len(order)) - (counts.cumsum(0) - counts)[of_pair]
    wanted = (counts * share).round().long().minimum((counts - 1).clamp_min(0))
    held = torch.empty(len(order), dtype=torch.bool)
    held[order] = place < wanted[of_pair]
    return interactions.take(_where(~held)), interactions.take(_where(held))


def join_interactions(first: Interactions, second: Interactions) -> Interactions:
    """The pairs of both, which must number users and items alike; ratings and times only if both have them.

    Example:
        >>> one = Interactions(torch.tensor([0]), torch.tensor([1]), None, None, ("ann",), tuple("xy"))
        >>> len(join_interactions(one, one))
        2
    """
    if (first.user_names, first.item_names) != (second.user_names, second.item_names):
        raise ValueError("second: expected the users and items of the first; `number_together` gives them the same")

    def both(name: str) -> Tensor | None:
        parts = [getattr(each, name) for each in (first, second)]
        return None if any(part is None for part in parts) else torch.cat(parts)

    users, items = torch.cat([first.users, second.users]), torch.cat([first.items, second.items])
    return Interactions(users, items, both("ratings"), both("times"), first.user_names, first.item_names)


def number_together(parts: Sequence[Interactions]) -> list[Interactions]:
    """The same pairs with users and items numbered by name over all parts, those of the first part first.

    Example:
        >>> one = Interactions(torch.tensor([0]), torch.tensor([0]), None, None, ("ann",), ("x",))
        >>> two = Interactions(torch.tensor([0]), torch.tensor([0]), None, None, ("bob",), ("x",))
        >>> [(part.users.tolist(), part.items.tolist()) for part in number_together([one, two])]
        [([0], [0]), ([1], [0])]
    """
    users = {name: number for number, name in enumerate(dict.fromkeys(n for part in parts for n in part.user_names))}
    items = {name: number for number, name in enumerate(dict.fromkeys(n for part in parts for n in part.item_names))}
    numbered = []
    for part in parts:
        new_user = torch.tensor([users[name] for name in part.user_names], dtype=torch.int64)
        new_item = torch.tensor([items[name] for name in part.item_names], dtype=torch.int64)
        numbered.append(
            Interactions(
                new_user[part.users], new_item[part.items], part.ratings, part.times, tuple(users), tuple(items)
            )
        )
    return numbered


def _where(chosen: Tensor) -> Tensor:
    return chosen.nonzero().squeeze(1)
