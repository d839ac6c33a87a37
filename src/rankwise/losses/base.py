"""What all losses over lists share: checking, gathering, packing, leaving out, reducing."""

from __future__ import annotations

import warnings
from dataclasses import replace

import torch
from torch import Tensor

from rankwise.checks import (
    check_choice,
    check_ids,
    check_labels,
    check_same_shape,
    check_tensor,
    has_single_items,
    one_reading,
    refuse_single_items,
    when,
)
from rankwise.distributed import gather_inputs, world_size
from rankwise.estimators.table import announce_tables
from rankwise.lists import Lists, PackedLists, pack, reduce_lists, surely_all
from rankwise.losses.links import bound_scores
from rankwise.losses.local_lists import mean_over_ranks
from rankwise.losses.marked import MarkedModule
from rankwise.modes import full_precision, outside_graphs, outside_inference_mode

__all__ = ["ListLoss"]

# A loss warns once after this many training batches in a row of which every list was left out.
_PATIENCE = 10


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
    # Whether what the loss remembers of a list is kept by the id of that list, so that lists may live on one rank.
    state_by_list = False
    # Whether every list is on one rank: then nothing is gathered, see `keep_lists_local`.
    local_lists = False

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
        given = (query_ids, sample_ids, mask, weights, previous_scores, group_ids)
        if self.local_lists and world_size() > 1:
            return mean_over_ranks(lambda: self.list_values(*self._pack(mask, scores, labels, *given)), scores)
        masked = mask
        if world_size() > 1:
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
            scores, labels, *given = inputs.values()
        with full_precision(torch.as_tensor(scores).device.type), one_reading():
            return self.on_lists(*self._pack(masked, scores, labels, *given))

    def keep_lists_local(self) -> bool:
        """Gather nothing from now on, if the loss is a mean over lists that share no state; return whether it is.

        The items of a list must all be on one rank, the same at every step: that of `rankwise.distributed.list_owners`
        if the loss has a state.
        """
        parts = [module for module in self.modules() if isinstance(module, ListLoss)]
        by_list = all(part.state_by_list or next(part.buffers(), None) is None for part in parts)
        learned = next(self.parameters(), None) is not None
        self.local_lists = by_list and not learned and self.lists == "rows" and self.reduction == "mean"
        return self.local_lists

    def _pack(
        self,
        masked: Tensor | None,
        scores: Tensor,
        labels: Tensor,
        query_ids: Tensor | None,
        sample_ids: Tensor | None,
        mask: Tensor | None,
        weights: Tensor | None,
        previous_scores: Tensor | None,
        group_ids: Tensor | None,
    ) -> tuple[PackedLists, Tensor | None]:
        """Return the lists of a batch, checked and packed, and the group of each; `masked` is the caller's mask."""
        scores, labels = check_tensor("scores", scores), check_tensor("labels", labels)
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
        return packed, groups

    def on_lists(self, packed: PackedLists, group_ids: Tensor | None) -> Tensor:
        """The loss of lists that are already checked, gathered and packed."""
        return reduce_lists(*self.list_values(packed, group_ids), empty=self.empty, reduction=self.reduction)

    def list_values(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the value of each list (size,) and which are defined (size,); write the state while training."""
        if packed.blocks[0].scores.device.type != "cpu":
            self._announce()
        if self.empty == "error" and self.training:
            # Before any state is written.
            reduce_lists(*self._look(packed, group_ids), empty="error")
        values, valid = self.per_list(packed, group_ids)
        self._valid = valid.detach()
        if self.training:
            self._count_fruitless(self._valid)
        return values, valid

    def _announce(self) -> None:
        """Have the host read what is left of the last call on an accelerator with the findings of this one."""
        announce_tables(self)
        if isinstance(self._fruitless, Tensor) and not self._warned:
            when(self._fruitless >= _PATIENCE, self._warn)

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
