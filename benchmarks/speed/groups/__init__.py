"""The groups of rows, one file each."""

from __future__ import annotations

from benchmarks.speed.contest import Group
from benchmarks.speed.groups.ap import AP
from benchmarks.speed.groups.detection import DETECTION
from benchmarks.speed.groups.importing import IMPORTING
from benchmarks.speed.groups.ndcg import NDCG
from benchmarks.speed.groups.one_list import ONE_LIST
from benchmarks.speed.groups.pap import PAP
from benchmarks.speed.groups.previous_weights import PREVIOUS_WEIGHTS
from benchmarks.speed.groups.ranking import RANKING
from benchmarks.speed.groups.retrieval_batch import RETRIEVAL_BATCH
from benchmarks.speed.groups.retrieval_metrics import RETRIEVAL_METRICS
from benchmarks.speed.groups.state import STATE
from benchmarks.speed.groups.text_lists import TEXT_LISTS

__all__ = ["GROUPS", "find_group"]

GROUPS = (
    ONE_LIST,
    RETRIEVAL_BATCH,
    PREVIOUS_WEIGHTS,
    DETECTION,
    RANKING,
    TEXT_LISTS,
    RETRIEVAL_METRICS,
    NDCG,
    AP,
    PAP,
    STATE,
    IMPORTING,
)


def find_group(key: str) -> Group:
    return next(group for group in GROUPS if group.key == key)
