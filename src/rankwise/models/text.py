"""Rank the documents of a corpus for queries: a linear head on frozen embeddings, mixed with keyword scores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from rankwise.models.closed_forms import standardise

__all__ = ["TextRanker"]


class TextRanker(nn.Module):
    """`(1 - share) z(cos(q + W q, d)) + share z(keyword scores)`, z: scores minus their mean, over their spread.

    W starts at 0, where the cosines are those of the frozen embeddings. Several heads W are trained side by side, each
    by a loss of its own, until one is `chosen`; -1 chooses the frozen embeddings.

    Args:
        documents: (N, d) unit embeddings; not among the weights that are saved.
        heads: how many are trained.

    Example:
        >>> model = TextRanker(torch.eye(3), heads=2)
        >>> model(torch.tensor([[0.0, 1.0, 0.0]])).shape  # a query by each head
        torch.Size([1, 2, 3])
        >>> model(torch.tensor([[0.0, 1.0, 0.0, 0.0, 0.0, 9.0]])).argmax().item()  # a query and its keyword scores
        1
    """

    documents: Tensor
    chosen: Tensor
    share: Tensor

    def __init__(self, documents: Tensor, heads: int) -> None:
        super().__init__()
        self.register_buffer("documents", documents, persistent=False)
        width = documents.shape[1]
        self.heads = nn.ParameterList(nn.Parameter(torch.zeros(width, width)) for _ in range(heads))
        self.register_buffer("chosen", torch.tensor(0))
        self.register_buffer("share", torch.tensor(0.0))

    def embed(self, vectors: Tensor, head: int | None = None) -> Tensor:
        """Return the unit vectors (B, d) of queries by a head, by default the chosen one."""
        number = int(self.chosen) if head is None else head
        return vectors if number < 0 else normalize(vectors + vectors @ self.heads[number], dim=1)

    def cosines(self, vectors: Tensor, head: int | None = None) -> Tensor:
        """Return the scores (B, N) of all documents by a head, without keywords."""
        return self.embed(vectors, head) @ self.documents.T

    def forward(self, features: Tensor) -> Tensor:
        """Return the cosines (B, H, N) of all documents by each head, or the mixed scores (B, N).

        Args:
            features: (B, d) embeddings of queries; or (B, d + N), followed by the keyword scores of all documents.
        """
        width = self.documents.shape[1]
        if features.shape[1] == width:
            return torch.stack([self.cosines(features, head) for head in range(len(self.heads))], 1)
        vectors, keywords = features[:, :width], features[:, width:]
        return torch.lerp(standardise(self.cosines(vectors)), standardise(keywords), self.share)

    @contextmanager
    def using(self, head: int, share: float) -> Iterator[TextRanker]:
        """Rank inside the context by this head and this share of the keyword scores."""
        before = int(self.chosen), float(self.share)
        self.choose(head, share)
        try:
            yield self
        finally:
            self.choose(*before)

    def choose(self, head: int, share: float) -> None:
        """Rank by this head from now on, with this share of the keyword scores."""
        self.chosen.fill_(head)
        self.share.fill_(share)
