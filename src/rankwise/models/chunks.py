"""Batches larger than memory: the model sees a few rows at a time, the loss all of them."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rankwise.checks import check_count

__all__ = ["InChunks"]


class InChunks(nn.Module):
    """A model that takes a batch a few rows at a time, with the gradient of the whole batch. For any torch loop:

        outputs = InChunks(model, rows=64)(features)
        loss(outputs, labels).backward()

    A ranking loss must see all scores of a batch at once, but the model need not: its activations are kept for
    `rows` rows only and computed again, chunk by chunk, in the backward pass (random layers such as dropout draw
    the same numbers again). Costs exactly one more forward pass; values and gradients are those of the whole batch up
    to rounding. Layers that mix rows (batch normalisation) see chunks instead of the batch, and update their
    running statistics in both passes.

    Its parameters are those of the model: an optimiser made for the model trains it.

    Args:
        model: rows (N, ...) to outputs (N, ...); it may take several tensors, all of N rows.
        rows: how many rows at a time.

    Example:
        >>> model = nn.Linear(3, 1)
        >>> features = torch.rand(10, 3)
        >>> torch.allclose(InChunks(model, 4)(features), model(features))
        True

    Paper: Gao et al., Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup, RepL4NLP 2021 (there
    called gradient cache).
    """

    def __init__(self, model: nn.Module, rows: int) -> None:
        super().__init__()
        check_count("rows", rows)
        self.model = model
        self.rows = rows

    def forward(self, *features: Tensor) -> Tensor:
        if not features or len({len(tensor) for tensor in features}) != 1:
            lengths = ", ".join(str(len(tensor)) for tensor in features)
            raise ValueError(f"features: expected tensors of the same number of rows, got {lengths or 'none'}")
        chunks: list[Any] = [
            checkpoint(self.model, *chunk, use_reentrant=False) if torch.is_grad_enabled() else self.model(*chunk)
            for chunk in zip(*(tensor.split(self.rows) for tensor in features), strict=True)
        ]
        return torch.cat([cast(Tensor, chunk) for chunk in chunks])
