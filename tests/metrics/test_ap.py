"""Average precision against scikit-learn and the plain definition."""

from __future__ import annotations

import math

import pytest
import torch

from oracles import metrics as oracle
from rankwise.metrics import average_precision


def cases(size, length, seed, *, weighted):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(size, length, generator=generator, dtype=torch.float64)
    # Every other list has ties.
    scores[::2] = (2 * scores[::2]).round()
    labels = torch.randint(2, (size, length), generator=generator)
    labels[:, 0], labels[:, 1] = 1, 0
    weights = torch.rand(size, length, generator=generator, dtype=torch.float64) + 0.01 if weighted else None
    return scores, labels, weights


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("length", [3, 17])
@pytest.mark.parametrize("lists", [400, pytest.param(2500, marks=pytest.mark.slow)])
def test_scikit_learn_agrees_list_by_list(lists, length, weighted, scikit_learn):
    scores, labels, weights = cases(lists, length, seed=length, weighted=weighted)
    ours = average_precision(scores, labels, weights=weights, reduction="none")
    rows = zip(labels.numpy(), scores.numpy(), [None] * lists if weights is None else weights.numpy(), strict=True)
    with scikit_learn.config_context(assume_finite=True, skip_parameter_validation=True):
        theirs = [scikit_learn.metrics.average_precision_score(y, s, sample_weight=w) for y, s, w in rows]
    torch.testing.assert_close(ours, torch.tensor(theirs, dtype=torch.float64), rtol=0, atol=1e-9)


def test_plain_definition_agrees():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(4, (300, 6), generator=generator).float()
    labels = torch.randint(2, (300, 6), generator=generator)
    ours = average_precision(scores, labels, reduction="none")
    plain = [
        oracle.average_precision(list(zip(s, y, strict=True)))
        for s, y in zip(scores.tolist(), labels.tolist(), strict=True)
    ]
    torch.testing.assert_close(ours, torch.tensor(plain, dtype=torch.float64), rtol=0, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("labels", [[1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1]])
def test_six_equal_scores_are_one_threshold(labels):
    assert average_precision([0.5] * 6, labels).item() == pytest.approx(1 / 3, abs=1e-12)


def test_pessimistic_and_stable_order_tied_items_as_they_say():
    scores, labels = [0.5, 0.5, 0.5], [1, 0, 0]
    assert average_precision(scores, labels, ties="pessimistic").item() == pytest.approx(1 / 3)
    assert average_precision(scores, labels, ties="stable").item() == 1
    assert average_precision(scores, labels[::-1], ties="stable").item() == pytest.approx(1 / 3)


@pytest.mark.parametrize("empty, expected", [("skip", 1.0), ("zero", 0.5), ("one", 1.0)])
def test_list_without_a_relevant_item_counts_as_the_policy_says(empty, expected):
    assert average_precision([[2.0, 1.0], [2.0, 1.0]], [[1, 0], [0, 0]], empty=empty).item() == expected


def test_list_without_a_relevant_item_is_refused_on_request():
    with pytest.raises(ValueError, match="1 of 2 lists"):
        average_precision([[2.0, 1.0], [2.0, 1.0]], [[1, 0], [0, 0]], empty="error")


def test_mean_of_no_list_is_nan():
    assert math.isnan(average_precision([1.0, 2.0], [0, 0]).item())


def test_long_list_with_rare_positives_agrees_with_scikit_learn(scikit_learn):
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(200_000, generator=generator)
    labels = (torch.rand(200_000, generator=generator) < 0.01).long()
    assert average_precision(scores, labels).item() == pytest.approx(
        scikit_learn.metrics.average_precision_score(labels.numpy(), scores.numpy()), abs=1e-12
    )


def test_ragged_lists_of_any_length_have_the_values_of_single_lists():
    generator = torch.Generator().manual_seed(2)
    query_ids = torch.randint(-3, 4, (500,), generator=generator) ** 3
    scores = torch.randn(500, generator=generator)
    labels = torch.randint(2, (500,), generator=generator)
    together = average_precision(scores, labels, query_ids=query_ids, reduction="none")
    single = [average_precision(scores[query_ids == q], labels[query_ids == q]) for q in query_ids.unique()]
    torch.testing.assert_close(together, torch.stack(single), rtol=0, atol=1e-14)
