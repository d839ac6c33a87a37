"""Bad input is refused by an error that names the argument."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from rankwise import metrics
from rankwise.metrics import compare, evaluate, evaluate_retrieval

FUNCTIONS = [
    metrics.average_precision,
    metrics.ndcg,
    metrics.pap,
    metrics.precision,
    metrics.recall,
    metrics.hit_rate,
    metrics.reciprocal_rank,
    metrics.auroc,
    metrics.partial_auroc,
]
GOOD = {"scores": [1.0, 2.0, 3.0], "labels": [0, 1, 1]}
BAD = [
    ({"scores": "abc"}, TypeError, "scores"),
    ({"scores": [1.0, math.nan, 3.0]}, ValueError, "scores: expected finite numbers, got 1"),
    ({"scores": [1.0, math.inf, 3.0]}, ValueError, "scores: expected finite"),
    ({"scores": [[[1.0, 2.0, 3.0]]]}, ValueError, "scores: expected 1 or 2 dimensions"),
    ({"labels": [0, 1]}, ValueError, "labels: expected the shape of scores"),
    ({"labels": [0, -1, 1]}, ValueError, "labels: expected"),
    ({"labels": [0, math.nan, 1]}, ValueError, "labels: expected finite"),
    ({"query_ids": [0.5, 1.0, 2.0]}, TypeError, "query_ids: expected integers"),
    ({"query_ids": [0, 1]}, ValueError, "query_ids: expected the shape"),
    ({"mask": [1, 1, 0]}, TypeError, "mask: expected booleans"),
    ({"mask": [True]}, ValueError, "mask: expected the shape"),
    ({"weights": [1.0, -1.0, 1.0]}, ValueError, "weights: expected numbers of 0 or more"),
    ({"weights": [1.0, 1.0]}, ValueError, "weights: expected the shape"),
    ({"ties": "averag"}, ValueError, "ties: unknown word 'averag'; did you mean 'average'"),
    ({"empty": "ignore"}, ValueError, "empty: unknown word"),
    ({"reduction": "median"}, ValueError, "reduction: unknown word"),
    ({"swallowed": 1}, TypeError, "swallowed"),
]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("change, error, message", BAD)
def test_function_names_the_bad_argument(function, change, error, message):
    with pytest.raises(error, match=message):
        function(**{**GOOD, **change})


@pytest.mark.parametrize("function", [metrics.ndcg, metrics.pap, metrics.precision, metrics.recall, metrics.hit_rate])
@pytest.mark.parametrize("k, error", [(0, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError)])
def test_bad_cutoff_is_named(function, k, error):
    with pytest.raises(error, match="k: expected a whole number"):
        function(**GOOD, k=k)


def test_a_cutoff_may_be_a_number_of_numpy():
    scores, labels = [3.0, 2.0, 1.0], [0, 1, 1]
    assert metrics.ndcg(scores, labels, k=np.int64(2)) == metrics.ndcg(scores, labels, k=2)


@pytest.mark.parametrize("function", [function for function in FUNCTIONS if function is not metrics.ndcg])
def test_grades_are_refused_where_labels_are_binary(function):
    with pytest.raises(ValueError, match="labels: expected 0 or 1, got 2"):
        function([1.0, 2.0], [2, 0])


@pytest.mark.parametrize(
    "gain, error, message",
    [
        ("exp", ValueError, "gain: unknown word 'exp'; did you mean 'exp2'"),
        (3, TypeError, "gain: expected"),
        (lambda grades: grades.sum(), ValueError, "gain: expected one gain for each grade"),
        (lambda grades: -grades, ValueError, "gain: expected finite gains of 0 or more"),
    ],
)
def test_bad_gain_is_named(gain, error, message):
    with pytest.raises(error, match=message):
        metrics.ndcg(**GOOD, gain=gain)


def test_grade_too_high_for_exp2_is_refused_with_advice():
    with pytest.raises(ValueError, match=r"labels: gain=\"exp2\" takes grades up to 60, got 61.*gain=\"linear\""):
        metrics.ndcg([1.0, 2.0], [61, 0])
    assert metrics.ndcg([1.0, 2.0], [61, 0], gain="linear").item() == pytest.approx(1 / math.log2(3))


@pytest.mark.parametrize(
    "fpr_range, error", [((0.5, 0.1), ValueError), ((0, 2), ValueError), (0.1, TypeError), ("ab", TypeError)]
)
def test_bad_range_is_named(fpr_range, error):
    with pytest.raises(error, match="fpr_range: expected"):
        metrics.partial_auroc(**GOOD, fpr_range=fpr_range)


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"metrics": []}, ValueError, "metrics: expected at least one"),
        ({"metrics": [3]}, TypeError, "metric: expected a name"),
        ({"confidence": 95}, ValueError, "confidence: expected a number in"),
        ({"bootstrap": -1}, ValueError, "bootstrap: expected a whole number"),
        ({"bootstrap": 1.5}, TypeError, "bootstrap: expected a whole number"),
        ({"query_weights": [1.0, 2.0]}, ValueError, "query_weights: expected the shape"),
        ({"query_weights": [-1.0]}, ValueError, "query_weights: expected numbers of 0 or more"),
        ({"lists": "diagonals"}, ValueError, "lists: unknown word"),
        ({"gain": "exp"}, ValueError, "gain: unknown word"),
        ({"ties": "first"}, ValueError, "ties: unknown word"),
    ],
)
def test_evaluate_names_the_bad_argument(change, error, message):
    with pytest.raises(error, match=message):
        evaluate(**{**GOOD, "metrics": ["ap"], **change})


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"embeddings": torch.zeros(4)}, ValueError, r"embeddings: expected floats of shape \(N, d\)"),
        ({"embeddings": torch.full((4, 2), math.nan)}, ValueError, "embeddings: expected finite"),
        ({"labels": torch.zeros(3, dtype=torch.long)}, ValueError, "labels: expected the shape"),
        ({"labels": torch.zeros(4)}, TypeError, "labels: expected integers"),
        ({"metrics": ["ndcg@3"]}, ValueError, "metrics: expected metrics of binary labels"),
        ({"metrics": [metrics.create_metric("map", ties="stable")]}, ValueError, "ties: expected"),
        ({"similarity": "cosin"}, ValueError, "similarity: unknown word 'cosin'; did you mean 'cosine'"),
        ({"block_size": 0}, ValueError, "block_size: expected"),
        ({"reference_embeddings": torch.zeros(4, 2)}, ValueError, "reference_labels: expected together"),
        (
            {"reference_embeddings": torch.zeros(4, 3), "reference_labels": torch.zeros(4, dtype=torch.long)},
            ValueError,
            "reference_embeddings: expected 2 dimensions, got 3",
        ),
    ],
)
def test_retrieval_names_the_bad_argument(change, error, message):
    good = {"embeddings": torch.eye(4)[:, :2], "labels": torch.tensor([0, 0, 1, 1])}
    with pytest.raises(error, match=message):
        evaluate_retrieval(**{**good, **change})


ONE = evaluate([[2.0, 1.0]] * 2, [[1, 0]] * 2, ["ap", "auroc"], query_ids=[1, 2], bootstrap=0)
OTHER = evaluate([[2.0, 1.0]] * 2, [[1, 0]] * 2, ["ap", "auroc"], query_ids=[1, 3], bootstrap=0)
PESSIMIST = evaluate([[2.0, 1.0]] * 2, [[1, 0]] * 2, ["ap"], query_ids=[1, 2], ties="pessimistic", bootstrap=0)


@pytest.mark.parametrize(
    "arguments, options, error, message",
    [
        ((ONE, OTHER), {"metric": "ap"}, ValueError, r"b: expected the queries of a.* 2 in one only, such as \[2, 3\]"),
        ((ONE, ONE), {}, ValueError, r"metric: expected one of the metrics a and b share \(ap, auroc\)"),
        ((ONE, ONE), {"metric": "auroch"}, ValueError, "metric: .*did you mean 'auroc'"),
        ((ONE, PESSIMIST), {"metric": "ap"}, ValueError, "b: expected ap as a has it"),
        ((ONE, torch.zeros(2)), {}, TypeError, "b: expected the kind of a"),
        ((torch.zeros(2), torch.zeros(3)), {}, ValueError, "b: expected the shape of a"),
        ((torch.tensor([math.nan]), torch.zeros(1)), {}, ValueError, "a, b: expected at least one query"),
        ((torch.zeros(2), torch.zeros(2)), {"permutations": 0}, ValueError, "permutations: expected"),
        ((torch.zeros(2), torch.zeros(2)), {"confidence": 2}, ValueError, "confidence: expected"),
    ],
)
def test_compare_names_the_bad_argument(arguments, options, error, message):
    with pytest.raises(error, match=message):
        compare(*arguments, **options)


NEAR = [1 + 1e-12, 1.0]
CONTAINERS = {
    "list": list,
    "tuple": tuple,
    "array": np.array,
    "reversed array": lambda numbers: np.array(numbers[::-1])[::-1],
    "read-only array": lambda numbers: np.frombuffer(np.array(numbers).tobytes()),
    "pandas": lambda numbers: pytest.importorskip("pandas").Series(numbers, index=range(5, 5 + len(numbers))),
    "polars": lambda numbers: pytest.importorskip("polars").Series(numbers),
    "tensor": lambda numbers: torch.tensor(numbers, dtype=torch.float64),
    "other byte order": lambda numbers: np.array(numbers, dtype=np.dtype("f8").newbyteorder()),
    "masked array without a mask": np.ma.array,
}


@pytest.mark.parametrize("container", CONTAINERS)
def test_numbers_of_double_precision_keep_it_in_any_container(container):
    scores = CONTAINERS[container](NEAR)
    assert metrics.auroc(scores, [1, 0]) == 1
    assert metrics.auroc(CONTAINERS[container](NEAR[::-1]), [1, 0]) == 0
    assert evaluate(scores, [0, 1], "ap", bootstrap=0).means["ap"] == 0.5


@pytest.mark.parametrize("container", CONTAINERS)
def test_metric_classes_keep_double_precision_in_any_container(container):
    pytest.importorskip("torchmetrics")
    seen = metrics.AUROC()
    seen.update(CONTAINERS[container](NEAR), [1, 0])
    assert seen.compute() == 1


def test_rows_of_lists_keep_double_precision():
    assert metrics.auroc([NEAR, NEAR[::-1]], [[1, 0], [1, 0]], reduction="none").tolist() == [1, 0]


@pytest.mark.parametrize("scores", [[2**24 + 1, 2**24], [2**53 - 1, 2**53 - 2], [-(2**53) + 2, -(2**53) + 1]])
@pytest.mark.parametrize("dtype", [None, torch.int64])
def test_whole_numbers_are_told_apart(scores, dtype):
    given = scores if dtype is None else torch.tensor(scores, dtype=dtype)
    assert metrics.auroc(given, [1, 0]) == 1
    assert metrics.auroc(given, [0, 1]) == 0


@pytest.mark.parametrize("scores", [[2**60 + 1, 2**60], [-(2**53), 0], [2**53 + 1, 2**53]])
def test_whole_numbers_that_no_float_holds_are_refused(scores):
    with pytest.raises(ValueError, match=r"scores: expected whole numbers below 2\^53 in size"):
        metrics.auroc(scores, [1, 0])


def test_grades_and_weights_of_lists_keep_double_precision():
    exact = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)
    scores = torch.tensor([1.0, 3.0, 2.0], dtype=torch.float64)
    assert metrics.ndcg(scores, exact.tolist(), gain="linear") == metrics.ndcg(scores, exact, gain="linear")
    weighted = metrics.average_precision(scores, [1, 0, 1], weights=exact.tolist())
    assert weighted == metrics.average_precision(scores, [1, 0, 1], weights=exact)


def test_numbers_of_single_precision_are_ranked_as_they_are():
    scores = torch.tensor(NEAR)  # equal in float32
    assert metrics.auroc(scores, [1, 0]) == 0.5
