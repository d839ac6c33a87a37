"""Documents as bags of words, to one score per label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from rankwise.models.rows import fully_connected

__all__ = ["BagOfWordsScorer"]


class BagOfWordsScorer(nn.Module):
    """Scores of all labels from the words of a document: their vectors added up, then further layers.

    Args:
        words: the size of the vocabulary.
        labels: how many labels there are.
        hidden: the length of the word vectors, then the widths of further layers; () is linear.
        dropout: before the last layer, while training.

    Example:
        >>> model = BagOfWordsScorer(words=100, labels=7, hidden=(16,)).eval()
        >>> model(torch.rand(5, 100)).shape
        torch.Size([5, 7])
    """

    def __init__(self, words: int, labels: int, *, hidden: Sequence[int] = (512,), dropout: float = 0.5) -> None:
        super().__init__()
        self.layers = fully_connected(words, hidden, labels, dropout=dropout)

    def forward(self, counts: Tensor) -> Tensor:
        """Scores (B, labels) from how often, or how strongly (tf-idf), each word occurs, (B, words), dense or sparse.

        Documents are brought to length 1, so that long and short ones compare.
        """
        counts = counts if counts.layout == torch.strided else counts.to_dense()
        weight = next(self.parameters())
        return cast(Tensor, self.layers(normalize(counts.to(weight.dtype), dim=1)))
