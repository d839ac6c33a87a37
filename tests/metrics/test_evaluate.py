"""Evaluation: what it reports, and that its intervals mean something."""

from __future__ import annotations

import json
import math

import pytest
import torch

from rankwise import metrics
from rankwise.metrics import create_metric, evaluate, merge_evaluations


def random_lists(size=60, length=12, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(size, length, generator=generator)
    labels = torch.randint(2, (size, length), generator=generator)
    return scores, labels


def test_means_are_those_of_the_functions():
    scores, labels = random_lists()
    result = evaluate(
        scores, labels, ["ap", "ndcg@3", "pap@2", "precision@4", "recall@4", "hit@1", "mrr", "auroc", "pauroc"]
    )
    expected = {
        "ap": metrics.average_precision(scores, labels),
        "ndcg@3": metrics.ndcg(scores, labels, k=3),
        "pap@2": metrics.pap(scores, labels, k=2),
        "precision@4": metrics.precision(scores, labels, k=4),
        "recall@4": metrics.recall(scores, labels, k=4),
        "hit@1": metrics.hit_rate(scores, labels, k=1),
        "mrr": metrics.reciprocal_rank(scores, labels),
        "auroc": metrics.auroc(scores, labels),
        "pauroc": metrics.partial_auroc(scores, labels),
    }
    assert list(result.means) == list(expected)
    assert result.means == pytest.approx({name: value.item() for name, value in expected.items()}, abs=1e-14)


def test_per_query_values_come_in_the_order_of_the_ids():
    scores, labels = random_lists(3)
    ids = torch.tensor([7, -2, 5])
    ragged = evaluate(scores.flatten(), labels.flatten(), "ap", query_ids=ids.repeat_interleave(12), bootstrap=0)
    rows = evaluate(scores, labels, "ap", query_ids=ids, bootstrap=0)
    assert ragged.query_ids.tolist() == [-2, 5, 7]
    assert rows.query_ids.tolist() == [7, -2, 5]
    torch.testing.assert_close(ragged.per_query["ap"], rows.per_query["ap"][[1, 2, 0]])


def test_lists_of_very_different_length_keep_their_order():
    lengths = torch.tensor([500, 3, 40, 2, 900])
    ids = torch.arange(5).repeat_interleave(lengths)
    generator = torch.Generator().manual_seed(0)
    scores, labels = torch.randn(len(ids), generator=generator), torch.randint(2, (len(ids),), generator=generator)
    together = evaluate(scores, labels, ["ap", "ndcg@5"], query_ids=ids, bootstrap=0)
    for index in range(5):
        alone = evaluate(scores[ids == index], labels[ids == index], ["ap", "ndcg@5"], bootstrap=0)
        for name in ("ap", "ndcg@5"):
            torch.testing.assert_close(together.per_query[name][index], alone.per_query[name][0], equal_nan=True)


def test_columns_are_lists_of_a_multi_label_problem():
    scores, labels = random_lists(20, 4)
    columns = evaluate(scores, labels, "ap", lists="columns", bootstrap=0)
    torch.testing.assert_close(columns.per_query["ap"], metrics.average_precision(scores.T, labels.T, reduction="none"))
    assert columns.query_ids.tolist() == [0, 1, 2, 3]


def test_share_of_tied_lists_is_reported():
    assert evaluate([[1.0, 1.0], [1.0, 2.0]], [[1, 0]] * 2, "ap", bootstrap=0).tied == 0.5


@pytest.mark.parametrize("empty, mean", [("skip", 1.0), ("zero", 0.5), ("one", 1.0)])
def test_empty_policy_fills_values_and_the_count_stays(empty, mean):
    result = evaluate([[2.0, 1.0]] * 2, [[1, 0], [0, 0]], "ap", empty=empty, bootstrap=0)
    assert result.means["ap"] == mean
    assert result.skipped["ap"] == 1
    assert math.isnan(result.per_query["ap"][1]) == (empty == "skip")


def test_query_weight_2_is_the_list_twice():
    scores, labels = random_lists(5)
    weights = torch.tensor([2.0, 1, 0, 1, 1])
    twice = torch.tensor([0, 0, 1, 3, 4])
    weighted = evaluate(scores, labels, "ap", query_weights=weights, bootstrap=0).means["ap"]
    assert weighted == pytest.approx(evaluate(scores[twice], labels[twice], "ap", bootstrap=0).means["ap"], abs=1e-14)


def test_metrics_with_options_of_their_own_stand_beside_named_ones():
    scores, grades = random_lists()[0], torch.randint(5, (60, 12), generator=torch.Generator().manual_seed(1))
    linear = create_metric("ndcg@5", gain="linear", label="ndcg@5 linear")
    result = evaluate(scores, grades, ["ndcg@5", linear], bootstrap=0)
    assert result.means["ndcg@5"] == pytest.approx(metrics.ndcg(scores, grades, k=5).item())
    assert result.means["ndcg@5 linear"] == pytest.approx(metrics.ndcg(scores, grades, k=5, gain="linear").item())


def test_interval_over_lists_has_the_width_of_the_standard_error():
    scores, labels = random_lists(2000, 10)
    result = evaluate(scores, labels, ["ap", "auroc"], bootstrap=2000)
    for name in result.means:
        values = result.per_query[name]
        values = values[~torch.isnan(values)]
        error = (values.std() / len(values) ** 0.5).item()
        low, high = result.intervals[name]
        assert low == pytest.approx(result.means[name] - 1.96 * error, abs=0.15 * error)
        assert high == pytest.approx(result.means[name] + 1.96 * error, abs=0.15 * error)


def test_wider_confidence_has_a_wider_interval():
    scores, labels = random_lists()
    narrow, wide = (evaluate(scores, labels, "ap", confidence=level).intervals["ap"] for level in (0.5, 0.99))
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_interval_depends_on_the_seed_alone():
    scores, labels = random_lists()
    first, again, other = (evaluate(scores, labels, "ap", seed=seed).intervals["ap"] for seed in (3, 3, 4))
    assert first == again != other


def test_no_replicates_no_intervals():
    scores, labels = random_lists()
    assert evaluate(scores, labels, "ap", bootstrap=0).intervals == {}


def test_table_shows_mean_interval_counts_and_definition():
    scores, labels = random_lists()
    labels[0] = 0
    text = str(evaluate(scores, labels, ["ap", "pap@30"]))
    header, ap, missing, *rest = text.splitlines()
    assert header.split() == ["metric", "mean", "95%", "interval", "lists", "left", "out"]
    assert ap.split()[0] == "ap"
    assert ap.split()[-2:] == ["60", "1"]
    assert missing.split() == ["pap@30", "nan", "-", "60", "60"]
    assert rest[0] == "tied scores in 0.0% of the lists"
    assert rest[1].startswith("ap: mean over the relevant items")


def test_dictionary_survives_json():
    scores, labels = random_lists(4)
    result = evaluate(scores, labels, ["ap"])
    plain = json.loads(json.dumps(result.to_dict(per_query=True)))
    assert plain["means"] == result.means
    assert plain["per_query"]["ap"] == result.per_query["ap"].tolist()
    assert plain["intervals"]["ap"] == list(result.intervals["ap"])
    assert "per_query" not in result.to_dict()


def test_evaluations_of_other_lists_merge_into_one():
    random = torch.Generator().manual_seed(0)
    scores, labels = torch.rand(20, 6, generator=random), torch.randint(0, 2, (20, 6), generator=random)
    ids = torch.randperm(20, generator=random)
    whole = evaluate(scores[ids.argsort()], labels[ids.argsort()], ["ap", "recall@2"], query_ids=ids.sort().values)
    parts = [
        evaluate(scores[rows], labels[rows], ["ap", "recall@2"], query_ids=ids[rows], bootstrap=0)
        for rows in torch.arange(20).split([3, 16, 1])
    ]
    merged = merge_evaluations(parts)
    assert merged.means == pytest.approx(whole.means, abs=1e-15)
    assert merged.intervals == {name: pytest.approx(each, abs=1e-15) for name, each in whole.intervals.items()}
    assert torch.equal(merged.query_ids, whole.query_ids)
    assert (merged.skipped, merged.tied) == (whole.skipped, pytest.approx(whole.tied))


def test_what_cannot_be_merged_is_refused():
    one, other = (evaluate([[0.9, 0.8]], [[1, 0]], name, query_ids=[1], bootstrap=0) for name in ("ap", "auroc"))
    with pytest.raises(ValueError, match="evaluations: expected at least one, got none"):
        merge_evaluations([])
    with pytest.raises(ValueError, match="expected the same metrics in all, got ap and auroc"):
        merge_evaluations([one, other])
    with pytest.raises(ValueError, match="expected every list in one of them, got the list 1 in two"):
        merge_evaluations([one, one])


@pytest.mark.parametrize("weights", [[-1.0, 2.0], [0.0, 0.0]])
def test_weights_of_queries_below_0_or_all_0_are_refused(weights):
    scores, labels = random_lists(2)
    with pytest.raises(ValueError, match="query_weights: expected numbers of 0 or more, not all 0"):
        evaluate(scores, labels, "ap", query_weights=weights)
