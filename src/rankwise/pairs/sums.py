"""Pair sums with exact gradients, in O(n log n) or O(n) for surrogates that allow it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from rankwise.checks import check_choice, check_same_shape, is_traced, on_host, wide_dtype
from rankwise.lists import ItemMask, Lists, Sides, anchors_that_count, put_back, take
from rankwise.pairs.by_cells import cell_sums, count_cells
from rankwise.pairs.by_sorting import SortedPairs, sort_pairs
from rankwise.surrogates import OneSidedHuber, Sigmoid, Slope, Surrogate

__all__ = [
    "DEVICE_CHUNK",
    "RecordedSums",
    "mean_over_negatives",
    "pair_sums",
    "pair_sums_within",
    "recorded_pair_sums",
]


def pair_sums(
    anchors: Tensor,
    others: Tensor,
    surrogate: Surrogate,
    *,
    weights: Tensor | None = None,
    anchor_mask: Tensor | None = None,
    other_mask: Tensor | None = None,
    method: str = "auto",
) -> Tensor:
    """Compute sum_j w_j l(a_i - b_j) over the others j of each list, for every anchor i.

    The sums are exact, and twice differentiable in `anchors`, `others` and `weights`.

    Args:
        anchors: (Q, A) scores a, others: (Q, L) scores b; (A,) and (L,) for one list.
        surrogate: the function l, from `rankwise.surrogates`.
        weights: (Q, L) weights w of the others; None counts each once.
        anchor_mask: (Q, A), other_mask: (Q, L): False for masked items. The sum of a masked anchor is 0.
        method: "sorted" needs O(n log n) time and O(n) memory and a surrogate of polynomial pieces (one-sided Huber,
            hinge, squared hinge); "cells" needs O(n) time, a `Sigmoid`, and scores that span few of its temperatures;
            "dense" computes all pairs in chunks; "auto" takes the cheapest one. All give the same result up to
            rounding.

    Returns:
        (Q, A) sums in the dtype of `anchors`.

    Example:
        >>> from rankwise.surrogates import Hinge
        >>> pair_sums(torch.tensor([1.0, 3.0]), torch.tensor([0.5, 2.0]), Hinge(1.0))
        tensor([2.5000, 0.0000])
    """
    check_choice("method", method, ("auto", "sorted", "cells", "dense"))
    if anchors.ndim == 1 and others.ndim == 1:
        rows = (None if t is None else t[None] for t in (weights, anchor_mask, other_mask))
        w, am, om = rows
        return pair_sums(
            anchors[None], others[None], surrogate, weights=w, anchor_mask=am, other_mask=om, method=method
        )[0]
    if anchors.ndim != 2 or others.ndim != 2 or len(anchors) != len(others):
        raise ValueError(
            f"others: expected (Q, L) beside anchors (Q, A) {tuple(anchors.shape)}, got {tuple(others.shape)}"
        )
    return _pair_sums(anchors, None, others, surrogate, weights, anchor_mask, other_mask, method)


def pair_sums_within(
    scores: Tensor,
    index: Tensor | None,
    surrogate: Surrogate,
    *,
    weights: Tensor | None = None,
    anchor_mask: Tensor | None = None,
    other_mask: Tensor | ItemMask | None = None,
) -> Tensor:
    """Compute `pair_sums` for anchors that are items of the lists, with one gradient for scores as anchors and others.

    Args:
        scores: (Q, L); index: (Q, A) indices of the anchors in `scores`, None if all items are anchors.
        surrogate, weights, anchor_mask, other_mask: as in `pair_sums`; the last may be an `ItemMask`.

    Example:
        >>> from rankwise.surrogates import Hinge
        >>> pair_sums_within(torch.tensor([[0.5, 2.0]]), torch.tensor([[1]]), Hinge(1.0))
        tensor([[1.]])
    """
    return _pair_sums(None, index, scores, surrogate, weights, anchor_mask, other_mask, "auto")


@dataclass(frozen=True)
class RecordedSums:
    """One call of `pair_sums` or `pair_sums_within`, see `recorded_pair_sums`.

    Attributes:
        sums: (Q, A) the result.
        inputs: the tensors of scores it depends on: the anchors (Q, A) and the others (Q, L), or the others alone
            if the anchors are some of them.
    """

    sums: Tensor
    inputs: tuple[Tensor, ...]
    _index: Tensor | None
    _weights: Tensor | None
    _anchor_mask: Tensor | None
    _item_mask: ItemMask
    surrogate: Surrogate

    @torch.no_grad()
    def curvature(self, grad: Tensor) -> tuple[Tensor, ...]:
        """Return the diagonal of the second derivative of sum_i grad_i sums_i, in the shape of each of `inputs`.

        Only the curvature of the surrogate counts, not that of `grad` (Q, A), as in Gauss-Newton steps.
        """
        if self._anchor_mask is not None:
            grad = grad.masked_fill(~self._anchor_mask, 0)
        others, second = self.inputs[-1], Slope(Slope(self.surrogate))
        anchors = self.inputs[0] if len(self.inputs) == 2 else take(others, self._index)
        weights, masks = self._weights, (self._anchor_mask, self._item_mask)
        of_anchors = grad * _pair_sums(anchors, None, others, second, weights, *masks, "auto")
        of_others = _pair_sums(-others, None, -anchors, second, grad, self._item_mask.mask, self._anchor_mask, "auto")
        if weights is not None:
            of_others = of_others * weights
        if len(self.inputs) == 2:
            return of_anchors, of_others
        # A pair of an item with itself is constant; it was counted once as an anchor and once as an other.
        own = torch.ones_like(anchors) if weights is None else take(weights, self._index)
        if self._item_mask.mask is not None:
            own = own * take(self._item_mask.mask, self._index)
        of_anchors = of_anchors - 2 * grad * own * second.value(torch.zeros_like(anchors))
        return (of_others + put_back(of_anchors, self._index, others.shape[1]),)


_RECORDS: ContextVar[list[RecordedSums] | None] = ContextVar("pair sums", default=None)


@contextmanager
def recorded_pair_sums() -> Iterator[list[RecordedSums]]:
    """Record the pair sums that are computed with a gradient in a block.

    Example:
        >>> from rankwise.surrogates import SquaredHinge
        >>> scores = torch.tensor([[0.5, 2.0]], requires_grad=True)
        >>> with recorded_pair_sums() as records:
        ...     sums = pair_sums_within(scores, torch.tensor([[0]]), SquaredHinge(1.0))
        >>> records[0].curvature(torch.ones(1, 1))
        (tensor([[2., 2.]]),)
    """
    records: list[RecordedSums] = []
    token = _RECORDS.set(records)
    try:
        yield records
    finally:
        _RECORDS.reset(token)


def mean_over_negatives(lists: Lists, sides: Sides, surrogate: Surrogate) -> Tensor:
    """Compute the mean of l(s_i - s_j) over the negatives j of a list, for each of its positives i: (Q, A).

    The means in the padding are any finite numbers.

    Args:
        lists: the scores and item weights; sides: the positives and negatives of these lists, see `split_sides`.
    """
    sums = pair_sums_within(
        lists.scores,
        sides.index,
        surrogate,
        weights=None if lists.weights is None else lists.weights.to(lists.scores.dtype),
        anchor_mask=anchors_that_count(sides.index, sides.padding),
        other_mask=sides.negatives,
    )
    return sums / sides.negative_weight[:, None]


def _pair_sums(
    anchors: Tensor | None,
    index: Tensor | None,
    others: Tensor,
    surrogate: Surrogate,
    weights: Tensor | None,
    anchor_mask: Tensor | None,
    other_mask: Tensor | ItemMask | None,
    method: str,
) -> Tensor:
    at = _positions(anchors, index, others)
    for name, value, like, shape in (
        ("weights", weights, "others", others.shape),
        ("other_mask", None if isinstance(other_mask, ItemMask) else other_mask, "others", others.shape),
        ("anchor_mask", anchor_mask, "anchors", at.shape),
    ):
        if value is not None:
            check_same_shape(name, value, like, shape)
    item_mask = other_mask if isinstance(other_mask, ItemMask) else ItemMask(other_mask)
    if method == "auto" and is_traced(others) and _operator_pays(at, others, weights, surrogate):
        from rankwise.pairs.operators import add_pair_sums

        own = take(others, index) if anchors is None else anchors
        return add_pair_sums(own, others, surrogate, weights, anchor_mask, item_mask.mask)
    if method == "auto":
        method = choose_method(anchors, index, others, surrogate, anchor_mask, item_mask)
    if method == "sorted" and surrogate.pieces is None:
        raise ValueError(f'method: "sorted" needs a surrogate of polynomial pieces, got {type(surrogate).__name__}')
    if method == "cells" and not isinstance(surrogate, Sigmoid):
        raise ValueError(f'method: "cells" needs a Sigmoid, got {type(surrogate).__name__}')
    if method == "cells" and not at.numel() * others.numel():
        method = "dense"
    if method in ("dense", "kernel") and anchors is not None and not _any_gradient(anchors, others, weights):
        values, _ = compute_sums(anchors, others, weights, anchor_mask, item_mask, surrogate, method)
        return values if anchor_mask is None else values.masked_fill_(~anchor_mask, 0)
    sums: Tensor = _PairSums.apply(anchors, index, others, weights, anchor_mask, item_mask, surrogate, method)
    records = _RECORDS.get()
    if records is not None and sums.requires_grad:
        inputs = (others,) if anchors is None else (anchors, others)
        records.append(RecordedSums(sums, inputs, index, weights, anchor_mask, item_mask, surrogate))
    return sums


def _positions(anchors: Tensor | None, index: Tensor | None, others: Tensor) -> Tensor:
    """Return a tensor in the shape of the anchors: given ones, indices of some others, or all others."""
    if anchors is not None:
        return anchors
    return others if index is None else index


def _any_gradient(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def _operator_pays(anchors: Tensor, others: Tensor, weights: Tensor | None, surrogate: Surrogate) -> bool:
    """Return whether a compiled loop over all pairs takes longer than an operator that drops masked anchors."""
    cost = 16 if surrogate.pieces is None else 1 if weights is None else 4
    return others.device.type == "cpu" and cost * anchors.numel() * others.shape[1] > _FUSED


def choose_method(
    anchors: Tensor | None,
    index: Tensor | None,
    others: Tensor,
    surrogate: Surrogate,
    anchor_mask: Tensor | None,
    item_mask: ItemMask,
) -> str:
    """Return the cheapest method."""
    if _kernel_pays(_positions(anchors, index, others), others, surrogate):
        return "kernel"
    # The methods other than "dense" subtract large sums from each other, which needs float64.
    if wide_dtype(others.device) != torch.float64:
        return "dense"
    at = _positions(anchors, index, others)
    if isinstance(surrogate, Sigmoid) and _cells_pay(surrogate, anchors, index, others, anchor_mask, item_mask):
        return "cells"
    return _cheaper(surrogate, len(at), at.shape[1], others.shape[1], on_cpu=on_host(others))


def _kernel_pays(anchors: Tensor, others: Tensor, surrogate: Surrogate) -> bool:
    """Return whether a Triton kernel runs and is the cheapest method: for float32 on CUDA, unless pairs are many."""
    if others.device.type != "cuda" or others.dtype != torch.float32 or is_traced(others) or not _has_triton():
        return False
    from rankwise.pairs.by_kernel import KINDS

    return type(surrogate) in KINDS and anchors.numel() * others.shape[1] <= _KERNEL


@cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def _cheaper(surrogate: Surrogate, lists: int, anchors: int, others: int, *, on_cpu: bool = True) -> str:
    """Return the cheaper method.

    Costs are in nanoseconds on two CPU cores, about as `benchmarks/speed/crossover.py` fits them (1.9, 39, 480,000). On
    an accelerator all pairs of one chunk take a few kernels.
    """
    if surrogate.pieces is None:
        return "dense"
    if not on_cpu:
        return "dense" if lists * anchors * others <= DEVICE_CHUNK else "sorted"
    dense = 2.0 * lists * anchors * others
    by_sorting = 500_000 + 50.0 * lists * (anchors + others)
    return "dense" if dense <= by_sorting else "sorted"


def _cells_pay(
    surrogate: Sigmoid,
    anchors: Tensor | None,
    index: Tensor | None,
    others: Tensor,
    anchor_mask: Tensor | None,
    item_mask: ItemMask,
) -> bool:
    """Return whether "cells" is cheaper than "dense"; in nanoseconds on a CPU core, for value and gradients."""
    at = _positions(anchors, index, others)
    dense, cells = 4.0 * at.numel() * others.shape[1], 2_000_000 + 250.0 * (at.numel() + others.numel())
    # Counting cells synchronises the host with an accelerator, which must be worth it.
    few = others.device.type != "cpu" and at.numel() * others.shape[1] <= 16 * DEVICE_CHUNK
    if dense <= cells or few or is_traced(others):
        return False
    scores = take(others, index) if anchors is None else anchors
    scores, others = _overwrite_padding(scores.detach(), others.detach(), anchor_mask, item_mask)
    return dense > cells + 50_000 * len(others) * count_cells(scores, others, surrogate.temperature)


def _overwrite_padding(
    anchors: Tensor, others: Tensor, anchor_mask: Tensor | None, item_mask: ItemMask
) -> tuple[Tensor, Tensor]:
    """Return anchors and others with copies of items in the padding, so that its values do not widen the range."""
    if item_mask.mask is not None:
        others = _overwrite_masked(others, item_mask.mask)
    if anchor_mask is not None:
        anchors = torch.where(anchor_mask, anchors, others[:, :1])
    return anchors, others


def _overwrite_masked(others: Tensor, mask: Tensor) -> Tensor:
    """Return the others with copies of the best one in the padding, so that its values do not widen the range."""
    best = others.masked_fill(~mask, -torch.inf).amax(1, keepdim=True) if others.shape[1] else others
    return torch.where(mask, others, best.masked_fill(best.isinf(), 0))


def _kept_weights(weights: Tensor | None, others: Tensor, item_mask: ItemMask) -> Tensor | None:
    """Return the weights of the others, 0 for masked ones; None if all count once."""
    if item_mask.mask is None:
        return weights
    return item_mask.mask.to(others.dtype) if weights is None else weights * item_mask.mask


class _PairSums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        anchors: Tensor | None,
        index: Tensor | None,
        others: Tensor,
        weights: Tensor | None,
        anchor_mask: Tensor | None,
        item_mask: ItemMask,
        surrogate: Surrogate,
        method: str,
    ) -> Tensor:
        ctx.surrogate, ctx.method, ctx.item_mask = surrogate, method, item_mask
        absent = None if anchor_mask is None else ~anchor_mask
        given = index, anchor_mask, absent, anchors, others, weights
        if anchors is None:
            anchors = take(others, index)
        sums, saved = compute_sums(anchors, others, weights, anchor_mask, item_mask, surrogate, method)
        if absent is not None:
            sums.masked_fill_(absent, 0)
        ctx.save_for_backward(*given, *saved)
        return sums

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        index, anchor_mask, absent, given_anchors, given_others, weights, *saved = ctx.saved_tensors
        need_weights = ctx.needs_input_grad[3]
        if absent is not None:
            grad = grad.masked_fill(absent, 0)
        if torch.is_grad_enabled():
            of_anchors, of_others, of_weights = _gradients_as_pair_sums(
                grad,
                take(given_others, index) if given_anchors is None else given_anchors,
                given_others,
                weights,
                anchor_mask,
                ctx.item_mask,
                ctx.surrogate,
                need_weights,
            )
        else:
            of_anchors, of_others, of_weights = compute_gradients(
                grad, saved, weights, anchor_mask, ctx.item_mask, ctx.surrogate, ctx.method, need_weights
            )
        if given_anchors is None:
            of_others = of_others + of_anchors if index is None else of_others.scatter_add_(1, index, of_anchors)
            return None, None, of_others, of_weights, None, None, None, None
        return of_anchors, None, of_others, of_weights, None, None, None, None


def compute_sums(
    anchors: Tensor,
    others: Tensor,
    weights: Tensor | None,
    anchor_mask: Tensor | None,
    item_mask: ItemMask,
    surrogate: Surrogate,
    method: str,
) -> tuple[Tensor, tuple[Tensor | None, ...]]:
    """Compute the sums (Q, A), and the tensors from which `compute_gradients` computes their gradients.

    The sums of masked anchors are undefined.
    """
    saved: tuple[Tensor | None, ...]
    if method == "dense":
        others = item_mask.fill(others)
        dense = fused_sums if is_traced(others) else chunk_sums
        sums, saved = dense(anchors, others, weights, anchor_mask, item_mask, surrogate), (anchors, others)
    elif method == "kernel":
        from rankwise.pairs.by_kernel import kernel_sums

        others = item_mask.fill(others)
        sums, slopes = kernel_sums(anchors, others, weights, surrogate)
        saved = slopes, anchors, others
    elif isinstance(surrogate, Sigmoid) and method == "cells":
        anchors, others = _overwrite_padding(anchors, others, anchor_mask, item_mask)
        kept = _kept_weights(weights, others, item_mask)
        sums, slopes = (t.to(anchors.dtype) for t in cell_sums(anchors, others, kept, surrogate.temperature))
        saved = slopes, anchors, others
    else:
        assert surrogate.pieces is not None
        if item_mask.mask is not None:
            others = _overwrite_masked(others, item_mask.mask)
        pairs = sort_pairs(anchors, others, _kept_weights(weights, others, item_mask), surrogate.pieces)
        sums, slopes = (t.to(anchors.dtype) for t in pairs.sums())
        saved = slopes, *pairs.tensors()
    return sums, saved


def compute_gradients(
    grad: Tensor,
    saved: Sequence[Any],
    weights: Tensor | None,
    anchor_mask: Tensor | None,
    item_mask: ItemMask,
    surrogate: Surrogate,
    method: str,
    need_weights: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Compute the gradients for anchors, others and weights from that of the sums, 0 for masked anchors."""
    if method == "dense":
        anchors, others = saved
        dense = fused_gradients if is_traced(others) else chunk_gradients
        return dense(grad, anchors, others, weights, anchor_mask, item_mask, surrogate, need_weights)
    of_weights: Tensor | None
    if method == "kernel":
        from rankwise.pairs.by_kernel import kernel_gradients

        slopes, anchors, others = saved
        of_others, of_weights = kernel_gradients(grad, anchors, others, surrogate)
        return (
            grad * slopes,
            of_others if weights is None else of_others * weights,
            of_weights if need_weights else None,
        )
    if isinstance(surrogate, Sigmoid) and method == "cells":
        slopes, anchors, others = saved
        # The gradient of an other is a pair sum over the anchors: b - a = (-a) - (-b).
        values, changes = cell_sums(-others, -anchors, grad, surrogate.temperature)
        kept = _kept_weights(weights, others, item_mask)
        of_others = (changes if kept is None else changes * kept).neg_()
        of_weights = values if need_weights else None
    else:
        slopes, depths, sorted_weights, order, anchors, tail, cell, stop = saved
        assert surrogate.pieces is not None
        pairs = SortedPairs(depths, sorted_weights, order, anchors, tail, cell, stop, surrogate.pieces)
        of_others, of_weights = pairs.gradients(grad, need_weights)
    if of_weights is not None:
        of_weights = of_weights.to(grad.dtype)
        if item_mask.mask is not None:
            of_weights = of_weights * item_mask.mask
    return grad * slopes, of_others.to(grad.dtype), of_weights


def _gradients_as_pair_sums(
    grad: Tensor,
    anchors: Tensor,
    others: Tensor,
    weights: Tensor | None,
    anchor_mask: Tensor | None,
    item_mask: ItemMask,
    surrogate: Surrogate,
    need_weights: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Compute the gradients for anchors, others and weights by pair sums, which can be differentiated again.

    The gradient of an other is a pair sum over the anchors: a - b = (-b) - (-a).
    """
    slope = Slope(surrogate)
    of_anchors = grad * _pair_sums(anchors, None, others, slope, weights, anchor_mask, item_mask, "auto")

    def over_anchors(function: Surrogate) -> Tensor:
        return _pair_sums(-others, None, -anchors, function, grad, item_mask.mask, anchor_mask, "auto")

    of_others = -over_anchors(slope)
    if weights is not None:
        of_others = of_others * weights
    return of_anchors, of_others, over_anchors(surrogate) if need_weights else None


# Elements of one chunk per thread: 512 KiB in float32, so that a few of them fit the L2 cache of a core.
_CHUNK = 2**17
# Elements of one chunk on an accelerator: 128 MiB in float32.
DEVICE_CHUNK = 2**25
# Pairs up to which the kernel is taken: a few milliseconds of a large GPU's arithmetic, about what sorting takes there.
_KERNEL = 2**32
# Pairs that a compiled loop on the CPU computes in about the time of one operator, forward and backward pass.
_FUSED = 2**20


def chunk_sums(
    anchors: Tensor,
    others: Tensor,
    weights: Tensor | None,
    anchor_mask: Tensor | None,
    item_mask: ItemMask,
    surrogate: Surrogate,
) -> Tensor:
    """Compute sum_j w_j l(a_i - b_j) over the unmasked others j, (Q, A); sums of masked anchors are undefined.

    `others` come from `item_mask.fill`.
    """
    sums = torch.empty_like(anchors)
    raw, unit = (surrogate.raw, surrogate.unit) if isinstance(surrogate, OneSidedHuber) else (surrogate.value, 1.0)
    for lists, last in _list_chunks(anchors, others, anchor_mask):
        chunk = _select(others, lists).unsqueeze(1)
        for items in _anchor_chunks(last, others):
            difference = item_mask.hide(_select(anchors, lists, items).unsqueeze(2) - chunk, lists)
            torch.sum(_weighted(raw(difference), weights, lists), -1, out=_select(sums, lists, items))
    return sums if unit == 1 else sums.mul_(unit)


def chunk_gradients(
    grad: Tensor,
    anchors: Tensor,
    others: Tensor,
    weights: Tensor | None,
    anchor_mask: Tensor | None,
    item_mask: ItemMask,
    surrogate: Surrogate,
    need_weights: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Compute the gradients for the anchors (Q, A), the others (Q, L) and, if needed, the weights (Q, L).

    `grad` is 0 for masked anchors; `others` come from `item_mask.fill`.
    """
    # Chunks on the CPU end at the last unmasked anchor of their lists.
    start = torch.zeros_like if on_host(anchors) else torch.empty_like
    grad_anchors, grad_others = start(anchors), torch.empty_like(others)
    grad_weights = torch.zeros_like(others) if need_weights else None
    for lists, last in _list_chunks(anchors, others, anchor_mask):
        chunk, row = _select(others, lists).unsqueeze(1), _select(grad_others, lists).unsqueeze(1)
        for items in _anchor_chunks(last, others):
            difference = item_mask.hide(_select(anchors, lists, items).unsqueeze(2) - chunk, lists)
            upstream = _select(grad, lists, items).unsqueeze(1)
            if grad_weights is not None:
                of_weights = _select(grad_weights, lists).unsqueeze(1)
                of_weights.baddbmm_(upstream, surrogate.value(difference.clone()))
            slope = surrogate.slope(difference)
            row.baddbmm_(upstream, slope, beta=1 if items.start else 0, alpha=-1)
            torch.sum(_weighted(slope, weights, lists), -1, out=_select(grad_anchors, lists, items))
        if weights is not None:
            row.mul_(_select(weights, lists).unsqueeze(1))
    if not anchors.shape[1]:
        grad_others.zero_()
    return grad_anchors.mul_(grad), grad_others, grad_weights


def fused_sums(
    anchors: Tensor,
    others: Tensor,
    weights: Tensor | None,
    anchor_mask: Tensor | None,
    item_mask: ItemMask,
    surrogate: Surrogate,
) -> Tensor:
    """Compute `chunk_sums` for torch.compile, which fuses all of it into one loop without storing the pairs."""
    values = surrogate.value(anchors.unsqueeze(2) - others.unsqueeze(1))
    return (values if weights is None else values * weights.unsqueeze(1)).sum(2)


def fused_gradients(
    grad: Tensor,
    anchors: Tensor,
    others: Tensor,
    weights: Tensor | None,
    anchor_mask: Tensor | None,
    item_mask: ItemMask,
    surrogate: Surrogate,
    need_weights: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Compute `chunk_gradients` for torch.compile, see `fused_sums`."""
    difference, upstream = anchors.unsqueeze(2) - others.unsqueeze(1), grad.unsqueeze(2)
    slope = surrogate.slope(difference.clone())
    of_anchors = grad * (slope if weights is None else slope * weights.unsqueeze(1)).sum(2)
    of_others = -(upstream * slope).sum(1)
    of_weights = (upstream * surrogate.value(difference)).sum(1) if need_weights else None
    return of_anchors, of_others if weights is None else of_others * weights, of_weights


def _weighted(values: Tensor, weights: Tensor | None, lists: slice) -> Tensor:
    """Multiply by the weights, in place."""
    # A batched matrix-vector product instead of product and sum would be slower and less accurate.
    return values if weights is None else values.mul_(_select(weights, lists).unsqueeze(1))


def _select(values: Tensor, lists: slice, items: slice | None = None) -> Tensor:
    """Return a view of some items (None: all) of some lists; skip the slicing if that is the whole tensor."""
    if lists.start > 0 or lists.stop < values.shape[0]:
        values = values[lists]
    return values if items is None or items == slice(0, values.shape[1]) else values[:, items]


def _list_chunks(anchors: Tensor, others: Tensor, anchor_mask: Tensor | None) -> Iterator[tuple[slice, int]]:
    """Yield the lists of each chunk and the largest number of anchors among them."""
    width = anchors.shape[1]
    rows = max(1, _chunk(others.device) // max(1, width * others.shape[1]))
    # If one list fills several chunks, those after its last anchor are skipped. Several short lists share a chunk.
    on_cpu = on_host(others)
    ends = None if anchor_mask is None or rows > 1 or not on_cpu else _ends(anchor_mask)
    for first in range(0, len(anchors), rows):
        yield slice(first, first + rows), width if ends is None else ends[first]


def _ends(mask: Tensor) -> list[int]:
    """Return the number of elements up to the last item of each list, at least 1."""
    numbers = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    ends: list[int] = (mask * numbers).amax(1).clamp_min(1).tolist()
    return ends


def _anchor_chunks(last: int, others: Tensor) -> Iterator[slice]:
    items = max(1, min(last, _chunk(others.device) // max(1, others.shape[1])))
    return (slice(first, min(first + items, last)) for first in range(0, last, items))


def _chunk(device: torch.device) -> int:
    return _CHUNK * torch.get_num_threads() if device.type == "cpu" else DEVICE_CHUNK
