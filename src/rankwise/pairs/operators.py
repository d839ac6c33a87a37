"""Pair sums as an operator in graphs of torch.compile, for the CPU.

A traced loss does not know how many anchors of a list count, so that it would compute the sums of all items. The
operator runs when the graph does: it drops the masked anchors and chooses the method, as outside of a graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rankwise import surrogates
from rankwise.graphs import register
from rankwise.lists import ItemMask, compact
from rankwise.pairs.sums import choose_method, compute_gradients, compute_sums
from rankwise.surrogates import Surrogate

__all__ = ["add_pair_sums"]


def add_pair_sums(
    anchors: Tensor,
    others: Tensor,
    surrogate: Surrogate,
    weights: Tensor | None,
    anchor_mask: Tensor | None,
    other_mask: Tensor | None,
) -> Tensor:
    """Add the sums (Q, A) to the graph that is being traced; arguments as in `pair_sums`."""
    (parameter,) = vars(surrogate).values()
    name = type(surrogate).__name__
    sums: Tensor = torch.ops.rankwise.pair_sums(
        anchors, others, weights, anchor_mask, other_mask, name, float(parameter)
    )
    return sums


def _run_sums(
    anchors: Tensor,
    others: Tensor,
    weights: Tensor | None,
    anchor_mask: Tensor | None,
    other_mask: Tensor | None,
    surrogate: str,
    parameter: float,
) -> Tensor:
    function, item_mask = _surrogate(surrogate, parameter), ItemMask(other_mask)
    if anchor_mask is None:
        return compute_sums(anchors, others, weights, None, item_mask, function, _method(anchors, others, function))[0]
    index, mask = compact(anchor_mask)
    own = anchors.gather(1, index)
    sums = compute_sums(own, others, weights, mask, item_mask, function, _method(own, others, function))[0]
    sums.masked_fill_(~mask, 0)
    return torch.zeros_like(anchors).scatter_add_(1, index, sums)


def _fake_sums(anchors: Tensor, *others: Any) -> Tensor:
    return torch.empty_like(anchors, memory_format=torch.contiguous_format)


def _run_gradients(
    grad: Tensor,
    anchors: Tensor,
    others: Tensor,
    weights: Tensor | None,
    anchor_mask: Tensor | None,
    other_mask: Tensor | None,
    surrogate: str,
    parameter: float,
    need_weights: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the gradients for anchors, others and, if needed, weights, from that of the sums."""
    function, item_mask = _surrogate(surrogate, parameter), ItemMask(other_mask)
    index, own, mask, upstream = None, anchors, anchor_mask, grad.contiguous()
    if anchor_mask is not None:
        index, mask = compact(anchor_mask)
        own, upstream = anchors.gather(1, index), grad.gather(1, index).masked_fill_(~mask, 0)
    method = _method(own, others, function)
    saved: Sequence[Tensor | None] = own, item_mask.fill(others)
    if method != "dense":
        saved = compute_sums(own, others, weights, mask, item_mask, function, method)[1]
    of_anchors, of_others, of_weights = compute_gradients(
        upstream, saved, weights, mask, item_mask, function, method, need_weights
    )
    if index is not None:
        of_anchors = torch.zeros_like(anchors).scatter_add_(1, index, of_anchors)
    return of_anchors, of_others, others.new_empty(0) if of_weights is None else of_weights


def _fake_gradients(grad: Tensor, anchors: Tensor, others: Tensor, *options: Any) -> tuple[Tensor, Tensor, Tensor]:
    like = torch.contiguous_format
    of_weights = torch.empty_like(others, memory_format=like) if options[-1] else others.new_empty(0)
    return torch.empty_like(anchors, memory_format=like), torch.empty_like(others, memory_format=like), of_weights


def _save_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.surrogate, ctx.parameter = inputs
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    need_weights = ctx.needs_input_grad[2]
    of_anchors, of_others, of_weights = torch.ops.rankwise.pair_gradients(
        grad, *ctx.saved_tensors, ctx.surrogate, ctx.parameter, need_weights
    )
    return of_anchors, of_others, of_weights if need_weights else None, None, None, None, None


def _surrogate(name: str, parameter: float) -> Surrogate:
    surrogate: Surrogate = getattr(surrogates, name)(parameter)
    return surrogate


def _method(anchors: Tensor, others: Tensor, surrogate: Surrogate) -> str:
    return choose_method(anchors, None, others, surrogate, None, ItemMask(None))


_TENSORS = "Tensor anchors, Tensor others, Tensor? weights, Tensor? anchor_mask, Tensor? other_mask"
_SURROGATE = "str surrogate, float parameter"
register(f"pair_sums({_TENSORS}, {_SURROGATE}) -> Tensor", _run_sums, _fake_sums)
register(
    f"pair_gradients(Tensor grad, {_TENSORS}, {_SURROGATE}, bool need_weights) -> (Tensor, Tensor, Tensor)",
    _run_gradients,
    _fake_gradients,
)
torch.library.register_autograd("rankwise::pair_sums", _backward, setup_context=_save_inputs)
