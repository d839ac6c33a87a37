"""Scorers of documents: bags of words, and XML-CNN over word sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, pad

from rankwise.checks import check_count, check_same_shape
from rankwise.models.rows import fully_connected

__all__ = ["XMLCNN", "BagOfWordsScorer"]


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
        """Return the scores (B, labels) from how often, or how strongly (tf-idf), each word occurs, (B, words), dense
        or sparse.

        Documents are brought to length 1, so that long and short ones compare.
        """
        counts = counts if counts.layout == torch.strided else counts.to_dense()
        weight = next(self.parameters())
        return cast(Tensor, self.layers(normalize(counts.to(weight.dtype), dim=1)))


class XMLCNN(nn.Module):
    """Word vectors, convolutions of several widths, the maximum over equal parts of the document, a bottleneck, labels.

    Every document is cut into parts by its own length, so padding changes nothing.

    Args:
        words: the size of the vocabulary.
        labels: how many labels there are.
        dimensions: the length of the word vectors.
        widths: words seen at once by the filters; filters: how many of each width.
        parts: pieces of the document over which the maximum is taken ("dynamic max pooling").
        bottleneck: the width of the hidden layer.
        dropout: after the word vectors (half of it) and before the last layer, while training.

    Example:
        >>> model = XMLCNN(words=100, labels=7, dimensions=8, filters=4, parts=2, bottleneck=16).eval()
        >>> model(torch.randint(100, (5, 12))).shape
        torch.Size([5, 7])

    Paper: Liu et al., Deep learning for extreme multi-label text classification, SIGIR 2017.
    """

    def __init__(
        self,
        words: int,
        labels: int,
        *,
        dimensions: int = 300,
        widths: Sequence[int] = (2, 4, 8),
        filters: int = 128,
        parts: int = 8,
        bottleneck: int = 512,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.parts = check_count("parts", parts)
        self.vectors = nn.Embedding(words, dimensions)
        self.convolutions = nn.ModuleList(nn.Conv1d(dimensions, filters, width) for width in widths)
        self.bottleneck = nn.Linear(len(widths) * filters * parts, bottleneck)
        self.leave = nn.Linear(bottleneck, labels)
        self.drop_words, self.drop = nn.Dropout(dropout / 2), nn.Dropout(dropout)

    def forward(self, words: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """Return the scores (B, labels) from the numbers of the words in order (B, T); mask (B, T) is False after
        the end.
        """
        if mask is None:
            mask = torch.ones_like(words, dtype=torch.bool)
        check_same_shape("mask", mask, "words", words.shape)
        length = mask.sum(1)
        if bool((mask.cummin(1).values != mask).any()):
            raise ValueError("mask: expected False only after the last word of a document, got a hole")
        vectors = (self.drop_words(self.vectors(words)) * mask[:, :, None]).transpose(1, 2)
        pooled = [self._pool(cast(nn.Conv1d, layer), vectors, length) for layer in self.convolutions]
        hidden = self.drop(torch.relu(self.bottleneck(torch.cat(pooled, 1))))
        return cast(Tensor, self.leave(hidden))

    def _pool(self, layer: nn.Conv1d, vectors: Tensor, length: Tensor) -> Tensor:
        """Return the maximum of each filter over each part of the document, at least 0: (B, filters * parts)."""
        width = layer.kernel_size[0]
        # Documents shorter than the filter are filled up with nothing.
        answers = torch.relu(layer(pad(vectors, (0, width - 1))))
        windows = (length - width + 1).clamp_min(1)[:, None]
        window = torch.arange(answers.shape[2], device=answers.device)
        part = torch.where(window < windows, window * self.parts // windows, self.parts)
        # One part more than asked for takes what lies beyond the end.
        best = answers.new_zeros(*answers.shape[:2], self.parts + 1)
        index = part[:, None].expand(answers.shape)
        return best.scatter_reduce(2, index, answers, "amax")[:, :, :-1].flatten(1)
