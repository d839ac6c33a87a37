"""The vectors of the last batches, for losses that rank more than the batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rankwise.checks import ExactModule, check_count, outside_inference_mode, settle

__all__ = ["RecentRows"]


class RecentRows(ExactModule):
    """The vectors of the last batches and their classes, in buffers: a checkpoint holds all of them.

    Only whole batches are dropped, so that what is remembered does not depend on the order within a batch, which
    several processes change.

    Args:
        count: how many vectors are kept at most; at least as many as a batch holds.

    Example:
        >>> recent = RecentRows(5)
        >>> for label in (4, 5, 6):
        ...     recent.add(torch.eye(2), torch.tensor([label, label]))
        >>> recent.classes
        tensor([5, 5, 6, 6])
    """

    vectors: Tensor
    classes: Tensor
    batches: Tensor

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = check_count("count", count)
        self.register_buffer("vectors", torch.empty(0, 0))
        self.register_buffer("classes", torch.empty(0, dtype=torch.int64))
        self.register_buffer("batches", torch.empty(0, dtype=torch.int64))
        # Of each batch that is kept, by its number; None: to be read from the buffer.
        self._sizes: dict[int, int] | None = None

    def extra_repr(self) -> str:
        return f"vectors={len(self)}, count={self.count}"

    def __len__(self) -> int:
        return len(self.classes)

    def check(self, vectors: Tensor) -> None:
        """Refuse a batch of vectors (B, d) that cannot be taken in."""
        if len(vectors) > self.count:
            raise ValueError(f"memory: expected at least the {len(vectors)} vectors of a batch, got {self.count}")
        if len(self) and self.vectors.shape[1] != vectors.shape[1]:
            raise ValueError(
                f"embeddings: expected {self.vectors.shape[1]} numbers each, as remembered, got {vectors.shape[1]}"
            )

    @outside_inference_mode
    @torch.no_grad()
    def add(self, vectors: Tensor, classes: Tensor) -> None:
        """Take note of a batch of vectors (B, d) and their classes (B,); the oldest batches make room."""
        self.check(vectors)
        settle()
        if self._sizes is None:
            numbers, sizes = (each.tolist() for each in self.batches.unique(return_counts=True))
            self._sizes = dict(zip(numbers, sizes, strict=True))
        number = max(self._sizes, default=-1) + 1
        batches = torch.full_like(classes, number)
        if len(self):
            vectors = torch.cat([self.vectors.to(vectors), vectors])
            classes = torch.cat([self.classes.to(classes), classes])
            batches = torch.cat([self.batches.to(batches), batches])
        self._sizes[number] = len(batches) - len(self)
        dropped = 0
        while len(batches) - dropped > self.count:
            dropped += self._sizes.pop(min(self._sizes))
        self.vectors, self.classes, self.batches = (
            vectors[dropped:].clone(),
            classes[dropped:].clone(),
            batches[dropped:],
        )

    @outside_inference_mode
    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        # As long as what was saved, and of its dtype: a buffer that has seen nothing says nothing of either.
        for name in ("vectors", "classes", "batches"):
            saved = state_dict.get(prefix + name)
            if saved is not None:
                setattr(self, name, torch.empty_like(saved, device=getattr(self, name).device))
        self._sizes = None
        super()._load_from_state_dict(state_dict, prefix, *others)
