"""Every metric of the registry keeps the contract, and the contract notices metrics that do not."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankwise.lists import pack
from rankwise.metrics import METRICS, Metric, create_metric, evaluate
from rankwise.metrics.metric import measure_lists
from rankwise.registry import MetricRecord
from rankwise.testing import check_metric

NAMES = [
    name for record in METRICS for name in [record.name] + [f"{record.name}@{k}" for k in (1, 3, 40) if record.takes_k]
]
TIES = ("average", "pessimistic", "stable")


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("name", NAMES)
def test_metric_keeps_the_contract(name, ties):
    check_metric(create_metric(name, ties=ties))


def by_hand(per_list, **options):
    return Metric("own", MetricRecord("own", "", per_list, definition="", **options))


def first_score(ranked):
    return ranked.lists.scores[:, 0].double().sigmoid()


def share_of_slots(ranked):
    return ranked.positives.count / ranked.lists.mask.shape[1]


def score_above_zero(ranked):
    return ((ranked.lists.scores > 0) & ranked.lists.mask).sum(1) / ranked.size


def mean_of_batch(ranked):
    return (ranked.positives.count / ranked.positives.size).mean().expand(len(ranked.positives.count))


def label_of_best(ranked):
    return ranked.labels[:, 0].double()


def blind_to_weights(ranked):
    return (ranked.labels > 0).sum(1) / ranked.mask.sum(1)


@pytest.mark.parametrize(
    "per_list, broken",
    [
        (first_score, "order of the items"),
        (share_of_slots, "width of the padding"),
        (score_above_zero, "increasing transform"),
        (mean_of_batch, "other lists"),
        (label_of_best, "order of the items"),
        (blind_to_weights, "weight 2"),
    ],
)
def test_broken_metric_is_told_which_property_it_breaks(per_list, broken):
    with pytest.raises(AssertionError, match=broken):
        check_metric(by_hand(per_list))


scores = st.integers(-3, 3).map(float)


@st.composite
def ragged(draw):
    """Some lists of 1 to 7 items with many ties: scores, binary labels, whole weights."""
    item = st.tuples(scores, st.integers(0, 1), st.integers(0, 3))
    return draw(st.lists(st.lists(item, min_size=1, max_size=7), min_size=1, max_size=5))


def flat(lists):
    ids = [index for index, items in enumerate(lists) for _ in items]
    columns = [torch.tensor([item[column] for items in lists for item in items]) for column in range(3)]
    return torch.tensor(ids), *columns


def all_values(scores, labels, names=tuple(NAMES), **options):
    metrics = [create_metric(name) for name in names]
    return torch.stack(list(measure_lists(pack(scores, labels, **options), metrics)[0].values()))


def assert_same(found, expected):
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12, equal_nan=True)


@given(ragged(), st.randoms(use_true_random=False))
def test_order_of_the_input_changes_nothing(lists, random):
    ids, values, labels, _ = flat(lists)
    order = list(range(len(ids)))
    random.shuffle(order)
    moved = all_values(values[order], labels[order], query_ids=ids[order])
    assert_same(moved, all_values(values, labels, query_ids=ids))


@given(ragged())
def test_padded_lists_have_the_values_of_ragged_lists(lists):
    ids, values, labels, _ = flat(lists)
    width = max(map(len, lists)) + 2
    padded, grades, mask = (
        torch.full((len(lists), width), 9.0),
        torch.ones(len(lists), width),
        torch.zeros(len(lists), width),
    )
    for row, items in enumerate(lists):
        padded[row, : len(items)] = torch.tensor([item[0] for item in items])
        grades[row, : len(items)] = torch.tensor([float(item[1]) for item in items])
        mask[row, : len(items)] = 1
    assert_same(all_values(padded, grades, mask=mask.bool()), all_values(values, labels, query_ids=ids))


@given(ragged())
def test_increasing_transform_changes_nothing(lists):
    ids, values, labels, _ = flat(lists)
    expected = all_values(values, labels, query_ids=ids)
    assert_same(all_values(values.exp(), labels, query_ids=ids), expected)
    assert_same(all_values(values * 1e30 - 1e29, labels, query_ids=ids), expected)
    assert_same(all_values(values.half(), labels, query_ids=ids), expected)


WEIGHTED = tuple(
    name for name in NAMES if METRICS.get(name if name == "map@r" else name.split("@")[0]).takes_item_weights
)


@given(ragged())
def test_weight_counts_copies_and_weight_0_is_absence(lists):
    ids, values, labels, weights = flat(lists)
    weights[ids.diff(prepend=torch.tensor([-1])) != 0] = 1
    copies = torch.repeat_interleave(torch.arange(len(ids)), weights)
    weighted = all_values(values, labels, WEIGHTED, query_ids=ids, weights=weights)
    assert_same(weighted, all_values(values[copies], labels[copies], WEIGHTED, query_ids=ids[copies]))


@given(ragged())
def test_values_lie_between_0_and_1_or_are_nan(lists):
    ids, values, labels, _ = flat(lists)
    found = all_values(values, labels, query_ids=ids)
    assert bool((torch.isnan(found) | ((found >= 0) & (found <= 1 + 1e-12))).all())


@pytest.mark.filterwarnings("ignore:query_ids. each of the")
@given(ragged())
def test_what_is_left_out_is_what_has_no_value(lists):
    ids, values, labels, _ = flat(lists)
    result = evaluate(values, labels, ["ap", "auroc", "pap@2"], query_ids=ids, bootstrap=0)
    positives, negatives = torch.bincount(ids, labels), torch.bincount(ids, 1 - labels)
    assert torch.equal(torch.isnan(result.per_query["ap"]), positives == 0)
    assert torch.equal(torch.isnan(result.per_query["auroc"]), (positives == 0) | (negatives == 0))
    assert torch.equal(torch.isnan(result.per_query["pap@2"]), (positives == 0) | (negatives < 2))
    assert result.skipped["ap"] == int((positives == 0).sum())
