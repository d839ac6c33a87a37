"""Lists that live on one rank: nothing is gathered, and the mean over the lists of all ranks takes one collective."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from rankwise.distributed import list_owners, raise_everywhere, world_size
from rankwise.estimators.table import IdTable

__all__ = ["join_list_state", "join_rows", "mean_over_ranks", "own_list_state", "own_tables"]


def mean_over_ranks(
    per_list: Callable[[], tuple[Tensor, Tensor]], without: Callable[[], None], scores: Tensor
) -> Tensor:
    """Return the mean of the defined lists of all ranks; its gradient is that of the lists of this rank.

    The gradient is multiplied by the number of ranks, so that the average over ranks, which data-parallel training
    takes, is the gradient of the mean. If a rank fails, every rank raises its error.

    Args:
        per_list: returns values (Q,) of the lists of this rank, and which of them are defined (Q,).
        without: called instead if this rank has no list in the batch.
        scores: of this rank.
    """
    total, failure = scores.sum() * 0, None
    count = torch.zeros((), device=scores.device)
    try:
        if scores.numel():
            values, valid = per_list()
            total, count = torch.where(valid, values, 0).sum(), valid.sum()
        else:
            without()
    except (TypeError, ValueError, RuntimeError) as problem:
        failure = problem
    failed = torch.tensor(float(failure is not None), device=scores.device)
    shared = torch.stack([each.detach().double() for each in (total, count, failed)])
    dist.all_reduce(shared)
    if shared[2] > 0:
        raise_everywhere(failure)
    lists = shared[1].clamp_min(1)
    own = total * (world_size() / lists).to(total.dtype)
    return (shared[0] / lists).to(total.dtype) + (own - own.detach())


def join_list_state(loss: nn.Module) -> dict[str, Any]:
    """Return the state of a loss with the rows of all ranks; every process must call it at the same time."""
    own = {name: value.cpu() if isinstance(value, Tensor) else value for name, value in loss.state_dict().items()}
    states: list[dict[str, Any]] = [{}] * world_size()
    dist.all_gather_object(states, own)
    return {**states[0], **join_rows(loss, states)}


def join_rows(loss: nn.Module, states: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
    """Return the tables of a loss with the rows of several states, in the order of the ids, whoever had them."""
    joined = {}
    for ids, rows in _tables(loss):
        keys = torch.cat([state[ids] for state in states])
        order = torch.from_numpy(_rising(keys))
        joined[ids], joined[rows] = keys[order], torch.cat([state[rows] for state in states])[order]
    return joined


def own_tables(loss: nn.Module) -> dict[str, Tensor]:
    """Return ids and rows of the tables of a loss on this rank, by their names in its state."""
    state = loss.state_dict()
    return {name: state[name].cpu() for names in _tables(loss) for name in names}


def own_list_state(loss: nn.Module, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of a loss with the rows of the lists of this rank only."""
    kept = dict(state)
    for ids, rows in _tables(loss):
        lists = state[ids] if state[ids].ndim == 1 else state[ids][:, 0]
        own = torch.from_numpy(list_owners(lists.cpu().numpy(), world_size()) == dist.get_rank())
        kept[ids], kept[rows] = state[ids][own], state[rows][own]
    return kept


def _tables(loss: nn.Module) -> Iterator[tuple[str, str]]:
    """Yield the names, in the state of a loss, of the ids and rows of each of its tables."""
    for name, module in loss.named_modules():
        if isinstance(module, IdTable):
            prefix = f"{name}." if name else ""
            yield f"{prefix}ids", f"{prefix}rows"


def _rising(ids: Tensor) -> Any:
    keys = ids.numpy()
    return np.argsort(keys, kind="stable") if keys.ndim == 1 else np.lexsort(keys.T[::-1])
