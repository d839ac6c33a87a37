"""The names of problems in rankwise 0.1, which give the classes of `rankwise.problems` with a warning."""

from __future__ import annotations

from rankwise.deprecation import renamed_attributes

__all__ = [  # noqa: F822
    "DetectionTask",
    "ImageRetrievalTask",
    "LTRTask",
    "LongTailTask",
    "MultilabelTask",
    "PApTask",
    "RecsysTask",
    "RetrievalTask",
    "TabularTask",
]

__getattr__ = renamed_attributes(
    __name__,
    {
        "DetectionTask": "rankwise.problems.Detection",
        "ImageRetrievalTask": "rankwise.problems.ImageRetrieval",
        "LTRTask": "rankwise.problems.SearchRanking",
        "LongTailTask": "rankwise.problems.LongTail",
        "MultilabelTask": "rankwise.problems.MultiLabel",
        "PApTask": "rankwise.problems.Bipartite",
        "RecsysTask": "rankwise.problems.Recommendation",
        "RetrievalTask": "rankwise.problems.Retrieval",
        "TabularTask": "rankwise.problems.Tabular",
    },
    removed_in="0.3",
)
