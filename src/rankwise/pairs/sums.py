"""Sums over all pairs of anchors and others, with exact gradients, in O(n log n) or O(n) where the surrogate allows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rankwise.checks import check_choice, check_same_shape
from rankwise.modes import wide_dtype
from rankwise.pairs.by_cells import cell_sums, count_cells
from rankwise.pairs.by_chunks import DEVICE_CHUNK, ItemMask, chunk_gradients, chunk_sums
from rankwise.pairs.by_sorting import SortedPairs, sort_pairs
from rankwise.surrogates import Sigmoid, Slope, Surrogate

__all__ = ["pair_sums", "pair_sums_within"]


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
    """Return sum_j w_j l(a_i - b_j) over the others j of each list, for every anchor i.

    Exact, and differentiable in `anchors`, `others` and `weights`, twice.

    Args:
        anchors: (Q, A) scores a, others: (Q, L) scores b. Both of one list when 1-D.
        surrogate: the function l, from `rankwise.surrogates`.
        weights: (Q, L) weights w of the others; None counts each once.
        anchor_mask: (Q, A), other_mask: (Q, L): False where there is no item. The sum of a masked anchor is 0.
        method: "sorted" needs O(n log n) time and O(n) memory and a surrogate of polynomial pieces (one-sided Huber,
            hinge, squared hinge); "cells" needs O(n) time, a `Sigmoid`, and scores that span few of its temperatures;
            "dense" goes over all pairs in chunks; "auto" takes the cheapest one. All give the same result up to
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
    places: Tensor,
    surrogate: Surrogate,
    *,
    weights: Tensor | None = None,
    anchor_mask: Tensor | None = None,
    other_mask: Tensor | ItemMask | None = None,
) -> Tensor:
    """Return `pair_sums` of anchors that are items of the lists themselves, with one gradient for both roles.

    Args:
        scores: (Q, L); places: (Q, A) the indices of the anchors among them.
        surrogate, weights, anchor_mask, other_mask: as in `pair_sums`; the last may be an `ItemMask`.

    Example:
        >>> from rankwise.surrogates import Hinge
        >>> pair_sums_within(torch.tensor([[0.5, 2.0]]), torch.tensor([[1]]), Hinge(1.0))
        tensor([[1.]])
    """
    return _pair_sums(None, places, scores, surrogate, weights, anchor_mask, other_mask, "auto")


def _pair_sums(
    anchors: Tensor | None,
    places: Tensor | None,
    others: Tensor,
    surrogate: Surrogate,
    weights: Tensor | None,
    anchor_mask: Tensor | None,
    other_mask: Tensor | ItemMask | None,
    method: str,
) -> Tensor:
    at = anchors if places is None else places
    assert at is not None
    for name, value, like, shape in (
        ("weights", weights, "others", others.shape),
        ("other_mask", None if isinstance(other_mask, ItemMask) else other_mask, "others", others.shape),
        ("anchor_mask", anchor_mask, "anchors", at.shape),
    ):
        if value is not None:
            check_same_shape(name, value, like, shape)
    item_mask = other_mask if isinstance(other_mask, ItemMask) else ItemMask(other_mask)
    if method == "auto":
        # The other methods subtract large sums from each other, which takes float64.
        exact = wide_dtype(others.device) == torch.float64
        on_cpu = others.device.type == "cpu"
        method = _cheaper(surrogate, len(at), at.shape[1], others.shape[1], on_cpu=on_cpu) if exact else "dense"
        if (
            exact
            and isinstance(surrogate, Sigmoid)
            and _cells_pay(surrogate, anchors, places, others, anchor_mask, item_mask)
        ):
            method = "cells"
    if method == "sorted" and surrogate.pieces is None:
        raise ValueError(f'method: "sorted" needs a surrogate of polynomial pieces, got {type(surrogate).__name__}')
    if method == "cells" and not isinstance(surrogate, Sigmoid):
        raise ValueError(f'method: "cells" needs a Sigmoid, got {type(surrogate).__name__}')
    if method == "cells" and not at.numel() * others.numel():
        method = "dense"
    if method == "dense" and anchors is not None and not _any_gradient(anchors, others, weights):
        alone = chunk_sums(anchors, item_mask.fill(others), weights, anchor_mask, item_mask, surrogate)
        return alone if anchor_mask is None else alone.masked_fill_(~anchor_mask, 0)
    sums: Tensor = _PairSums.apply(anchors, places, others, weights, anchor_mask, item_mask, surrogate, method)
    return sums


def _any_gradient(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def _cheaper(surrogate: Surrogate, lists: int, anchors: int, others: int, *, on_cpu: bool = True) -> str:
    """Return the cheaper method.

    Costs are in nanoseconds on two CPU cores, about as `benchmarks/speed/crossover.py` fits them (1.9, 39, 480,000). An
    accelerator takes all pairs of one chunk in a few kernels.
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
    places: Tensor | None,
    others: Tensor,
    anchor_mask: Tensor | None,
    item_mask: ItemMask,
) -> bool:
    """Return whether cells cost less than all pairs; in nanoseconds on a CPU core, for value and gradients."""
    at = anchors if places is None else places
    assert at is not None
    dense, cells = 4.0 * at.numel() * others.shape[1], 2_000_000 + 250.0 * (at.numel() + others.numel())
    # To count cells the host waits for an accelerator, which has to pay.
    if dense <= cells or (others.device.type != "cpu" and at.numel() * others.shape[1] <= 16 * DEVICE_CHUNK):
        return False
    scores = at if places is None else others.gather(1, places)
    scores, others = _without_fillers(scores.detach(), others.detach(), anchor_mask, item_mask)
    return dense > cells + 50_000 * len(others) * count_cells(scores, others, surrogate.temperature)


def _without_fillers(
    anchors: Tensor, others: Tensor, anchor_mask: Tensor | None, item_mask: ItemMask
) -> tuple[Tensor, Tensor]:
    """Return anchors and others with empty slots as copies of items, so that what they held stretches no range."""
    if item_mask.mask is not None:
        others = _without_filler(others, item_mask.mask)
    if anchor_mask is not None:
        anchors = torch.where(anchor_mask, anchors, others[:, :1])
    return anchors, others


def _without_filler(others: Tensor, mask: Tensor) -> Tensor:
    """Empty slots as copies of the best other, so that what they held cannot stretch the range of the scores."""
    best = others.masked_fill(~mask, -torch.inf).amax(1, keepdim=True) if others.shape[1] else others
    return torch.where(mask, others, best.masked_fill(best.isinf(), 0))


def _kept_weights(weights: Tensor | None, others: Tensor, item_mask: ItemMask) -> Tensor | None:
    """Return the weights of the others, 0 for masked ones; None where all count once."""
    if item_mask.mask is None:
        return weights
    return item_mask.mask.to(others.dtype) if weights is None else weights * item_mask.mask


class _PairSums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        anchors: Tensor | None,
        places: Tensor | None,
        others: Tensor,
        weights: Tensor | None,
        anchor_mask: Tensor | None,
        item_mask: ItemMask,
        surrogate: Surrogate,
        method: str,
    ) -> Tensor:
        ctx.surrogate, ctx.method, ctx.item_mask = surrogate, method, item_mask
        given = places, anchor_mask, anchors, others, weights
        if places is not None:
            anchors = others.gather(1, places)
        assert anchors is not None
        if method == "dense":
            others = item_mask.fill(others)
            sums = chunk_sums(anchors, others, weights, anchor_mask, item_mask, surrogate)
            ctx.save_for_backward(*given, anchors, others)
        elif isinstance(surrogate, Sigmoid) and method == "cells":
            anchors, others = _without_fillers(anchors, others, anchor_mask, item_mask)
            kept = _kept_weights(weights, others, item_mask)
            sums, slopes = (t.to(anchors.dtype) for t in cell_sums(anchors, others, kept, surrogate.temperature))
            ctx.save_for_backward(*given, slopes, anchors, others)
        else:
            assert surrogate.pieces is not None
            if item_mask.mask is not None:
                others = _without_filler(others, item_mask.mask)
            pairs = sort_pairs(anchors, others, _kept_weights(weights, others, item_mask), surrogate.pieces)
            sums, slopes = (t.to(anchors.dtype) for t in pairs.sums())
            ctx.save_for_backward(*given, slopes, *pairs.tensors())
        return sums if anchor_mask is None else sums.masked_fill_(~anchor_mask, 0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        places, anchor_mask, given_anchors, given_others, weights, *saved = ctx.saved_tensors
        need_weights = ctx.needs_input_grad[3]
        if anchor_mask is not None:
            grad = grad.masked_fill(~anchor_mask, 0)
        if torch.is_grad_enabled():
            of_anchors, of_others, of_weights = _gradients_as_pair_sums(
                grad,
                given_anchors if places is None else given_others.gather(1, places),
                given_others,
                weights,
                anchor_mask,
                ctx.item_mask,
                ctx.surrogate,
                need_weights,
            )
        elif ctx.method == "dense":
            anchors, others = saved
            of_anchors, of_others, of_weights = chunk_gradients(
                grad, anchors, others, weights, anchor_mask, ctx.item_mask, ctx.surrogate, need_weights
            )
        elif ctx.method == "cells":
            slopes, anchors, others = saved
            of_anchors = grad * slopes
            # Seen from an other, the anchors are the items of its sum: b - a = (-a) - (-b).
            values, changes = cell_sums(-others, -anchors, grad, ctx.surrogate.temperature)
            kept = _kept_weights(weights, others, ctx.item_mask)
            of_others = (changes if kept is None else changes * kept).neg_().to(grad.dtype)
            of_weights = values.to(grad.dtype) if need_weights else None
            if of_weights is not None and ctx.item_mask.mask is not None:
                of_weights *= ctx.item_mask.mask
        else:
            slopes, depths, weights, order, anchors, tail, cell, stop = saved
            pairs = SortedPairs(depths, weights, order, anchors, tail, cell, stop, ctx.surrogate.pieces)
            of_anchors = grad * slopes
            of_others, of_weights = pairs.gradients(grad, need_weights)
            of_others = of_others.to(grad.dtype)
            if of_weights is not None:
                of_weights = of_weights.to(grad.dtype)
                if ctx.item_mask.mask is not None:
                    of_weights *= ctx.item_mask.mask
        if places is not None:
            of_others.scatter_add_(1, places, of_anchors)
            return None, None, of_others, of_weights, None, None, None, None
        return of_anchors, None, of_others, of_weights, None, None, None, None


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
    """Return the gradients for anchors, others and weights as functions of them, to be differentiated again.

    Seen from an other, the anchors are the items of its sum: a - b = (-b) - (-a).
    """
    slope = Slope(surrogate)
    of_anchors = grad * _pair_sums(anchors, None, others, slope, weights, anchor_mask, item_mask, "auto")

    def over_anchors(function: Surrogate) -> Tensor:
        return _pair_sums(-others, None, -anchors, function, grad, item_mask.mask, anchor_mask, "auto")

    of_others = -over_anchors(slope)
    if weights is not None:
        of_others = of_others * weights
    return of_anchors, of_others, over_anchors(surrogate) if need_weights else None
