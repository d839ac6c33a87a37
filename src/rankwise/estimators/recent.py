"""Memory of the embeddings of the last batches, for losses that rank more than the batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rankwise.checks import ExactModule, check_count, outside_inference_mode, run_deferred_checks

__all__ = ["RecentRows"]


class RecentRows(ExactModule):
    """Vectors of the last batches and their classes, in buffers that `state_dict()` contains.

    Only whole batches are dropped, so that the memory does not depend on the order within a batch, which differs with
    the number of processes.

    Args:
        count: largest number of vectors to keep; at least the size of a batch.

    Example:
        >>> recent = RecentRows(5)
        >>> for label in (4, 5, 6):
        ...     recent.add(torch.eye(2), torch.tensor([label, label]))
        >>> recent.classes
        tensor([5, 5, 6, 6])
    """

    traceable = False
    vectors: Tensor
    classes: Tensor
    batches: Tensor

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = check_count("count", count)
        self.register_buffer("vectors", torch.empty(0, 0))
        self.register_buffer("classes", torch.empty(0, dtype=torch.int64))
        self.register_buffer("batches", torch.empty(0, dtype=torch.int64))
        # Size of each batch in memory, by its number. None until it is read from the buffer.
        self._sizes: dict[int, int] | None = None

    def extra_repr(self) -> str:
        return f"vectors={len(self)}, count={self.count}"

    def __len__(self) -> int:
        return len(self.classes)

    def check(self, vectors: Tensor) -> None:
        """Refuse a batch of vectors (B, d) that is too large, or whose dimension differs from that of the memory."""
        if len(vectors) > self.count:
            raise ValueError(f"memory: expected at least the {len(vectors)} vectors of a batch, got {self.count}")
        if len(self) and self.vectors.shape[1] != vectors.shape[1]:
            raise ValueError(
                f"embeddings: expected {self.vectors.shape[1]} numbers each, as in memory, got {vectors.shape[1]}"
            )

    @outside_inference_mode
    @torch.no_grad()
    def add(self, vectors: Tensor, classes: Tensor) -> None:
        """Append a batch of vectors (B, d) and their classes (B,); drop the oldest batches beyond `count` vectors."""
        self.check(vectors)
        run_deferred_checks()
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
        # Buffers get the shape and dtype of the saved ones, which an empty memory does not know.
        for name in ("vectors", "classes", "batches"):
            saved = state_dict.get(prefix + name)
            if saved is not None:
                setattr(self, name, torch.empty_like(saved, device=getattr(self, name).device))
        self._sizes = None
        super()._load_from_state_dict(state_dict, prefix, *others)
