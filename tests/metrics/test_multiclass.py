"""Multi-class AUC: equal to its definition and to scikit-learn's, whatever the ties and the order of classes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oracles import metrics as oracle
from rankwise.metrics import auroc, multiclass_auc

# Few different scores, so that ties are frequent.
cases = st.tuples(st.integers(2, 4), st.integers(1, 12)).flatmap(
    lambda size: st.tuples(
        st.lists(
            st.lists(st.integers(-3, 3).map(lambda k: k / 4), min_size=size[0], max_size=size[0]),
            min_size=size[1],
            max_size=size[1],
        ),
        st.lists(st.integers(0, size[0] - 1), min_size=size[1], max_size=size[1]),
    )
)


@given(case=cases)
def test_equals_the_definition(case):
    scores, labels = case
    found, expected = multiclass_auc(scores, labels).item(), oracle.multiclass_auc(scores, labels)
    assert (math.isnan(found) and math.isnan(expected)) or math.isclose(found, expected, abs_tol=1e-12)


@pytest.mark.parametrize("classes, rows, levels", [(2, 40, 5), (5, 200, 4), (12, 900, 1000)])
def test_equals_scikit_learn(classes, rows, levels):
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(classes)
    labels = np.concatenate([np.arange(classes), random.integers(0, classes, rows - classes)])
    scores = random.integers(1, levels + 1, (rows, classes)) + 0.8 * (labels[:, None] == np.arange(classes))
    scores = scores / scores.sum(1, keepdims=True)
    if classes == 2:
        expected = metrics.roc_auc_score(labels, scores[:, 1])
    else:
        expected = metrics.roc_auc_score(labels, scores, multi_class="ovo")
    assert math.isclose(multiclass_auc(scores, labels).item(), expected, rel_tol=1e-12)


def test_two_columns_of_opposite_scores_are_auroc():
    scores, labels = torch.randn(30, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 3 // 2
    both = torch.stack([-scores, scores], 1)
    torch.testing.assert_close(multiclass_auc(both, labels), auroc(scores, labels))


def test_renaming_classes_reordering_rows_and_increasing_maps_change_nothing():
    generator = torch.Generator().manual_seed(1)
    scores, labels = torch.randn(60, 5, generator=generator).round(decimals=1), torch.arange(60) % 5
    value = multiclass_auc(scores, labels)
    names, rows = torch.randperm(5, generator=generator), torch.randperm(60, generator=generator)
    torch.testing.assert_close(multiclass_auc(scores[:, names.argsort()], names[labels]), value)
    torch.testing.assert_close(multiclass_auc(scores[rows], labels[rows]), value)
    torch.testing.assert_close(multiclass_auc(scores.exp(), labels), value)


def test_a_class_without_rows_is_left_out_and_one_class_alone_has_no_value():
    scores, labels = torch.randn(20, 3, generator=torch.Generator().manual_seed(2)), torch.arange(20) % 2
    torch.testing.assert_close(multiclass_auc(scores, labels), multiclass_auc(scores[:, :2], labels))
    assert math.isnan(multiclass_auc(scores, torch.ones(20, dtype=torch.int64)))
    assert math.isnan(multiclass_auc(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)))


BAD = [
    (([0.1, 0.2], [0, 1]), ValueError, r"scores: expected numbers \(N, C\), one column per class, got shape \(2,\)"),
    (([[0.1, math.nan]], [0]), ValueError, "scores: "),
    (([[0.1, 0.2]], [0, 1]), ValueError, r"labels: expected one class per row, \(1,\), got shape \(2,\)"),
    (([[0.1, 0.2]], [2]), ValueError, "labels: expected classes from 0 to 1, the columns of scores, got 2"),
    (([[0.1, 0.2]], [-1]), ValueError, "labels: expected classes from 0 to 1, the columns of scores, got -1"),
    (([[0.1, 0.2]], [0.5]), TypeError, "labels: expected integers"),
]


@pytest.mark.parametrize("given, error, message", BAD)
def test_bad_input_is_named(given, error, message):
    with pytest.raises(error, match=message):
        multiclass_auc(*given)
