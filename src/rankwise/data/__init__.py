"""Data sets and their parts."""

from rankwise.data.digits import load_digit_retrieval, load_eights
from rankwise.data.movielens_features import RatedFilms, cut_rated_films, read_rated_films
from rankwise.data.parts import Batch, Part, Split, cut_by_class

__all__ = [
    "Batch",
    "Part",
    "RatedFilms",
    "Split",
    "cut_by_class",
    "cut_rated_films",
    "load_digit_retrieval",
    "load_eights",
    "read_rated_films",
]
