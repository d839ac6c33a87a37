"""Two systems on one list: a paired bootstrap that sees a difference where there is one, and only there."""

from __future__ import annotations

import pytest
import torch

from rankwise.metrics import average_precision, compare_items, evaluate_grades


def problem(items=400, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(items, generator=generator) < 0.15).long()
    return labels, torch.randn(items, generator=generator), torch.randn(items, generator=generator)


def test_means_are_the_metric():
    labels, first, second = problem()
    found = compare_items(first + labels, second + labels, labels, "ap")
    assert found.mean_a == pytest.approx(float(average_precision(first.double() + labels, labels)))
    assert found.difference == pytest.approx(found.mean_a - found.mean_b)


def test_a_clear_difference_is_seen_and_changes_sign_with_the_order():
    labels, first, second = problem()
    one = compare_items(first + 3 * labels, second + labels, labels, "ap")
    other = compare_items(second + labels, first + 3 * labels, labels, "ap")
    assert one.p_value < 0.01
    assert one.interval[0] > 0
    assert other.interval == pytest.approx((-one.interval[1], -one.interval[0]), abs=1e-12)


def test_equal_systems_differ_by_nothing():
    labels, first, _ = problem()
    found = compare_items(first, 2 * first.double() + 7, labels, "ap")
    assert (found.difference, found.p_value, found.ties) == (0, 1, 1)


def test_the_p_value_is_about_uniform_without_a_difference():
    values = []
    for seed in range(60):
        labels, first, second = problem(seed=seed)
        values.append(compare_items(first + labels, second + labels, labels, "ap", bootstrap=200).p_value)
    below = sum(value < 0.2 for value in values) / len(values)
    assert 0.05 < below < 0.4


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((torch.zeros(3), torch.zeros(4), torch.zeros(3)), "scores_b: expected the shape of scores_a"),
        ((torch.zeros(2, 2, 3), torch.zeros(2, 2, 3), torch.zeros(3)), "scores_a: expected one list"),
        ((torch.zeros(2, 3), torch.zeros(2, 3), torch.zeros(2, 3)), "labels: expected the shape of a list of scores_a"),
        ((torch.zeros(3), torch.zeros(3), torch.zeros(3)), "labels: expected a list on which ap is defined"),
    ],
)
def test_wrong_input_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        compare_items(*arguments, "ap")


def test_grades_count_as_relevant_for_binary_metrics():
    found = evaluate_grades([0.9, 0.5, 0.1, 0.3], [2, 0, 1, 0], ["ap", "ndcg", "recall@1"], bootstrap=50)
    assert list(found.means) == ["ap", "ndcg", "recall@1"]
    assert found.means["recall@1"] == 0.5
    assert set(found.definitions) == set(found.means) == set(found.per_query) == set(found.skipped)


def test_the_values_of_several_runs_are_averaged():
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(300) % 5 == 0
    first, second = (torch.randn(3, 300, generator=generator) + shift * labels for shift in (2.0, 1.0))
    found = compare_items(first, second, labels, "ap")
    means = [sum(float(average_precision(each, labels)) for each in runs) / 3 for runs in (first, second)]
    assert [found.mean_a, found.mean_b] == pytest.approx(means)
    # The luck of single runs is averaged, so that the interval is narrower than theirs.
    single = [compare_items(a, b, labels, "ap") for a, b in zip(first, second, strict=True)]
    widths = [each.interval[1] - each.interval[0] for each in (found, *single)]
    assert widths[0] < min(widths[1:])
    # Equal runs say no more than one.
    same = compare_items(first[:1].expand(3, -1), second[:1].expand(3, -1), labels, "ap")
    assert same.interval == pytest.approx(single[0].interval)
