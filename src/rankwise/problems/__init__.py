"""Problems: what a user specifies. One class per kind, imported on first use. Needs `pip install "rankwise[train]"`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankwise.problems.detection import Detection
    from rankwise.problems.image_retrieval import ImageRetrieval
    from rankwise.problems.inference import Inferred, infer_problem
    from rankwise.problems.load import KINDS, BadRecipe, dump_problem, load_problem, make_problem, problem_class
    from rankwise.problems.longtail import LongTail
    from rankwise.problems.ltr import SearchRanking
    from rankwise.problems.multilabel import MultiLabel
    from rankwise.problems.pap import Bipartite
    from rankwise.problems.problem import LossChoice, Problem
    from rankwise.problems.recsys import Recommendation
    from rankwise.problems.retrieval import Retrieval
    from rankwise.problems.tabular import Tabular
    from rankwise.problems.text_search import TextSearch

__all__ = [
    "KINDS",
    "BadRecipe",
    "Bipartite",
    "Detection",
    "ImageRetrieval",
    "Inferred",
    "LongTail",
    "LossChoice",
    "MultiLabel",
    "Problem",
    "Recommendation",
    "Retrieval",
    "SearchRanking",
    "Tabular",
    "TextSearch",
    "dump_problem",
    "infer_problem",
    "load_problem",
    "make_problem",
    "problem_class",
]

# The module of each name: a kind costs its import only when it is used.
_MODULES = {
    "Bipartite": "pap",
    "Detection": "detection",
    "ImageRetrieval": "image_retrieval",
    "LongTail": "longtail",
    "MultiLabel": "multilabel",
    "Recommendation": "recsys",
    "Retrieval": "retrieval",
    "SearchRanking": "ltr",
    "Tabular": "tabular",
    "TextSearch": "text_search",
    "LossChoice": "problem",
    "Problem": "problem",
    "BadRecipe": "load",
    "dump_problem": "load",
    "load_problem": "load",
    "make_problem": "load",
    "Inferred": "inference",
    "infer_problem": "inference",
    "KINDS": "load",
    "problem_class": "load",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"rankwise.problems.{_MODULES[name]}"), name)
