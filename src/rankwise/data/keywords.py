"""Words of texts: counts, an index of BM25 scores, and word vectors learned from the documents themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from rankwise.data.sparse import SparseRows
from rankwise.extras import require

__all__ = ["KeywordIndex", "WordVectors", "count_words", "split_words"]


def split_words(texts: Sequence[str]) -> list[list[str]]:
    """Return the words of each text in lower case, without those of one letter and the commonest English ones.

    Example:
        >>> split_words(["The wing of a slender Aircraft"])
        [['wing', 'slender', 'aircraft']]
    """
    require("searching texts by keywords", ("bm25s",))
    import bm25s

    words: list[list[str]] = bm25s.tokenize(list(texts), stopwords="en", return_ids=False, show_progress=False)
    return words


def count_words(texts: Sequence[str], vocabulary: Mapping[str, int]) -> SparseRows:
    """Return how often each word of a vocabulary occurs in each text, (N, V)."""
    counts = [Counter(vocabulary[word] for word in words if word in vocabulary) for words in split_words(texts)]
    columns = [column for each in counts for column in sorted(each)]
    values = [each[column] for each in counts for column in sorted(each)]
    starts = torch.tensor([0, *np.cumsum([len(each) for each in counts]).tolist()], dtype=torch.int64)
    return SparseRows(
        starts, torch.tensor(columns, dtype=torch.int64), torch.tensor(values, dtype=torch.float32), len(vocabulary)
    )


@dataclass(frozen=True)
class KeywordIndex:
    """BM25 scores of documents for single words; those of a query are the sum over its words.

    Attributes:
        words: the vocabulary, in order.
        entries: (V, N) the score of each document for each word.
    """

    words: tuple[str, ...]
    entries: SparseRows

    @classmethod
    def build(cls, texts: Sequence[str], *, k1: float, b: float) -> KeywordIndex:
        """Return the index of documents.

        Args:
            texts: of the documents.
            k1: how fast the weight of a repeated word saturates; b: how much long documents are discounted.
        """
        words = split_words(texts)
        vocabulary = {word: number for number, word in enumerate(sorted(set().union(*words)))}
        if not vocabulary:
            raise ValueError("corpus: expected documents with words of two letters or more, got none")
        import bm25s

        index = bm25s.BM25(k1=k1, b=b)
        numbers = [[vocabulary[word] for word in each] for each in words]
        index.index((numbers, dict(vocabulary)), create_empty_token=False, show_progress=False)
        arrays = {name: torch.from_numpy(np.asarray(index.scores[name])) for name in ("indptr", "indices", "data")}
        entries = SparseRows(arrays["indptr"].long(), arrays["indices"].long(), arrays["data"].float(), len(texts))
        return cls(tuple(vocabulary), entries)

    @property
    def vocabulary(self) -> dict[str, int]:
        """Return the number of each word."""
        return {word: number for number, word in enumerate(self.words)}

    def scores(self, counts: SparseRows, rows: Tensor) -> Tensor:
        """Return the scores (B, N) of all documents for some rows of counted words."""
        chosen = counts.take(rows)
        by_word = self.entries.take(chosen.columns)
        query = torch.repeat_interleave(chosen.rows, by_word.starts.diff())
        weights = torch.repeat_interleave(chosen.values, by_word.starts.diff())
        result = torch.zeros(len(rows) * self.entries.width)
        result.index_add_(0, query * self.entries.width + by_word.columns, weights * by_word.values)
        return result.view(len(rows), self.entries.width)


@dataclass(frozen=True)
class WordVectors:
    """Static embeddings: a vector per word; that of a text is the direction of their sum, each word counting 1 + log n.

    Learned from the documents alone by latent semantic analysis: the singular vectors of their words' weights.

    Attributes:
        vectors: (V, d), scaled by how rare the word is.
    """

    vectors: Tensor

    @classmethod
    def learn(cls, counts: SparseRows, dimensions: int) -> WordVectors:
        """Return the vectors for the words of documents, from how often they occur (N, V).

        Args:
            counts: of each word in each document.
            dimensions: of the vectors; fewer where there are fewer documents or words.
        """
        from scipy.sparse import csr_matrix
        from scipy.sparse.linalg import svds

        occurs = torch.bincount(counts.columns, minlength=counts.width).double()
        rarity = torch.log((1 + len(counts)) / (1 + occurs)) + 1
        weights = (1 + counts.values.double().log()) * rarity[counts.columns]
        lengths = torch.zeros(len(counts), dtype=torch.float64).index_add_(0, counts.rows, weights.square()).sqrt()
        weights = weights / lengths[counts.rows].clamp_min(1e-12)
        shape = (len(counts), counts.width)
        matrix = csr_matrix((weights.numpy(), counts.columns.numpy(), counts.starts.numpy()), shape=shape)
        rank = min(dimensions, *(size - 1 for size in shape))
        if rank < 1:
            raise ValueError(f"corpus: expected at least two documents and two words, got {shape[0]} and {shape[1]}")
        # A given start makes the result the same every time.
        right = svds(matrix, k=rank, v0=np.ones(min(shape)))[2]
        directions = torch.from_numpy(np.ascontiguousarray(right[::-1].T))
        return cls((directions * rarity[:, None]).float())

    def embed(self, counts: SparseRows) -> Tensor:
        """Return unit vectors (N, d) of texts by their counted words; that of a text without known words is 0."""
        weights = 1 + counts.values.log()
        vectors = torch.zeros(len(counts), self.vectors.shape[1])
        return normalize(vectors.index_add_(0, counts.rows, weights[:, None] * self.vectors[counts.columns]), dim=1)
