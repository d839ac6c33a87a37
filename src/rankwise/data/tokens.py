"""Texts as numbers of words in order, and the files of texts with many labels each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from rankwise.checks import check_count
from rankwise.data.files import bad_line, read_line_blocks

__all__ = ["LabelledTexts", "TokenRows", "is_labelled_texts", "learn_vocabulary", "number_words", "read_labelled_texts"]

WORD = re.compile(r"\w+")
# Numbers of words begin behind that of padding and that of all words that the vocabulary does not have.
PADDING, UNKNOWN, FIRST = 0, 1, 2


class LabelledTexts(NamedTuple):
    """The words of each text, and its labels by name."""

    words: list[list[str]]
    labels: list[tuple[str, ...]]


@dataclass(frozen=True)
class TokenRows:
    """N texts as numbers of words: text i has `words[starts[i]:starts[i + 1]]`.

    A `SparsePart` may hold it instead of `SparseRows`; `dense` gives the numbers in order, not counts.

    Attributes:
        starts: (N + 1,) int64; words: (K,) int64, from 2 on, 1 for words that the vocabulary does not have.
        width: number of different words, padding and unknown words included.

    Example:
        >>> TokenRows(torch.tensor([0, 3, 4]), torch.tensor([5, 2, 5, 3]), width=6).dense()
        tensor([[5, 2, 5],
                [3, 0, 0]])
    """

    starts: Tensor
    words: Tensor
    width: int

    def __len__(self) -> int:
        return len(self.starts) - 1

    def take(self, rows: Tensor) -> TokenRows:
        """Return these texts only, in this order."""
        pieces = [self.words[self.starts[row] : self.starts[row + 1]] for row in rows.tolist()]
        return TokenRows(_starts([len(piece) for piece in pieces]), torch.cat([self.words[:0], *pieces]), self.width)

    def join(self, other: TokenRows) -> TokenRows:
        """Return these texts and then those of another."""
        starts = torch.cat([self.starts, other.starts[1:] + self.starts[-1]])
        return TokenRows(starts, torch.cat([self.words, other.words]), self.width)

    def dense(self, rows: Tensor | None = None) -> Tensor:
        """Return some texts, or all, as (B, T) int64, padded with 0 at the end."""
        rows = torch.arange(len(self)) if rows is None else rows
        pieces = [self.words[self.starts[row] : self.starts[row + 1]] for row in rows.tolist()]
        padded = torch.zeros(len(pieces), max([1, *map(len, pieces)]), dtype=torch.int64)
        for row, piece in enumerate(pieces):
            padded[row, : len(piece)] = piece
        return padded


def is_labelled_texts(path: Path) -> bool:
    """Return whether the first line of a file has the form that `read_labelled_texts` reads."""
    first = next((line for block in read_line_blocks(path) for _, line in block.lines() if line.strip()), b"")
    return b"\t" in first


def read_labelled_texts(path: str | Path) -> LabelledTexts:
    """Read texts with labels in the form of LibMultiLabel: `labels<TAB>text` or `id<TAB>labels<TAB>text` in each line.

    Labels are separated by blanks; a text may have none. Words are letters and digits in lower case. EUR-Lex and
    Wiki10-31K are given out in this form (`eurlex_raw_texts_train.txt`).

    Args:
        path: the file, plain or compressed by gzip, xz or bzip2.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "train.txt")
        ...     _ = path.write_text("7\\tfish law\\tCod, haddock and cod.\\n8\\t\\tNothing\\n")
        ...     read_labelled_texts(path)
        LabelledTexts(words=[['cod', 'haddock', 'and', 'cod'], ['nothing']], labels=[('fish', 'law'), ()])
    """
    path = Path(path)
    words, labels, columns = [], [], 0
    for block in read_line_blocks(path):
        for number, line in block.lines():
            if not line.strip():
                continue
            try:
                fields = line.decode("utf-8").split("\t")
            except UnicodeDecodeError:
                bad_line(path, number, "text in UTF-8", line)
            columns = columns or len(fields)
            if len(fields) != columns or columns not in (2, 3):
                bad_line(path, number, "`labels<TAB>text` or `id<TAB>labels<TAB>text`, as in the first line", line)
            own = tuple(fields[-2].split())
            if len(set(own)) < len(own):
                bad_line(path, number, "different labels", fields[-2])
            words.append(WORD.findall(fields[-1].lower()))
            labels.append(own)
    if not words:
        raise ValueError(f"{path}: expected texts, got none")
    return LabelledTexts(words, labels)


def learn_vocabulary(texts: Sequence[Sequence[str]], most: int) -> tuple[str, ...]:
    """Return the most frequent words, at most so many; of equally frequent ones those that come first in the alphabet.

    Example:
        >>> learn_vocabulary([["b", "a"], ["c", "b"]], most=2)
        ('b', 'a')
    """
    counts = Counter(word for text in texts for word in text)
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(word for word, _ in ranked[: check_count("most", most)])


def number_words(texts: Sequence[Sequence[str]], vocabulary: Sequence[str], longest: int) -> TokenRows:
    """Return texts as numbers of words, each cut after `longest` words.

    Example:
        >>> number_words([["b", "x", "a", "b"]], ("a", "b"), longest=3).dense()
        tensor([[3, 1, 2]])
    """
    number = {word: index for index, word in enumerate(vocabulary, FIRST)}
    cut = [text[: check_count("longest", longest)] for text in texts]
    words = torch.tensor([number.get(word, UNKNOWN) for text in cut for word in text], dtype=torch.int64)
    return TokenRows(_starts([len(text) for text in cut]), words, len(number) + FIRST)


def _starts(lengths: Sequence[int]) -> Tensor:
    return torch.tensor([0, *lengths], dtype=torch.int64).cumsum(0)
