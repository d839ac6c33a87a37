"""Metrics by name."""

from __future__ import annotations

import pytest

from rankwise.metrics import METRICS, create_metric
from rankwise.metrics.names import create_metrics


@pytest.mark.parametrize(
    "name, record, k",
    [
        ("ap", "ap", None),
        ("auprc", "ap", None),
        ("map", "ap", None),
        ("map@r", "map@r", None),
        ("ndcg", "ndcg", None),
        ("ndcg@10", "ndcg", 10),
        ("micro-pap@8", "pap", 8),
        ("mrr@3", "rr", 3),
        ("hit@1", "hit", 1),
        ("pauroc", "pauroc", None),
    ],
)
def test_name_is_read_as_metric_and_cutoff(name, record, k):
    metric = create_metric(name)
    assert (metric.name, metric.record.name, metric.k) == (name, record, k)


@pytest.mark.parametrize(
    "name, message",
    [
        ("ndgc@10", r"unknown metric 'ndgc'; did you mean 'ndcg'"),
        ("ap@5", r"'ap' takes no cutoff, got 'ap@5'"),
        ("ndcg@0", r"at least 1 after \"@\", got 'ndcg@0'"),
        ("ndcg@x", r"at least 1 after \"@\", got 'ndcg@x'"),
        ("ndcg@", r"at least 1 after \"@\", got 'ndcg@'"),
        ("ndcg@-1", r"at least 1 after \"@\""),
        ("", r"unknown metric ''"),
    ],
)
def test_wrong_name_is_answered_with_what_is_known(name, message):
    with pytest.raises(ValueError, match=message):
        create_metric(name)


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"gain": "linear"}, ValueError, "gain: ap does not take it"),
        ({"fpr_range": (0, 1)}, ValueError, "fpr_range: ap does not take it"),
        ({"ties": "random"}, ValueError, "ties: unknown word 'random'"),
        ({"swallowed": 1}, TypeError, "swallowed"),
    ],
)
def test_option_without_effect_is_refused(options, error, message):
    with pytest.raises(error, match=message):
        create_metric("ap", **options)


def test_definition_says_cutoff_gain_ties_and_empty_policy():
    metric = create_metric("ndcg@10", gain="linear", ties="stable")
    text = metric.define("zero")
    for part in (
        "first 10 positions",
        "gain y,",
        "1/log2(rank + 1)",
        "k: 10",
        "in the order of the input",
        "count as 0",
    ):
        assert part in text


def test_own_gain_is_named_in_the_definition():
    def cubic(grades):
        return grades**3

    assert "gain cubic" in create_metric("ndcg", gain=cubic).definition


@pytest.mark.parametrize("record", list(METRICS), ids=lambda record: record.name)
def test_every_record_can_be_made_and_says_what_it_is(record):
    for name in (record.name, *record.aliases):
        metric = create_metric(name)
        assert metric.record is record
        assert "{" not in metric.definition
        assert record.summary


def test_same_name_twice_is_refused_and_a_label_tells_them_apart():
    linear = create_metric("ndcg", gain="linear")
    with pytest.raises(ValueError, match="'ndcg' is there twice"):
        create_metrics(["ndcg", linear])
    names = [
        metric.name for metric in create_metrics(["ndcg", create_metric("ndcg", gain="linear", label="linear ndcg")])
    ]
    assert names == ["ndcg", "linear ndcg"]
