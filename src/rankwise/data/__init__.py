"""Data sets and their parts."""

from rankwise.data.digits import load_digit_retrieval, load_eights
from rankwise.data.parts import Batch, Part, Split, cut_by_class

__all__ = ["Batch", "Part", "Split", "cut_by_class", "load_digit_retrieval", "load_eights"]
