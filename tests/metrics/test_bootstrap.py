"""Intervals of a single list: its items are drawn again."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rankwise.lists import pack
from rankwise.metrics import METRICS, create_metric, evaluate
from rankwise.metrics.bootstrap import _merged, _poisson_ones, item_replicates
from rankwise.metrics.metric import measure_lists
from rankwise.ranks import rank


def one_list(size=400, share=0.2, seed=0, *, tied=False):
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(size, generator=generator) < share).long()
    scores = torch.randn(size, generator=generator) + labels
    return (scores * 3).round() if tied else scores, labels


def test_table_of_draws_is_poisson():
    drawn = _poisson_ones(200, 1000, np.random.default_rng(0)).flatten()
    assert drawn.mean().item() == pytest.approx(1, abs=0.01)
    assert drawn.var().item() == pytest.approx(1, abs=0.02)
    assert (drawn == 0).double().mean().item() == pytest.approx(np.exp(-1), abs=0.005)


@pytest.mark.parametrize("ties", ["average", "pessimistic", "stable"])
@pytest.mark.parametrize(
    "record", [r for r in METRICS if r.takes_item_weights and r.labels == "binary"], ids=lambda r: r.name
)
def test_merging_like_items_changes_no_value(record, ties):
    for seed, tied in ((0, False), (1, True)):
        scores, labels = one_list(60, seed=seed, tied=tied)
        metric = create_metric(record.name + ("@7" if record.takes_k else ""), ties=ties)
        block = pack(scores, labels).blocks[0]
        merged = _merged(rank(block, ties).positives)
        assert merged.scores.shape[1] <= 3 * int(labels.sum()) + 1
        found = metric.per_list(rank(merged, ties))
        torch.testing.assert_close(found, metric.per_list(rank(block, ties)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["ap", "ndcg@20", "auroc", "precision@50", "pauroc"])
@pytest.mark.parametrize("tied", [False, True])
def test_reweighted_list_has_the_value_of_the_weighted_list(name, tied):
    scores, labels = one_list(50, tied=tied)
    ranked = rank(pack(scores, labels).blocks[0])
    weights = _poisson_ones(5, 50, np.random.default_rng(1))
    found = create_metric(name).per_list(ranked.reweighted(weights))
    order = ranked.order.expand(5, -1)
    back = torch.zeros_like(weights).scatter_(1, order, weights)
    packed = pack(scores.expand(5, -1), labels.expand(5, -1), weights=back)
    expected = measure_lists(packed, [create_metric(name)])[0][name]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["ap", "auroc", "ndcg@50"])
def test_interval_of_one_list_is_that_of_a_plain_bootstrap(name):
    scores, labels = one_list()
    low, high = evaluate(scores, labels, name, bootstrap=2000).intervals[name]
    generator = torch.Generator().manual_seed(1)
    drawn = torch.randint(400, (2000, 400), generator=generator)
    values = evaluate(scores[drawn], labels[drawn], name, bootstrap=0).per_query[name]
    expected = torch.quantile(values, torch.tensor([0.025, 0.975], dtype=torch.float64))
    width = (expected[1] - expected[0]).item()
    assert low == pytest.approx(expected[0].item(), abs=0.12 * width)
    assert high == pytest.approx(expected[1].item(), abs=0.12 * width)


def test_item_weights_stay_in_the_interval():
    scores, labels = one_list()
    doubled = torch.where(labels == 1, 4.0, 1.0)
    result = evaluate(scores, labels, "ap", weights=doubled)
    low, high = result.intervals["ap"]
    assert low < result.means["ap"] < high
    assert low > evaluate(scores, labels, "ap").means["ap"]


def test_metric_without_item_weights_has_no_interval_on_one_list():
    scores, labels = one_list()
    assert list(evaluate(scores, labels, ["ap", "mrr", "hit@3"]).intervals) == ["ap"]


def test_long_list_gets_fewer_replicates(monkeypatch):
    monkeypatch.setattr("rankwise.metrics.bootstrap._DRAWS", 150 * 400)
    scores, labels = one_list(400)
    block = pack(scores, labels).blocks[0]
    for wanted, found in ((1000, 150), (120, 120), (90, 90)):
        replicates = item_replicates(block, [create_metric("ndcg@10")], wanted, np.random.default_rng(0))
        assert len(replicates["ndcg@10"]) == found


@pytest.mark.parametrize("label", [0, 1])
def test_list_of_one_class_has_no_interval_where_it_has_no_value(label):
    assert evaluate([3.0, 2.0, 1.0], [label] * 3, "auroc").intervals == {}
