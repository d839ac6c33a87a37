"""Data sets and their parts."""

from rankwise.data.digits import load_digit_retrieval, load_eights
from rankwise.data.parts import Batch, Part, Split, cut_by_class
from rankwise.data.scores import Scores, read_scores

__all__ = ["Batch", "Part", "Scores", "Split", "cut_by_class", "load_digit_retrieval", "load_eights", "read_scores"]
