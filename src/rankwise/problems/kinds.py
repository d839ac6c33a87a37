"""The kinds of problems by name, imported when asked for, and the recipes that come with the program."""

from __future__ import annotations

from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankwise.problems.problem import Problem

__all__ = ["KINDS", "library", "problem_class"]

# Module and class of each kind, in the order of listings.
KINDS = {
    "tabular": ("tabular", "Tabular"),
    "ltr": ("ltr", "SearchRanking"),
    "text-search": ("text_search", "TextSearch"),
    "pap": ("pap", "Bipartite"),
    "retrieval": ("retrieval", "Retrieval"),
    "recsys": ("recsys", "Recommendation"),
    "multilabel": ("multilabel", "MultiLabel"),
    "image-retrieval": ("image_retrieval", "ImageRetrieval"),
    "longtail": ("longtail", "LongTail"),
    "detection": ("detection", "Detection"),
}


def problem_class(kind: str) -> type[Problem[Any, Any]]:
    """Return the class of a kind of problem."""
    module, name = KINDS[kind]
    chosen: type[Problem[Any, Any]] = getattr(import_module(f"rankwise.problems.{module}"), name)
    return chosen


def library() -> dict[str, str]:
    """Return the recipes that come with the program: their text by name."""
    folder = files("rankwise.problems").joinpath("library")
    recipes = (entry for entry in folder.iterdir() if entry.name.endswith(".yaml"))
    return {entry.name.removesuffix(".yaml"): entry.read_text(encoding="utf-8") for entry in sorted(recipes, key=str)}
