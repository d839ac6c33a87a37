"""The last rows that were seen, for losses that rank more than the batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rankwise.checks import check_count

__all__ = ["RecentRows"]


class RecentRows(nn.Module):
    """The last vectors of earlier batches and their classes, in buffers: a checkpoint holds all of them.

    Args:
        count: how many are kept at most.

    Example:
        >>> recent = RecentRows(3)
        >>> recent.add(torch.eye(2), torch.tensor([4, 5]))
        >>> recent.add(torch.eye(2), torch.tensor([6, 7]))
        >>> recent.classes
        tensor([5, 6, 7])
    """

    vectors: Tensor
    classes: Tensor

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = check_count("count", count)
        self.register_buffer("vectors", torch.empty(0, 0))
        self.register_buffer("classes", torch.empty(0, dtype=torch.int64))

    def __len__(self) -> int:
        return len(self.classes)

    @torch.no_grad()
    def add(self, vectors: Tensor, classes: Tensor) -> None:
        """Take note of vectors (B, d) and their classes (B,); the oldest make room."""
        if not len(self):
            self.vectors, self.classes = vectors[-self.count :].clone(), classes[-self.count :].clone()
            return
        if self.vectors.shape[1] != vectors.shape[1]:
            raise ValueError(
                f"embeddings: expected {self.vectors.shape[1]} numbers each, as remembered, got {vectors.shape[1]}"
            )
        self.vectors = torch.cat([self.vectors.to(vectors), vectors])[-self.count :]
        self.classes = torch.cat([self.classes.to(classes), classes])[-self.count :]

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        for name in ("vectors", "classes"):
            saved = state_dict.get(prefix + name)
            if saved is not None:
                setattr(self, name, getattr(self, name).new_empty(saved.shape))
        super()._load_from_state_dict(state_dict, prefix, *others)
