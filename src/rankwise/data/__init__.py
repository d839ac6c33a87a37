"""Data sets and their parts."""

from rankwise.data.digits import load_digit_retrieval, load_eights
from rankwise.data.letor import read_letor, read_letor_comments
from rankwise.data.letor_folds import read_letor_folds, read_letor_split
from rankwise.data.parts import Batch, Part, Split, cut_by_class
from rankwise.data.splits import cut_by_query, cut_stratified, folds_by_query, join_parts
from rankwise.data.tables import Table, read_table

__all__ = [
    "Batch",
    "Part",
    "Split",
    "Table",
    "cut_by_class",
    "cut_by_query",
    "cut_stratified",
    "folds_by_query",
    "join_parts",
    "load_digit_retrieval",
    "load_eights",
    "read_letor",
    "read_letor_comments",
    "read_letor_folds",
    "read_letor_split",
    "read_table",
]
