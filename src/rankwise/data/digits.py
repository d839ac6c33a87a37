"""The 1,797 hand-written digits (8 x 8 pixels) that come with scikit-learn: no download."""

from __future__ import annotations

import torch
from torch import Tensor

from rankwise.data.parts import Part, Split, cut_by_class

__all__ = ["load_digit_retrieval", "load_eights"]


def load_eights(seed: int) -> Split[Part]:
    """Find the eights: a rare class in training, 12 eights among 612 images.

    Validation holds 50 eights and 300 others, test the 112 eights and 723 others that are left.

    Args:
        seed: decides which images go where.

    Returns:
        Features (N, 64) in [0, 1]; labels 1 for an eight, 0 for any other digit.

    Example:
        >>> split = load_eights(seed=0)
        >>> [(int(part.labels.sum()), len(part)) for part in (split.train, split.validation, split.test)]
        [(12, 612), (50, 350), (112, 835)]
    """
    pixels, digits = _load()
    return cut_by_class(pixels, (digits == 8).long(), train=[600, 12], validation=[300, 50], seed=seed)


def load_digit_retrieval(seed: int) -> Split[Part]:
    """Find images of the same digit: 20 images of each digit in training, 20 in validation, the rest in test.

    Args:
        seed: decides which images go where.

    Returns:
        Features (N, 64) in [0, 1]; labels are the digits.

    Example:
        >>> split = load_digit_retrieval(seed=0)
        >>> [len(part) for part in (split.train, split.validation, split.test)]
        [200, 200, 1397]
    """
    pixels, digits = _load()
    return cut_by_class(pixels, digits, train=[20] * 10, validation=[20] * 10, seed=seed)


def _load() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits  # an extra: only those who ask for this data need it

    pixels, digits = load_digits(return_X_y=True)
    return torch.as_tensor(pixels / 16.0, dtype=torch.float32), torch.as_tensor(digits, dtype=torch.int64)
