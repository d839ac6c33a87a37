"""A retrieval loss that, late in the training, ranks the vectors of earlier batches as well."""

from __future__ import annotations

import torch
from torch import Tensor

from rankwise.checks import check_count
from rankwise.estimators import RecentRows
from rankwise.lists import PackedLists
from rankwise.losses.base import ListLoss
from rankwise.losses.embedding import EmbeddingLoss
from rankwise.losses.similarity_lists import similarity_lists

__all__ = ["LateMemoryLoss"]


class LateMemoryLoss(EmbeddingLoss):
    """Every item ranks the others of the batch and, from a certain step on, also those with the last vectors before.

    Each query then has two lists: the batch, and the batch with what is remembered; all lists count alike. What is
    remembered is fixed, no gradient flows there. Long lists say more about the ranks of the whole data set, but old
    vectors mislead while weights still change fast: hence late.

    A step is a call in training mode. Memory and count are buffers: a resumed training goes on as it would have.

    Args:
        loss: any list loss, `AUPRCLoss()` for instance.
        memory: how many vectors are remembered at most, at least as many as a batch holds; whole batches are dropped.
        after: training steps without them.
        similarity: see `EmbeddingLoss`.

    Example:
        >>> from rankwise.losses import AUPRCLoss
        >>> loss = LateMemoryLoss(AUPRCLoss(), memory=6, after=1)
        >>> for _ in range(2):
        ...     value = loss(torch.eye(4), torch.tensor([0, 0, 1, 1]))
        >>> int(loss.step), loss.recent.classes
        (2, tensor([0, 0, 1, 1]))
    """

    step: Tensor

    def __init__(self, loss: ListLoss, *, memory: int, after: int = 0, similarity: str = "cosine") -> None:
        super().__init__(loss, similarity)
        self.after = check_count("after", after, least=0)
        self.recent = RecentRows(check_count("memory", memory))
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def among_themselves(self, queries: Tensor, labels: Tensor, previous: Tensor | None) -> Tensor:
        if self.training:
            self.recent.check(queries)
        cosines = self.cosines
        blocks = [similarity_lists(queries, labels, queries, labels, previous, previous, own=True, cosines=cosines)]
        if len(self.recent) and int(self.step) >= self.after:
            vectors, classes = self.recent.vectors.to(queries), self.recent.classes.to(labels)
            longer, more = torch.cat([queries, vectors]), torch.cat([labels, classes])
            before = None if previous is None else torch.cat([previous, vectors])
            blocks.append(
                similarity_lists(
                    queries, labels, longer, more, previous, before, own=True, cosines=cosines, first=len(labels)
                )
            )
        groups = labels.repeat(len(blocks))
        value = self.loss.on_lists(PackedLists(tuple(blocks), len(groups), groups), groups)
        if self.training:
            self.recent.add(queries.detach(), labels)
            self.step = self.step + 1
        return value
