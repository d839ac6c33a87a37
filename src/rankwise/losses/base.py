"""Base classes of losses over lists: they check, gather and pack the input, reduce the values, and mark the state."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any, ClassVar, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rankwise.checks import (
    NumberedModule,
    any_of_many,
    check_choice,
    check_ids,
    check_labels,
    check_same_shape,
    check_tensor,
    deferred_checks,
    first_order_only,
    full_precision,
    has_single_items,
    in_graphs,
    is_traced,
    on_host,
    outside_inference_mode,
    read_later,
    refuse_single_items,
)
from rankwise.distributed import gather_inputs
from rankwise.estimators.table import defer_new_ids
from rankwise.lists import Lists, PackedLists, pack, reduce_lists, surely_all
from rankwise.losses.local_lists import mean_over_ranks
from rankwise.surrogates import describe_gain

__all__ = ["LARGEST_SCORE", "CountsSteps", "ListLoss", "MarkedModule", "bound", "bound_scores", "with_gradient"]

# Larger than any useful score, and far enough from the largest float32 for sums. Losses clamp squares themselves.
LARGEST_SCORE = 1e30

# A loss warns once after this many training batches in a row in which every list was skipped.
_PATIENCE = 10

T = TypeVar("T")

# The key of the mark in a state dict.
_KEY = "_extra_state"


class MarkedModule(NumberedModule):
    """Loss whose state dict contains its name and the options on which the meaning of the state depends.

    This mark is a tensor of bytes (JSON) under the key "_extra_state", so that any format of tensors can store it.
    Loading the state of another loss, or of other such options, raises a RuntimeError that names both. A state without
    a mark, from an earlier version, loads with a warning.

    Attributes:
        remembers: names of the attributes with these options; None if there is no state, and no mark.
    """

    remembers: ClassVar[tuple[str, ...] | None] = None

    def extra_repr(self) -> str:
        """Return the options that are plain attributes, not submodules or buffers."""
        options = {name: value for name, value in vars(self).items() if name[0] != "_" and name != "training"}
        return ", ".join(f"{name}={getattr(value, '__name__', repr(value))}" for name, value in options.items())

    def _mark(self) -> tuple[str, dict[str, Any]]:
        options = {path: reduce(getattr, path.split("."), self) for path in self.remembers or ()}
        return type(self).__name__, {
            path: describe_gain(value) if path == "gain" else value for path, value in options.items()
        }

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.remembers is not None:
            text = json.dumps(self._mark()).encode()
            destination[prefix + _KEY] = torch.tensor(list(text), dtype=torch.uint8)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        if self.remembers is not None:
            self._check_mark(state_dict.pop(prefix + _KEY, None), any(key.startswith(prefix) for key in state_dict))
        super()._load_from_state_dict(state_dict, prefix, *others)

    def _check_mark(self, mark: Tensor | None, has_state: bool) -> None:
        expected = _describe(*self._mark())
        if mark is None:
            if has_state:
                warnings.warn(
                    f"the loaded state does not say what it is of (it was saved by an earlier version): it is taken "
                    f"for that of {expected}",
                    stacklevel=2,
                )
            return
        try:
            name, options = json.loads(bytes(mark.tolist()))
            loaded = f"that of {_describe(name, options)}"
        except (TypeError, ValueError, AttributeError):
            loaded = "a mark that cannot be read"
        if loaded != f"that of {expected}":
            raise RuntimeError(f"state: expected that of {expected}, got {loaded}")


class CountsSteps(nn.Module):
    """Mixin that counts training steps in the buffer `step`, and on the host, which then need not synchronise."""

    traceable = False
    step: Tensor
    _steps: int | None = None

    @property
    def steps(self) -> int:
        """Return the number of training steps so far."""
        if self._steps is None:
            self._steps = int(self.step)
        return self._steps

    def advance(self) -> None:
        """Count a step."""
        self._steps = self.steps + 1
        self.step = self.step + 1

    def _load_from_state_dict(self, *arguments: Any) -> None:
        self._steps = None
        super()._load_from_state_dict(*arguments)


class ListLoss(MarkedModule):
    """Base class of losses over lists.

    A subclass defines the values of lists (`per_list`), the kind of labels (`label_kind`) and, if it has a state, the
    options on which its meaning depends (`remembers`, see `MarkedModule`).

    Called as `loss(scores, labels, *, query_ids, sample_ids, mask, weights, previous_scores, group_ids)`:

    Args:
        scores: (N,) one list, or many ragged ones with `query_ids` (N,); or (Q, L), one list per row (per column with
            `lists="columns"`). Any floating dtype; computed in float32 at least. Scores beyond 1e30 in size are clamped
            to 1e30; their gradient ignores the clamp.
        labels: the shape of `scores`.
        query_ids: any integers, (N,) for ragged lists or (Q,) for rows.
        sample_ids: the shape of `scores`; only losses with state per item use them.
        mask: the shape of `scores`, False in the padding.
        weights: the shape of `scores`, item weights; an item of weight 0 is masked. Only their ratios within a list
            count.
        previous_scores: the shape of `scores`, scores of the same items under the weights before the last step; only
            losses with variance-reduced moving averages use them.
        group_ids: lists with equal ids share state; shaped like `query_ids`. By default each list is its own group.
            Lists without ids keep no state between batches.

    Scores of shape (N, 1) are N lists of one item each. A loss that compares items has no gradient there and refuses
    them, unless a `mask` confirms them; a loss of single items, such as cross entropy, accepts them. Ragged lists of
    one item are skipped, like all lists without a relevant and an irrelevant item. A loss warns once when it skipped
    every list of 10 training batches in a row.

    Second derivatives (`create_graph=True`) are those of the returned gradient. Losses whose gradient treats as
    constant what depends on the scores, or is no derivative, raise a RuntimeError in that backward pass.

    With an initialised process group every rank computes the loss of the gathered batch, and the mean of the ranks'
    gradients is the gradient of that loss.
    """

    label_kind = "binary"
    # Whether the loss is a mean over items, so that the mean over small batches equals the loss of a large one.
    itemwise = False
    # Whether the state of a list is kept by the id of that list, so that a list may belong to one rank.
    state_by_list = False
    # Whether every list is on one rank: then nothing is gathered, see `keep_lists_local`.
    local_lists = False

    def __init__(self, *, lists: str = "rows", empty: str = "skip", reduction: str = "mean") -> None:
        super().__init__()
        self.lists = check_choice("lists", lists, ("rows", "columns"))
        self.empty = check_choice("empty", empty, ("skip", "error"))
        self.reduction = check_choice("reduction", reduction, ("mean", "sum", "none"))
        self._valid = torch.ones(0, dtype=torch.bool)
        self._batches_without_lists = 0
        # Which lists of the last training batch on an accelerator counted, until the host reads it.
        self._unread: Tensor | None = None
        self._warned = False

    @property
    def skipped(self) -> int:
        """Return the number of lists of the last batch that were skipped, because they lack items the loss needs."""
        return int((~self._valid).sum())

    @in_graphs
    @outside_inference_mode
    def forward(
        self,
        scores: Tensor,
        labels: Tensor,
        *,
        query_ids: Tensor | None = None,
        sample_ids: Tensor | None = None,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
        previous_scores: Tensor | None = None,
        group_ids: Tensor | None = None,
    ) -> Tensor:
        rest: tuple[Tensor | None, ...] = (query_ids, sample_ids, mask, weights, previous_scores, group_ids)
        distributed = dist.is_available() and dist.is_initialized()
        if distributed and self.local_lists:
            return mean_over_ranks(
                lambda: self._compute(_as_they_are, mask, scores, labels, *rest), self._count_step, scores
            )
        if distributed:
            inputs = gather_inputs(
                lambda: _check_inputs(
                    scores=scores,
                    labels=labels,
                    query_ids=query_ids,
                    sample_ids=sample_ids,
                    mask=mask,
                    weights=weights,
                    previous_scores=previous_scores,
                    group_ids=group_ids,
                ),
                pad=self.lists == "rows",
            )
            scores, labels, *others = inputs.values()
            rest = tuple(others)
        return self._compute(self._reduce, mask, scores, labels, *rest)

    def keep_lists_local(self) -> bool:
        """Gather nothing from now on if the loss is a mean over lists without shared state; return whether it is.

        All items of a list must then be on one rank. If the loss has a state, that is the rank given by
        `rankwise.distributed.list_owners` at every step.
        """
        parts = [module for module in self.modules() if isinstance(module, ListLoss)]
        by_list = all(part.state_by_list or next(part.buffers(), None) is None for part in parts)
        trained = next(self.parameters(), None) is not None
        self.local_lists = by_list and not trained and self.lists == "rows" and self.reduction == "mean"
        return self.local_lists

    def _count_step(self) -> None:
        """Count a step of a rank without lists, as the other ranks do."""
        for module in self.modules():
            if self.training and isinstance(module, CountsSteps):
                module.advance()

    def _compute(
        self,
        finish: Callable[[Tensor, Tensor], T],
        masked: Tensor | None,
        scores: Tensor,
        labels: Tensor,
        query_ids: Tensor | None,
        sample_ids: Tensor | None,
        mask: Tensor | None,
        weights: Tensor | None,
        previous_scores: Tensor | None,
        group_ids: Tensor | None,
    ) -> T:
        """Check and pack a batch, and reduce the values of its lists; `masked` is the caller's mask."""
        scores, labels = check_tensor("scores", scores), check_tensor("labels", labels)
        with full_precision(scores.device.type), deferred_checks():
            packed = self.pack_inputs(
                scores,
                labels,
                query_ids=query_ids,
                mask=mask,
                weights=weights,
                sample_ids=sample_ids,
                previous_scores=previous_scores,
            )
            groups = (
                packed.ids if group_ids is None else packed.per_list("group_ids", check_ids("group_ids", group_ids))
            )
            if has_single_items(scores, masked, self.lists) and not bool(self._peek(packed, groups)[1].any()):
                refuse_single_items(scores, f"from which {type(self).__name__} learns nothing")
            return finish(*self._values_of_lists(packed, groups))

    def pack_inputs(self, scores: Tensor, labels: Tensor, **others: Tensor | None) -> PackedLists:
        """Check inputs and pack them into lists; `others` are the keyword arguments of a call."""
        if scores.dtype in (torch.float16, torch.bfloat16):
            scores = scores.float()
        packed = pack(scores, labels, lists=self.lists, **others)
        packed = replace(packed, blocks=tuple(map(_in_range, packed.blocks)))
        for block in packed.blocks:
            check_labels(block.labels, self.label_kind, None if block.full else block.mask)
        return packed

    def on_lists(self, packed: PackedLists, group_ids: Tensor | None) -> Tensor:
        """Compute the loss of lists that are already checked, gathered and packed."""
        return self._reduce(*self._values_of_lists(packed, group_ids))

    def _reduce(self, values: Tensor, valid: Tensor) -> Tensor:
        return reduce_lists(values, valid, empty=self.empty, reduction=self.reduction)

    def _values_of_lists(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        traced = is_traced(packed.blocks[0].scores)
        if packed.blocks[0].scores.device.type != "cpu" and not traced:
            self.defer_checks()
        if self.empty == "error" and self.training:
            # Before any state is written.
            reduce_lists(*self._peek(packed, group_ids), empty="error")
        values, valid = self.per_list(packed, group_ids)
        if traced:
            from rankwise import graphs

            graphs.note(self, valid)
        else:
            self.note(valid.detach())
        return values, valid

    def note(self, valid: Tensor) -> None:
        """Note which lists of a batch were skipped."""
        self._valid = valid
        if self.training:
            self._count_batch(valid)

    def defer_checks(self) -> None:
        """Add what the last call left to read on an accelerator to the deferred checks of this call."""
        defer_new_ids(self)
        if self._unread is not None:
            read_later(any_of_many(self._unread), lambda valid: self._count(any(valid)))
            self._unread = None

    @torch.no_grad()
    def _peek(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return `per_list` in eval mode, which writes no state."""
        modes = [(module, module.training) for module in self.modules()]
        self.eval()
        try:
            return self.per_list(packed, group_ids)
        finally:
            for module, training in modes:
                module.training = training

    def _count_batch(self, valid: Tensor) -> None:
        """Count the batches in a row in which every list was skipped, and warn once."""
        if valid.device.type != "cpu":
            self._unread = valid  # read with the deferred checks of the next call
        else:
            self._count(surely_all(valid) or bool(valid.any()))

    def _count(self, any_valid: bool) -> None:
        self._batches_without_lists = 0 if any_valid else self._batches_without_lists + 1
        if self._batches_without_lists >= _PATIENCE and not self._warned:
            self._warn()

    def _warn(self) -> None:
        self._warned = True
        warnings.warn(
            f"{type(self).__name__} left out every list of the last {_PATIENCE} batches, so nothing was learned "
            "from them: each lacks the items that the loss needs (for most losses a relevant and an irrelevant "
            "one); check labels and query_ids, or draw batches with positives (rankwise.samplers)",
            stacklevel=2,
        )

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        """Compute the values of lists (size,), finite everywhere, and the mask (size,) of lists that have one."""
        raise NotImplementedError


def _as_they_are(values: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    return values, valid


def _check_inputs(**given: object) -> dict[str, Tensor | None]:
    """Return the inputs of one of several ranks as tensors, and check that their shapes agree."""
    inputs = {name: None if value is None else check_tensor(name, value) for name, value in given.items()}
    scores = check_tensor("scores", inputs["scores"])
    for name in ("labels", "sample_ids", "mask", "weights", "previous_scores"):
        tensor = inputs[name]
        if tensor is not None:
            check_same_shape(name, tensor, "scores", scores.shape)
    for name in ("query_ids", "group_ids"):
        tensor = inputs[name]
        if tensor is not None and scores.ndim == 2:
            check_same_shape(name, tensor, "one id per list", scores.shape[:1])
        elif tensor is not None:
            check_same_shape(name, tensor, "scores", scores.shape)
    if inputs["mask"] is None and scores.ndim == 2:
        inputs["mask"] = torch.ones_like(scores, dtype=torch.bool)
    return inputs


def _in_range(lists: Lists) -> Lists:
    """Return the lists with scores and weights bounded so that products and sums do not overflow."""
    scores, previous = bound_scores(lists.scores), lists.previous_scores
    if scores is not lists.scores or previous is not None:
        before = None if previous is None else bound_scores(previous)
        lists = lists.with_scores(scores, before)
    return lists if lists.weights is None else replace(lists, weights=_scale_weights(lists.weights, lists))


def _scale_weights(weights: Tensor, lists: Lists) -> Tensor:
    """Scale the weights of each list to a maximum of 1, and clamp them so that a product of two is not 0."""
    if not weights.shape[1]:
        return weights
    weights = weights.to(torch.promote_types(weights.dtype, lists.scores.dtype))
    largest = weights.detach().amax(1, keepdim=True)
    weights = (weights / largest.masked_fill(largest == 0, 1)).to(lists.scores.dtype)
    least = torch.finfo(weights.dtype).tiny ** 0.5
    return weights.clamp_min(least).masked_fill(~lists.mask, 0)


def _describe(name: str, options: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{path}={json.dumps(value)}' for path, value in options.items())})"


def with_gradient(values: Tensor, scores: Tensor, gradient: Tensor, name: str, reason: str) -> Tensor:
    """Return `values` (Q,) with the given `gradient` (Q, L) with respect to `scores` (Q, L).

    `name` and `reason` refuse second derivatives, see `first_order_only`.

    Example:
        >>> import torch
        >>> scores = torch.zeros(1, 2, requires_grad=True)
        >>> gradient = torch.tensor([[1.0, -3.0]])
        >>> with_gradient(torch.tensor([5.0]), scores, gradient, "MyLoss", "it is given").sum().backward()
        >>> scores.grad
        tensor([[ 1., -3.]])
    """
    # The difference is exactly 0, and has the wanted gradient.
    attached = values.detach() + (gradient.detach() * (scores - scores.detach())).sum(1)
    return first_order_only(attached, name, reason)


def bound_scores(scores: Tensor) -> Tensor:
    """Clamp scores to 1e30 in size; the gradient ignores the clamp, so that training can bring them back.

    Example:
        >>> bound_scores(torch.tensor([-3e38, 7.0]))
        tensor([-1.0000e+30,  7.0000e+00])
    """
    if on_host(scores):
        flat = scores.detach().reshape(-1)
        # If the sum of squares is below the squared limit, so is every score. A float32 sum overflows before that.
        if torch.dot(flat, flat).item() <= LARGEST_SCORE**2:
            return scores
    return bound(scores, LARGEST_SCORE)


def bound(values: Tensor, largest: float) -> Tensor:
    """Clamp values to a size; the gradient ignores the clamp."""
    bounded: Tensor = _Bounded.apply(values, largest)
    return bounded


class _Bounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, largest: float) -> Tensor:
        return values.clamp(-largest, largest)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None
