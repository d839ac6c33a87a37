"""Rank the documents of a corpus for queries: trained on frozen embeddings, mixed with keyword scores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from rankwise.models.closed_forms import standardise

__all__ = ["TextRanker"]


class TextRanker(nn.Module):
    """`(1 - share) z(cos(q + W q, d + e)) + share z(keyword scores)`, z: scores minus their mean, over their spread.

    W and the shift e of a document start at 0, where the cosines are those of the frozen embeddings. Only documents
    named by `train_documents` have a shift. Several heads (W, e) are trained side by side, each by a loss of its own,
    until one is `chosen`; -1 chooses the frozen embeddings.

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
    shifted: Tensor
    chosen: Tensor
    share: Tensor

    def __init__(self, documents: Tensor, heads: int) -> None:
        super().__init__()
        self.register_buffer("documents", documents, persistent=False)
        width = documents.shape[1]
        self.heads = nn.ParameterList(nn.Parameter(torch.zeros(width, width)) for _ in range(heads))
        self.register_buffer("chosen", torch.tensor(0))
        self.register_buffer("share", torch.tensor(0.0))
        self.train_documents(torch.empty(0, dtype=torch.int64))

    def train_documents(self, rows: Tensor) -> None:
        """Add a shift to be trained, 0 at first, to these documents (R,); the others keep their embeddings."""
        like = self.heads[0]
        self.register_buffer("shifted", rows.to(like.device))
        self.shifts = nn.ParameterList(nn.Parameter(like.new_zeros(len(rows), like.shape[1])) for _ in self.heads)

    def embed(self, vectors: Tensor, head: int | None = None) -> Tensor:
        """Return the unit vectors (B, d) of queries by a head, by default the chosen one."""
        number = int(self.chosen) if head is None else head
        return vectors if number < 0 else normalize(vectors + vectors @ self.heads[number], dim=1)

    def cosines(self, vectors: Tensor, head: int | None = None) -> Tensor:
        """Return the scores (B, N) of all documents by a head, without keywords."""
        number = int(self.chosen) if head is None else head
        queries = self.embed(vectors, number)
        scores = queries @ self.documents.T
        if number < 0 or not len(self.shifted):
            return scores
        return scores.index_copy(1, self.shifted, queries @ self._moved(number).T)

    def document_vectors(self) -> Tensor:
        """Return the unit vectors (N, d) of all documents by the chosen head, a copy in memory."""
        number = int(self.chosen)
        return self.documents.clone() if number < 0 else self.documents.index_copy(0, self.shifted, self._moved(number))

    def _moved(self, head: int) -> Tensor:
        """Return the unit vectors (R, d) of the documents that have a shift."""
        return normalize(self.documents[self.shifted] + self.shifts[head], dim=1)

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

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        rows = state_dict.get(f"{prefix}shifted")
        if rows is not None and rows.shape != self.shifted.shape:
            self.train_documents(rows)
        super()._load_from_state_dict(state_dict, prefix, *others)
