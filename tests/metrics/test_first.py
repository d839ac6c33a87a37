"""Hit rate, reciprocal rank and mAP@R are means over all tie orders."""

from __future__ import annotations

import pytest
import torch

from oracles import metrics as oracle
from rankwise.metrics import evaluate, hit_rate, reciprocal_rank


def small_lists(seed):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(3, (80, 6), generator=generator).float()
    return scores, torch.randint(2, (80, 6), generator=generator) * torch.randint(2, (80, 6), generator=generator)


def plain(of_list, scores, labels, *options):
    rows = zip(scores.tolist(), labels.tolist(), strict=True)
    return torch.tensor([of_list(list(zip(s, y, strict=True)), *options) for s, y in rows], dtype=torch.float64)


@pytest.mark.parametrize("k", [None, 1, 2, 3, 6, 9])
@pytest.mark.parametrize("ours, theirs", [(hit_rate, oracle.hit), (reciprocal_rank, oracle.reciprocal_rank)])
def test_ties_are_the_mean_over_their_orders(ours, theirs, k):
    scores, labels = small_lists(0)
    found = ours(scores, labels, k=k, reduction="none")
    torch.testing.assert_close(found, plain(theirs, scores, labels, k), rtol=0, atol=1e-12, equal_nan=True)


def test_map_at_r_is_the_mean_over_tie_orders():
    scores, labels = small_lists(1)
    found = evaluate(scores, labels, "map@r", bootstrap=0).per_query["map@r"]
    torch.testing.assert_close(found, plain(oracle.map_at_r, scores, labels), rtol=0, atol=1e-12, equal_nan=True)


def test_long_tie_group_has_the_hypergeometric_chance():
    # 3 relevant among 100,000 equal scores: 1 - C(n-3, k)/C(n, k).
    labels = torch.zeros(100_000)
    labels[:3] = 1
    n, k = 100_000, 1000
    missed = ((n - k) / n) * ((n - k - 1) / (n - 1)) * ((n - k - 2) / (n - 2))
    assert hit_rate(torch.zeros(n), labels, k=k).item() == pytest.approx(1 - missed, abs=1e-12)


@pytest.mark.parametrize("metric", [hit_rate, reciprocal_rank])
def test_weights_other_than_0_and_1_are_refused(metric):
    with pytest.raises(ValueError, match=r"weights: .* 0 or 1 only"):
        metric([1.0, 2.0], [1, 0], weights=[0.5, 1.0])


def test_item_of_weight_0_is_absent():
    assert reciprocal_rank([3.0, 2.0, 1.0], [0, 0, 1], weights=[0, 1, 1]).item() == 0.5
