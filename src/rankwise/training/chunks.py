"""Batches larger than memory: the model sees a few rows at a time, the loss all of them."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rankwise.checks import check_count

__all__ = ["InChunks"]


class InChunks(nn.Module):
    """A model that takes a batch a few rows at a time, with the gradient of the whole batch.

    A ranking loss must see all scores of a batch at once, but the model need not: its activations are kept for
    `rows` rows only and computed again, chunk by chunk, in the backward pass (random layers such as dropout draw
    the same numbers again). Costs one more forward pass; values and gradients are those of the whole batch up to
    rounding. Layers that mix rows (batch normalisation) see chunks instead of the batch.

    Args:
        model: rows (N, ...) to outputs (N, ...).
        rows: how many rows at a time.

    Example:
        >>> model = nn.Linear(3, 1)
        >>> features = torch.rand(10, 3)
        >>> torch.allclose(InChunks(model, 4)(features), model(features))
        True
    """

    def __init__(self, model: nn.Module, rows: int) -> None:
        super().__init__()
        check_count("rows", rows)
        self.model = model
        self.rows = rows

    def forward(self, features: Tensor) -> Tensor:
        chunks: list[Any] = [
            checkpoint(self.model, chunk, use_reentrant=False) if torch.is_grad_enabled() else self.model(chunk)
            for chunk in features.split(self.rows)
        ]
        return torch.cat([cast(Tensor, chunk) for chunk in chunks])
