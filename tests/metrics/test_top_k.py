"""Precision, recall and R-precision are means over all tie orders."""

from __future__ import annotations

import pytest
import torch

from oracles import metrics as oracle
from rankwise.metrics import create_metric, evaluate, precision, recall


def small_lists(seed):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(3, (80, 6), generator=generator).float()
    return scores, torch.randint(2, (80, 6), generator=generator)


def plain(of_list, scores, labels, *options):
    rows = zip(scores.tolist(), labels.tolist(), strict=True)
    return torch.tensor([of_list(list(zip(s, y, strict=True)), *options) for s, y in rows], dtype=torch.float64)


@pytest.mark.parametrize("k", [None, 1, 2, 3, 6, 9])
@pytest.mark.parametrize("ours, theirs", [(precision, oracle.precision), (recall, oracle.recall)])
def test_ties_are_the_mean_over_their_orders(ours, theirs, k):
    scores, labels = small_lists(0)
    found = ours(scores, labels, k=k, reduction="none")
    torch.testing.assert_close(found, plain(theirs, scores, labels, k), rtol=0, atol=1e-12, equal_nan=True)


def test_r_precision_is_the_mean_over_tie_orders():
    scores, labels = small_lists(1)
    found = evaluate(scores, labels, "r-precision", bootstrap=0).per_query["r-precision"]
    torch.testing.assert_close(found, plain(oracle.r_precision, scores, labels), rtol=0, atol=1e-12, equal_nan=True)


def test_precision_of_a_short_list_divides_by_k():
    assert precision([2.0, 1.0], [1, 1], k=4).item() == 0.5


def test_precision_of_a_list_without_relevant_items_is_zero_not_undefined():
    assert precision([[2.0, 1.0]], [[0, 0]], k=1, reduction="none").tolist() == [0.0]


def test_fractional_weight_takes_a_part_of_the_cutoff():
    assert recall([2.0, 1.0], [0, 1], k=2, weights=[1.5, 1.0]).item() == pytest.approx(0.5)
    assert precision([2.0, 1.0], [0, 1], k=2, weights=[1.5, 1.0]).item() == pytest.approx(0.25)


def test_definition_of_precision_says_what_it_divides_by():
    assert "divided by 10" in create_metric("precision@10").definition
