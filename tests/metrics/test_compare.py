"""Paired comparison of two systems."""

from __future__ import annotations

import json
import math
from itertools import product

import pytest
import torch

from rankwise.metrics import compare, compare_items, evaluate


def paired(size, effect, seed=0):
    generator = torch.Generator().manual_seed(seed)
    b = torch.rand(size, generator=generator, dtype=torch.float64)
    return b + effect + 0.1 * torch.randn(size, generator=generator, dtype=torch.float64), b


def test_few_pairs_are_enumerated():
    a, b = paired(9, 0.05)
    differences = (a - b).tolist()
    sums = [sum(s * d for s, d in zip(signs, differences, strict=True)) for signs in product((-1, 1), repeat=9)]
    expected = sum(abs(value) >= abs(sum(differences)) - 1e-12 for value in sums) / 2**9
    result = compare(a, b)
    assert result.exact
    assert "(exact paired permutation test, two-sided)" in str(result)
    assert result.p_value == pytest.approx(expected, abs=1e-15)


def test_sampled_p_value_is_near_that_of_the_normal_distribution():
    a, b = paired(400, 0.01)
    result = compare(a, b)
    differences = a - b
    z = (differences.sum() / differences.square().sum().sqrt()).abs().item()
    assert not result.exact
    assert "(sampled paired permutation test, two-sided)" in str(result)
    assert result.p_value == pytest.approx(math.erfc(z / math.sqrt(2)), abs=0.02)


def test_p_value_is_uniform_where_nothing_differs():
    values = torch.tensor(
        [compare(*paired(30, 0.0, seed), permutations=200, bootstrap=1).p_value for seed in range(200)]
    )
    for level in (0.1, 0.3, 0.5):
        assert (values <= level).double().mean().item() == pytest.approx(level, abs=0.12)


def test_swapping_the_systems_swaps_the_signs():
    a, b = paired(40, 0.03)
    forth, back = compare(a, b), compare(b, a)
    assert forth.difference == pytest.approx(-back.difference)
    assert (forth.wins, forth.losses) == (back.losses, back.wins)
    assert forth.p_value == back.p_value
    assert forth.interval[0] == pytest.approx(-back.interval[1], abs=1e-9)


def test_interval_of_the_difference_is_paired():
    a, b = paired(500, 0.05)
    low, high = compare(a, b).interval
    error = ((a - b).std() / 500**0.5).item()
    assert high - low == pytest.approx(2 * 1.96 * error, rel=0.15)
    assert low < (a - b).mean().item() < high


def test_evaluations_are_paired_by_query_id():
    scores = torch.randn(30, 8, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(4, (30, 8), generator=torch.Generator().manual_seed(1))
    ids, order = torch.arange(30) * 3, torch.randperm(30, generator=torch.Generator().manual_seed(2))
    a = evaluate(scores, labels, "ndcg", query_ids=ids, bootstrap=0)
    b = evaluate(scores[order], labels[order], "ndcg", query_ids=ids[order], bootstrap=0)
    result = compare(a, b)
    assert (result.metric, result.difference, result.p_value) == ("ndcg", 0.0, 1.0)
    assert (result.wins, result.ties, result.losses) == (0, 30, 0)


def test_values_that_differ_by_rounding_only_are_equal():
    a = torch.rand(30, dtype=torch.float64) * 1e6
    result = compare(a, a * (1 + 1e-15 * torch.randn(30, dtype=torch.float64)))
    assert (result.ties, result.difference, result.p_value) == (30, 0.0, 1.0)
    assert compare(a, a * (1 + 1e-9)).losses == 30


def test_query_without_a_value_in_either_is_left_out():
    nan = math.nan
    result = compare(torch.tensor([1.0, nan, 0.5]), torch.tensor([0.0, 1.0, nan]))
    assert (result.pairs, result.mean_a, result.mean_b) == (1, 1.0, 0.0)


def test_text_and_dictionary_say_the_same():
    result = compare(*paired(40, 0.03), metric="ap")
    plain = json.loads(json.dumps(result.to_dict()))
    assert plain["p_value"] == result.p_value
    assert f"{plain['difference']:+.4f}" in str(result)
    assert "40 pairs" in str(result)


def test_a_thousand_replicates_and_ten_thousand_patterns_unless_told():
    values = torch.rand(2, 30, generator=torch.Generator().manual_seed(0))
    assert compare(*values) == compare(*values, bootstrap=1000, permutations=10_000, confidence=0.95, seed=0)
    labels = torch.arange(30) % 3 == 0
    assert compare_items(*values, labels, "ap") == compare_items(*values, labels, "ap", bootstrap=1000)
