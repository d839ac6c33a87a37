"""Ranks that pass unlike tensors get the same error, before anything is gathered, and can go on."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec

import pytest

from workers.processes import run_ranks
from workers.unlike_ranks import run_all

CASES = {
    "scores dtype": r"^scores: expected one dtype on every rank, got float32 on rank 0 and float64 on rank 1$",
    "labels dtype": r"^labels: expected one dtype on every rank, got int64 on rank 0 and float32 on rank 1$",
    "weights on one rank": r"^weights: expected on every rank or on none, got None on rank 0 but not on rank 1$",
    "query_ids on one rank": r"^query_ids: expected on every rank or on none, got None on rank 0",
    "sums that agree": r"^rank 1: labels: expected the shape of scores, \(7,\), got \(5,\)$",
    "labels of another length": r"^rank 1: labels: expected the shape of scores, \(6,\), got \(5,\)$",
    "query_ids of another length": r"^rank 1: query_ids: expected the shape of one id per list, \(2,\), got \(3,\)$",
    "dimensions": r"^scores: expected as many dimensions on every rank, got 1 on rank 0 and 2 on rank 1$",
    "no tensor": r"^rank 1: scores: expected a tensor or an array of numbers, got str$",
    "not finite": r"^scores: expected finite numbers, got 6 NaN or infinite of 12",
    "columns": r"^scores: expected rows of one size on every rank, got 6 on rank 0 and 5 on rank 1$",
    "grades": r"^labels: expected grades of 0 or more",
    "width of embeddings": r"^embeddings: expected rows of one size on every rank, got 4 on rank 0 and 6 on rank 1$",
    "embeddings not finite": r"^rank 1: embeddings: expected finite numbers",
    "classes dtype": r"^rank 1: labels: expected integers \(int64\), got torch.float32$",
    "previous on one rank": r"^previous_embeddings: expected on every rank or on none",
    "pairs": r"^embeddings: expected rows of one size on every rank",
    "alrp": r"^errors: expected one dtype on every rank",
    "second derivatives": r"^second derivatives \(create_graph=True\) are not supported with several processes$",
}
MISSING = {"pairs"} if find_spec("pytorch_metric_learning") is None else set()


@pytest.fixture(scope="module")
def raised(tmp_path_factory):
    """By case, what either rank raised."""
    folder = tmp_path_factory.mktemp("unlike")
    run_ranks(run_all, 2, folder, [case for case in CASES if case not in MISSING])
    lines = [[json.loads(line) for line in (folder / f"{rank}.jsonl").read_text().splitlines()] for rank in range(2)]
    return {left["case"]: (left, right) for left, right in zip(*lines, strict=True)}


@pytest.mark.parametrize("case", CASES)
def test_unlike_ranks_get_one_error_and_keep_their_state(case, raised):
    if case in MISSING:
        pytest.skip("needs pytorch_metric_learning")
    left, right = raised[case]
    assert left == right
    assert left["type"] in ("ValueError", "TypeError", "RuntimeError")
    assert left["state"] == "the same"
    assert re.search(CASES[case], left["message"]), left["message"]
