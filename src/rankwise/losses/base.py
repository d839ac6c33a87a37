"""Share what all losses over lists do: check, gather, pack, skip, reduce, save."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from functools import reduce
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rankwise.checks import (
    check_choice,
    check_ids,
    check_labels,
    check_later,
    check_same_shape,
    check_tensor,
    deferred_checks,
    first_order_only,
    full_precision,
    has_single_items,
    outside_graphs,
    outside_inference_mode,
    refuse_single_items,
)
from rankwise.distributed import gather_inputs
from rankwise.estimators.table import announce_tables
from rankwise.lists import Lists, PackedLists, pack, reduce_lists, surely_all
from rankwise.surrogates import describe_gain

__all__ = ["LARGEST_SCORE", "CountsSteps", "ListLoss", "MarkedModule", "bound", "bound_scores", "with_gradient"]

# Beyond any score that matters, and far enough from the end of float32 for sums, squares being cut by the losses.
LARGEST_SCORE = 1e30

# A loss warns once after this many training batches in a row of which every list was left out.
_PATIENCE = 10

# The key of the mark in a state dict.
_KEY = "_extra_state"


class MarkedModule(nn.Module):
    """A loss whose state dict carries its name and the options that give the state its meaning.

    The mark is a tensor of bytes (JSON) under the key "_extra_state", so that any format of tensors holds it. Loading
    the state of another loss, or one of other such options, is refused by a RuntimeError that names both. A state
    without a mark, of an earlier version, loads with a warning.

    Attributes:
        remembers: the options that the meaning of the state depends on, by the names of attributes; None: there is no
            state, and no mark.
    """

    remembers: ClassVar[tuple[str, ...] | None] = None

    def extra_repr(self) -> str:
        """Return the options, as far as they are plain attributes and no submodules or buffers."""
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

    def _check_mark(self, mark: Tensor | None, something: bool) -> None:
        expected = _in_words(*self._mark())
        if mark is None:
            if something:
                warnings.warn(
                    f"the loaded state does not say what it is of (it was saved by an earlier version): it is taken "
                    f"for that of {expected}",
                    stacklevel=2,
                )
            return
        try:
            name, options = json.loads(bytes(mark.tolist()))
            found = f"that of {_in_words(name, options)}"
        except (TypeError, ValueError, AttributeError):
            found = "something that says nothing"
        if found != f"that of {expected}":
            raise RuntimeError(f"state: expected that of {expected}, got {found}")


class CountsSteps(nn.Module):
    """Count training steps in the buffer `step`; the host keeps the number too, so as not to wait for a device."""

    step: Tensor
    _steps: int | None = None

    @property
    def steps(self) -> int:
        """The number of training steps so far."""
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
    """A loss over lists. A subclass says what lists cost (`per_list`), which labels it takes, and, if it has a state,
    which options give it its meaning (`remembers`, see `MarkedModule`).

    Called as `loss(scores, labels, *, query_ids, sample_ids, mask, weights, previous_scores, group_ids)`:

    Args:
        scores: (N,) one list, or many ragged ones with `query_ids` (N,); or (Q, L), one list per row (per column with
            `lists="columns"`). Any floating dtype; computed in float32 at least. Scores beyond 1e30 in size count as
            1e30, and get their gradient as if they had not been cut.
        labels: the shape of `scores`.
        query_ids: any integers, (N,) for ragged lists or (Q,) for rows.
        sample_ids: the shape of `scores`; only losses that remember single items use them.
        mask: the shape of `scores`, False where there is no item.
        weights: the shape of `scores`, item weights; 0 is as good as absent. Only their ratios within a list count.
        previous_scores: the shape of `scores`, what the same items scored under the weights before the last step; only
            losses with a variance-reduced memory use them.
        group_ids: which lists share what the loss remembers, shaped like `query_ids`; each list is its own group by
            default. Rows without any ids are strangers: nothing is remembered of them.

    (N, 1) scores are N lists of one item each. A loss that compares items learns nothing from them and refuses them,
    unless a `mask` says that they are meant; a loss that learns from single items, such as cross entropy, takes them.
    Ragged lists that happen to hold one item each are left out like all lists without a relevant and an irrelevant
    item. A loss warns once when it left out every list of 10 training batches in a row.

    Second derivatives (`create_graph=True`) are those of the gradient returned. Losses whose gradient holds fixed what
    moves with the scores, or is no derivative, refuse them by a RuntimeError when the gradient is asked for.

    Under an initialised process group all ranks see the joined batch, and the mean of their gradients is the gradient
    of the loss over that batch.
    """

    label_kind = "binary"
    # Whether the loss of a batch is a mean over items, so that several small batches are as good as a large one.
    itemwise = False

    def __init__(self, *, lists: str = "rows", empty: str = "skip", reduction: str = "mean") -> None:
        super().__init__()
        self.lists = check_choice("lists", lists, ("rows", "columns"))
        self.empty = check_choice("empty", empty, ("skip", "error"))
        self.reduction = check_choice("reduction", reduction, ("mean", "sum", "none"))
        self._valid = torch.ones(0, dtype=torch.bool)
        self._fruitless: int | Tensor = 0
        self._warned = False

    @property
    def skipped(self) -> int:
        """How many lists of the last batch were left out because they lacked the items the loss needs."""
        return int((~self._valid).sum())

    @outside_graphs
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
        masked = mask
        if dist.is_available() and dist.is_initialized():
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
            scores, labels, query_ids, sample_ids, mask, weights, previous_scores, group_ids = inputs.values()
        scores, labels = check_tensor("scores", scores), check_tensor("labels", labels)
        with full_precision(scores.device.type), deferred_checks():
            if scores.dtype in (torch.float16, torch.bfloat16):
                scores = scores.float()
            packed = pack(
                scores,
                labels,
                query_ids=query_ids,
                mask=mask,
                weights=weights,
                sample_ids=sample_ids,
                previous_scores=previous_scores,
                lists=self.lists,
            )
            packed = replace(packed, blocks=tuple(map(_in_range, packed.blocks)))
            for block in packed.blocks:
                check_labels(block.labels, self.label_kind, block.mask)
            groups = (
                packed.ids if group_ids is None else packed.per_list("group_ids", check_ids("group_ids", group_ids))
            )
            if has_single_items(scores, masked, self.lists) and not bool(self._look(packed, groups)[1].any()):
                refuse_single_items(scores, f"from which {type(self).__name__} learns nothing")
            return self.on_lists(packed, groups)

    def on_lists(self, packed: PackedLists, group_ids: Tensor | None) -> Tensor:
        """The loss of lists that are already checked, gathered and packed."""
        if packed.blocks[0].scores.device.type != "cpu":
            self._announce()
        if self.empty == "error" and self.training:
            # Before any state is written.
            reduce_lists(*self._look(packed, group_ids), empty="error")
        values, valid = self.per_list(packed, group_ids)
        self._valid = valid.detach()
        if self.training:
            self._count_fruitless(self._valid)
        return reduce_lists(values, valid, empty=self.empty, reduction=self.reduction)

    def _announce(self) -> None:
        """Have the host read what is left of the last call on an accelerator with the findings of this one."""
        announce_tables(self)
        if isinstance(self._fruitless, Tensor) and not self._warned:
            check_later(self._fruitless >= _PATIENCE, self._warn)

    @torch.no_grad()
    def _look(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return `per_list` in eval mode, which writes no state."""
        modes = [(module, module.training) for module in self.modules()]
        self.eval()
        try:
            return self.per_list(packed, group_ids)
        finally:
            for module, training in modes:
                module.training = training

    def _count_fruitless(self, valid: Tensor) -> None:
        """Count the batches in a row of which every list was left out, and warn once."""
        if valid.device.type != "cpu":
            # Counted there, and read with the findings of the next call.
            self._fruitless = torch.where(valid.any(), 0, self._fruitless + 1)
            return
        fruitful = surely_all(valid) or bool(valid.any())
        self._fruitless = 0 if fruitful else int(self._fruitless) + 1
        if self._fruitless == _PATIENCE and not self._warned:
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
        """Value of each list (size,), finite everywhere, and on which lists it is defined (size,)."""
        raise NotImplementedError


def _check_inputs(**given: object) -> dict[str, Tensor | None]:
    """Return the inputs of one of several ranks as tensors, of shapes that go together."""
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
    """Return the lists with scores and weights of sizes that can be multiplied and added up."""
    scores, previous = bound_scores(lists.scores), lists.previous_scores
    if scores is not lists.scores or previous is not None:
        before = None if previous is None else bound_scores(previous)
        lists = replace(lists, scores=scores, previous_scores=before)
    return lists if lists.weights is None else replace(lists, weights=_scale_weights(lists.weights, lists))


def _scale_weights(weights: Tensor, lists: Lists) -> Tensor:
    """Scale the weights of each list to a maximum of 1, and none so small that the product of two is 0."""
    if not weights.shape[1]:
        return weights
    weights = weights.to(torch.promote_types(weights.dtype, lists.scores.dtype))
    largest = weights.detach().amax(1, keepdim=True)
    weights = (weights / largest.masked_fill(largest == 0, 1)).to(lists.scores.dtype)
    least = torch.finfo(weights.dtype).tiny ** 0.5
    return weights.clamp_min(least).masked_fill(~lists.mask, 0)


def _in_words(name: str, options: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{path}={json.dumps(value)}' for path, value in options.items())})"


def with_gradient(values: Tensor, scores: Tensor, gradient: Tensor, name: str, reason: str) -> Tensor:
    """Return `values` (Q,), whose gradient with respect to `scores` (Q, L) is `gradient` (Q, L).

    `name` and `reason` refuse second derivatives, see `first_order_only`.

    Example:
        >>> import torch
        >>> scores = torch.zeros(1, 2, requires_grad=True)
        >>> gradient = torch.tensor([[1.0, -3.0]])
        >>> with_gradient(torch.tensor([5.0]), scores, gradient, "MyLoss", "it is given").sum().backward()
        >>> scores.grad
        tensor([[ 1., -3.]])
    """
    # The difference is an exact zero; only its gradient is of interest.
    attached = values.detach() + (gradient.detach() * (scores - scores.detach())).sum(1)
    return first_order_only(attached, name, reason)


def bound_scores(scores: Tensor) -> Tensor:
    """Cut scores to 1e30 in size; the gradient passes as if they had not been cut, so that they can come back.

    Example:
        >>> bound_scores(torch.tensor([-3e38, 7.0]))
        tensor([-1.0000e+30,  7.0000e+00])
    """
    if scores.device.type == "cpu":
        flat = scores.detach().reshape(-1)
        # No term of such a sum of squares is too large; in float32 the sum becomes infinite long before the limit.
        if torch.dot(flat, flat).item() <= LARGEST_SCORE**2:
            return scores
    return bound(scores, LARGEST_SCORE)


def bound(values: Tensor, largest: float) -> Tensor:
    """Cut values to a size; the gradient passes as if they had not been cut."""
    bounded: Tensor = _Bounded.apply(values, largest)
    return bounded


class _Bounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, largest: float) -> Tensor:
        return values.clamp(-largest, largest)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None
