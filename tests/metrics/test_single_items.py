"""Lists of one item each say nothing of a ranking: metrics refuse them, or say so."""

from __future__ import annotations

import pytest
import torch

import rankwise as rw
from rankwise.metrics import METRICS
from rankwise.metrics.metric import measure
from rankwise.metrics.names import create_metric

SCORES = torch.randn(64, 1, generator=torch.Generator().manual_seed(0))
LABELS = (torch.arange(64) % 4 == 1).long()[:, None]


@pytest.mark.parametrize("name", [record.name for record in METRICS])
def test_metrics_refuse_lists_of_one_item(name):
    for call in (rw.evaluate, lambda scores, labels, name: measure(create_metric(name), scores, labels)):
        with pytest.raises(ValueError, match=r"expected lists of several items, got shape \(64, 1\).*flatten\(\)"):
            call(SCORES, LABELS, name)


def test_metric_functions_refuse_them():
    with pytest.raises(ValueError, match="expected lists of several items"):
        rw.metrics.average_precision(SCORES, LABELS)


def test_metric_classes_take_columns_of_items_with_ids():
    pytest.importorskip("torchmetrics")
    metric = rw.metrics.AveragePrecision()
    for item in range(8):  # one item of each of eight lists
        rows = slice(8 * item, 8 * item + 8)
        metric.update(SCORES[rows], LABELS[rows], query_ids=torch.arange(8))
    lists = SCORES.view(8, 8).T, LABELS.view(8, 8).T
    assert torch.equal(metric.compute(), rw.metrics.average_precision(*lists))


def test_masked_lists_of_one_item_are_as_good_as_others():
    mask = torch.ones(64, 1, dtype=torch.bool)
    assert rw.evaluate(SCORES, LABELS, "ap", mask=mask, bootstrap=0).skipped == {"ap": 48}


def test_distinct_query_ids_throughout_are_said():
    with pytest.warns(UserWarning, match="each of the 64 lists holds one item"):
        rw.evaluate(SCORES.flatten(), LABELS.flatten(), "ap", query_ids=torch.arange(64), bootstrap=0)
