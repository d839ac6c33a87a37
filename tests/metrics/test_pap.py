"""pAp@k against its printed definition."""

from __future__ import annotations

import warnings

import pytest
import torch

from oracles import metrics as oracle
from rankwise.metrics import auroc, create_metric, evaluate, pap


def small_lists(seed):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(6, (300, 9), generator=generator).float()
    return scores, torch.randint(2, (300, 9), generator=generator)


@pytest.mark.parametrize("k", [None, 1, 2, 3, 5])
@pytest.mark.parametrize("ties, tie", [("pessimistic", 1.0), ("average", 0.5)])
def test_printed_definition_agrees(k, ties, tie):
    scores, labels = small_lists(0)
    ours = pap(scores, labels, k=k, ties=ties, reduction="none")
    rows = zip(scores.tolist(), labels.tolist(), strict=True)
    plain = [oracle.pap(list(zip(s, y, strict=True)), k, tie) for s, y in rows]
    torch.testing.assert_close(ours, torch.tensor(plain, dtype=torch.float64), rtol=0, atol=1e-12, equal_nan=True)


def test_ties_are_errors_unless_told_otherwise():
    assert pap([1.0, 1.0], [1, 0], k=1).item() == 0
    assert create_metric("pap@1").ties == "pessimistic"


def test_constant_scores_are_warned_of_where_they_would_look_good():
    with pytest.warns(UserWarning, match="lists of constant scores"):
        assert pap([[1.0, 1.0, 1.0], [3.0, 2.0, 1.0]], [[1, 0, 0]] * 2, k=2, ties="average").item() == 0.75


def test_constant_scores_are_warned_of_once():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        for lists in (1, 2, 3):
            pap([[1.0, 1.0, 1.0]] * lists, [[1, 0, 0]] * lists, k=2, ties="average")
    assert len(said) == 1


def test_constant_scores_are_not_warned_of_where_ties_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pap([1.0, 1.0, 1.0], [1, 0, 0], k=2).item() == 0


def test_list_with_fewer_than_k_negatives_or_no_positive_is_left_out_and_counted():
    result = evaluate([[3.0, 2.0, 1.0]] * 3, [[1, 0, 0], [1, 1, 0], [0, 0, 0]], "pap@2", bootstrap=0)
    assert torch.isnan(result.per_query["pap@2"]).tolist() == [False, True, True]
    assert result.skipped == {"pap@2": 2}


def test_micro_pap_is_the_mean_over_users():
    scores, labels = small_lists(1)
    values = pap(scores, labels, k=2, reduction="none")
    mean = evaluate(scores, labels, "micro-pap@2", bootstrap=0).means["micro-pap@2"]
    assert mean == pytest.approx(values.nanmean().item(), abs=1e-12)


def test_example_of_the_methods_page_has_its_risk():
    # positives {10, -1}, negatives {0, 0}, k = 2: risk 1/2.
    assert pap([10.0, -1.0, 0.0, 0.0], [1, 1, 0, 0], k=2).item() == 0.5


def test_a_positive_beyond_the_best_is_not_counted_again_however_much_it_weighs():
    weights = torch.tensor([1e50, 1e20, 1e50], dtype=torch.float64)
    assert pap([0.9, 0.5, 0.1], [0, 1, 1], k=3, weights=weights) == 0
    assert pap([0.1, 0.9, 0.5], [0, 1, 1], k=3, weights=weights) == 1


def test_no_positives_is_undefined_with_weights_too():
    assert pap([0.9, 0.5], [0, 0], k=1, weights=[1.0, 2.0]).isnan()


@pytest.mark.parametrize("metric", [pap, auroc])
def test_rounding_does_not_lead_below_0(metric):
    """Every pair in the wrong order, by weights whose sums are rounded."""
    generator = torch.Generator().manual_seed(0)
    labels = (torch.arange(9) < 4).long()
    for _ in range(200):
        weights = torch.rand(9, generator=generator, dtype=torch.float64)
        assert 0 <= float(metric(torch.arange(9.0), labels, weights=weights)) < 1e-12
