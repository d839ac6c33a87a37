"""Histories of users: interactions cut into parts, one row per user."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from rankwise.checks import check_choice, check_count, check_share
from rankwise.data.interactions import Interactions
from rankwise.data.mapped import join_pieces
from rankwise.data.parts import Split, require_labels
from rankwise.data.schema import DataNote
from rankwise.data.sparse import PAIRS_AT_ONCE, SparseRows, blocks_of_rows

__all__ = [
    "InteractionPart",
    "active_users",
    "cut_histories",
    "drop_known",
    "drop_repeats",
    "histories",
    "hold_out",
    "leave_one_out",
    "number_like",
]


@dataclass(frozen=True)
class InteractionPart:
    """U users: the items that each is known to have chosen, and those that a ranking of all others should put first.

    In the training part both are the same.

    Attributes:
        known: (U, items) 1 for the known items of each user: what a model by history takes. Rankings leave them out,
            unless they are wanted.
        wanted: (U, items) 1 for the items to be ranked first; None if they are not given.
        users: (U,) index of each user among those of the schema, -1 for a new user.
        user_names: U names; item_names: names of the columns.
    """

    known: SparseRows
    wanted: SparseRows | None
    users: Tensor
    user_names: tuple[str, ...]
    item_names: tuple[str, ...]

    @property
    def labels(self) -> SparseRows:
        """Return the wanted items; raise an error if they are not given."""
        return require_labels(self.wanted)

    @property
    def row_names(self) -> tuple[str, ...]:
        """Return the names of the rows of scores: the users."""
        return self.user_names

    @property
    def output_names(self) -> tuple[str, ...]:
        """Return the names of the columns of scores: the items."""
        return self.item_names

    def __len__(self) -> int:
        return len(self.known)

    def take(self, rows: Tensor) -> InteractionPart:
        """Return these users only, in this order."""
        wanted = None if self.wanted is None else self.wanted.take(rows)
        names = tuple(self.user_names[row] for row in rows.tolist())
        return InteractionPart(self.known.take(rows), wanted, self.users[rows], names, self.item_names)

    def join(self, later: InteractionPart) -> InteractionPart:
        """Return a part to train on with the pairs of this one and those that are wanted in a later one.

        The later part has the users of this one, perhaps with new ones behind them, see `cut_histories`.
        """
        rows, columns = (
            torch.cat([getattr(each, name) for each in (self.known, later.labels)]) for name in ("rows", "columns")
        )
        both = SparseRows.of_pairs(rows, columns, height=len(later), width=self.known.width)
        return replace(later, known=both, wanted=both)


def histories(interactions: Interactions) -> SparseRows:
    """Return one row per user, with a 1 for every item the user has chosen, however often.

    Example:
        >>> users, items = torch.tensor([1, 0, 1]), torch.tensor([2, 0, 2])
        >>> histories(Interactions(users, items, None, None, tuple("ab"), tuple("xyz"))).dense()
        tensor([[1., 0., 0.],
                [0., 0., 1.]])
    """
    height, width = len(interactions.user_names), len(interactions.item_names)
    return SparseRows.of_pairs(
        interactions.users, interactions.items, height=height, width=width, folder=interactions.folder
    )


def cut_histories(split: Split[Interactions]) -> Split[InteractionPart]:
    """Return the parts of interactions that are cut: what is known and what is wanted in each.

    In the training part the training pairs are both known and wanted; in the validation part the training pairs are
    known, in the test part training and validation pairs. A wanted pair that is known is left out with a `DataNote`.

    Args:
        split: with all three parts. Users and items have the same numbers in all; validation and test may have users
            of their own behind those of the training part, see `number_like`.

    Example:
        >>> users, items = torch.zeros(4, dtype=torch.int64), torch.arange(4)
        >>> pairs = Interactions(users, items, None, items, ("ann",), tuple("wxyz"))
        >>> parts = cut_histories(leave_one_out(pairs, by="time"))
        >>> parts.test.known.dense().tolist(), parts.test.wanted.dense().tolist()
        ([[1.0, 1.0, 1.0, 0.0]], [[0.0, 0.0, 0.0, 1.0]])
    """
    train, validation, test = (split.part(name) for name in ("train", "validation", "test"))
    for name, each in (("validation", validation), ("test", test)):
        if each.user_names[: len(train.user_names)] != train.user_names or each.item_names != train.item_names:
            raise ValueError(f"{name}: expected the users and items of the training part; number_like gives them")
    known = histories(train)
    both = Interactions(
        join_pieces([train.users, validation.users], train.folder),
        join_pieces([train.items, validation.items], train.folder),
        None,
        None,
        test.user_names,
        test.item_names,
        train.folder,
    )
    new_users = len(validation.user_names) > len(known)
    later = histories(replace(train, user_names=validation.user_names)) if new_users else known
    return Split(
        InteractionPart(known, known, torch.arange(len(known)), train.user_names, train.item_names),
        _later_part("validation", validation, later, len(known)),
        _later_part("test", test, histories(both), len(known)),
    )


def _later_part(name: str, wanted: Interactions, known: SparseRows, trained: int) -> InteractionPart:
    users = torch.arange(len(wanted.user_names))
    users[trained:] = -1
    later = drop_known(name, histories(wanted), known)
    return InteractionPart(known, later, users, wanted.user_names, wanted.item_names)


def drop_known(name: str, wanted: SparseRows, known: SparseRows) -> SparseRows:
    """Return the wanted pairs without those that are known; say with a `DataNote` how many they are."""
    rows = wanted.rows
    new = ~known.contains(rows, wanted.columns)
    kept = int(new.sum())
    if kept == len(rows):
        return wanted
    warnings.warn(
        f"{name}: left out {len(rows) - kept} of {len(rows)} pairs, because the user is already known to have "
        "chosen the item",
        DataNote,
        stacklevel=4,
    )
    return SparseRows.of_pairs(rows[new], wanted.columns[new], height=len(wanted), width=wanted.width)


def drop_repeats(interactions: Interactions) -> Interactions:
    """Return every pair once, the last time it occurs; say with a `DataNote` how many were repeated.

    Example:
        >>> users, items = torch.tensor([0, 0, 1]), torch.tensor([2, 2, 2])
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")
        ...     drop_repeats(Interactions(users, items, None, None, tuple("ab"), tuple("xyz"))).users
        tensor([0, 1])
    """
    kept = torch.zeros(len(interactions), dtype=torch.bool)
    for pairs in blocks_of_rows(interactions.users, len(interactions.user_names)):
        keys = interactions.users[pairs] * len(interactions.item_names) + interactions.items[pairs]
        times = interactions.times
        order = torch.arange(len(keys)) if times is None else times[pairs].argsort(stable=True)
        order = order[keys[order].argsort(stable=True)]
        last = torch.ones(len(keys), dtype=torch.bool)
        last[:-1] = keys[order].diff() != 0
        kept[pairs[order[last]]] = True
    different = int(kept.sum())
    if different == len(interactions):
        return interactions
    warnings.warn(
        f"interactions: {len(kept) - different} of {len(kept)} pairs of a user and an item are repeated; each pair "
        "counts once, the last time",
        DataNote,
        stacklevel=3,
    )
    return interactions.take(_where(kept))


def leave_one_out(interactions: Interactions, *, by: str, seed: int = 0) -> Split[Interactions]:
    """Cut each user's last pair for the test and the one before for validation; the others are for training.

    Users with fewer than three pairs stay in training. A repeated pair counts once, see `drop_repeats`.

    Args:
        interactions: the pairs.
        by: "time" (pairs of the same time in the order of the file) or "random".
        seed: decides which pairs those are, for `by="random"`.

    Example:
        >>> zeros = torch.zeros(4, dtype=torch.int64)
        >>> seen = Interactions(zeros, torch.arange(4), None, torch.tensor([30, 10, 40, 20]), ("ann",), tuple("abcd"))
        >>> split = leave_one_out(seen, by="time")
        >>> split.train.items.tolist(), split.validation.items.tolist(), split.test.items.tolist()
        ([1, 3], [0], [2])
    """
    check_choice("by", by, ("time", "random"))
    interactions = drop_repeats(interactions)
    if by == "time":
        if interactions.times is None:
            raise ValueError("by: expected pairs with times, to cut by time, got none; by='random' needs none")
        order = interactions.times
    else:
        order = _random_order(len(interactions), seed)
    from_end = torch.empty(len(interactions), dtype=torch.int8)
    for pairs, index, count in _indices_in_histories(interactions, order):
        from_end[pairs] = torch.where(count >= 3, count - 1 - index, 2).clamp_max(2).to(torch.int8)
    return Split(*(interactions.take(_where(from_end == index)) for index in (2, 1, 0)))


def hold_out(interactions: Interactions, *, share: float, seed: int) -> tuple[Interactions, Interactions]:
    """Cut a share of each user's pairs at random (rounded; at least one pair of a user is kept).

    Where that is none, as all histories are short, one pair of some users is cut, that share of all pairs if so many
    users have two. A repeated pair counts once, see `drop_repeats`.

    Returns:
        The pairs that are kept, and those held out.

    Example:
        >>> users, items = torch.tensor([0, 0, 0, 0, 1]), torch.tensor([0, 1, 2, 3, 3])
        >>> kept, held = hold_out(Interactions(users, items, None, None, tuple("ab"), tuple("wxyz")), share=0.5, seed=0)
        >>> kept.users.tolist(), held.users.tolist()
        ([0, 0, 1], [0, 0])
    """
    check_share("share", share)
    interactions = drop_repeats(interactions)
    order = _random_order(len(interactions), seed)
    held, first = (torch.zeros(len(interactions), dtype=torch.bool) for _ in range(2))
    for pairs, index, count in _indices_in_histories(interactions, order):
        held[pairs] = index < (count * share).round().long().minimum(count - 1)
        first[pairs] = (index == 0) & (count > 1)
    if share > 0 and not held.any():
        drawn = _where(first)[order[first].argsort()]
        held[drawn[: max(1, round(share * len(interactions)))]] = True
    return interactions.take(_where(~held)), interactions.take(_where(held))


def active_users(interactions: Interactions, least: int) -> Interactions:
    """Return the pairs of users who have at least `least` pairs; these users are numbered anew.

    Example:
        >>> users, items = torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1])
        >>> active_users(Interactions(users, items, None, None, ("ann", "bob"), ("x", "y")), 2).user_names
        ('bob',)
    """
    check_count("least", least)
    counts = interactions.users.bincount(minlength=len(interactions.user_names))
    active = counts >= least
    if bool(active.all()):
        return interactions
    kept = interactions.take(_where(active[interactions.users]))
    names = tuple(name for name, wanted in zip(kept.user_names, active.tolist(), strict=True) if wanted)
    return replace(kept, users=(active.cumsum(0) - 1)[kept.users], user_names=names)


def number_like(interactions: Interactions, users: tuple[str, ...], items: tuple[str, ...]) -> Interactions:
    """Return the pairs with users and items numbered by these names; those not among them come behind.

    Example:
        >>> pairs = Interactions(torch.tensor([0, 1]), torch.tensor([0, 0]), None, None, ("ann", "bob"), ("x",))
        >>> numbered = number_like(pairs, ("bob",), ("w", "x"))
        >>> numbered.users.tolist(), numbered.items.tolist(), numbered.user_names
        ([1, 0], [1, 1], ('bob', 'ann'))
    """
    if (interactions.user_names, interactions.item_names) == (users, items):
        return interactions
    all_users, user_numbers = _numbers(interactions.user_names, users)
    all_items, item_numbers = _numbers(interactions.item_names, items)
    return replace(
        interactions,
        users=_renumber(interactions.users, user_numbers, interactions.folder),
        items=_renumber(interactions.items, item_numbers, interactions.folder),
        user_names=all_users,
        item_names=all_items,
    )


def _numbers(names: tuple[str, ...], first: tuple[str, ...]) -> tuple[tuple[str, ...], Tensor]:
    """Return the names, those of `first` first, and the numbers of `names` among them."""
    together = {name: number for number, name in enumerate(dict.fromkeys((*first, *names)))}
    return tuple(together), torch.tensor([together[name] for name in names], dtype=torch.int64)


def _renumber(ids: Tensor, numbers: Tensor, folder: Path | None) -> Tensor:
    return join_pieces((numbers[block] for block in ids.split(PAIRS_AT_ONCE)), folder)


def _random_order(count: int, seed: int) -> Tensor:
    """Return the position (N,) of each pair in a random order."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    position = torch.empty(count, dtype=torch.int32 if count < 2**31 else torch.int64)
    position[order] = torch.arange(count, dtype=position.dtype)
    return position


def _indices_in_histories(interactions: Interactions, order: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield blocks of pairs: their positions, the index of each among those of its user, and how many the user has.

    Args:
        interactions: the pairs.
        order: (N,) the pairs of a user are ordered by these numbers, equal ones by position.
    """
    for pairs in blocks_of_rows(interactions.users, len(interactions.user_names)):
        users = interactions.users[pairs]
        users = users - users.min() if len(users) else users
        in_order = order[pairs].argsort(stable=True)
        in_order = in_order[users[in_order].argsort(stable=True)]
        counts = users.bincount()
        index = torch.empty_like(in_order)
        index[in_order] = torch.arange(len(in_order)) - (counts.cumsum(0) - counts)[users[in_order]]
        yield pairs, index, counts[users]


def _where(chosen: Tensor) -> Tensor:
    return chosen.nonzero().squeeze(1)
