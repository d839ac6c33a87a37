"""Pair averages: means of the numbers themselves, in either space, in training and in eval mode."""

from __future__ import annotations

import math

import pytest
import torch

from rankwise.estimators import PairAverages

PAIRS = torch.tensor([[3, 8], [3, 9], [3, 8], [4, 8], [3, 8]])
NUMBERS = torch.tensor([1.0, 7.0, math.exp(10), 2.0, 5.0], dtype=torch.float64)


def run(space, *, update_rate=0.25, training=True, batches=(NUMBERS, 3 * NUMBERS)):
    averages = PairAverages(update_rate, space).double()
    found = []
    for number, batch in enumerate(batches):
        averages.train(training or number == 0)
        values = averages(PAIRS, batch.log() if space == "log" else batch)
        found.append(values.exp() if space == "log" else values)
    return torch.stack(found), averages


def test_repeats_of_a_pair_are_averaged_as_numbers_not_as_logarithms():
    averages = PairAverages(space="log").double()
    pair = torch.tensor([[1, 1], [1, 1]])
    found = averages(pair, torch.tensor([0.0, 10.0], dtype=torch.float64))
    torch.testing.assert_close(found, torch.full((2,), math.log((1 + math.exp(10)) / 2), dtype=torch.float64))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("update_rate", [0.25, 1.0])
def test_both_spaces_average_the_same_numbers(update_rate, training):
    (linear, _), (logarithms, _) = (
        run(space, update_rate=update_rate, training=training) for space in ("linear", "log")
    )
    torch.testing.assert_close(linear, logarithms, rtol=1e-12, atol=0)


@pytest.mark.parametrize("space", ["linear", "log"])
def test_eval_mode_gives_what_an_update_would_give_and_writes_nothing(space):
    wanted, _ = run(space)
    found, averages = run(space, training=False)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=0)
    assert not torch.equal(averages.table.rows, run(space)[1].table.rows)


def test_logarithms_of_any_size_are_averaged():
    averages = PairAverages(space="log").double()
    pair = torch.zeros(2, 2, dtype=torch.int64)
    for size in (-1e30, 800.0, 1e30):
        found = averages(pair + int(size > 0), torch.tensor([size, size], dtype=torch.float64))
        assert bool(torch.isfinite(found).all())
    fresh = PairAverages(space="log").double()
    found = fresh(pair, torch.tensor([-2000.0, 900.0], dtype=torch.float64))
    torch.testing.assert_close(found, torch.full((2,), 900 - math.log(2), dtype=torch.float64))


def test_logarithms_of_0_are_averaged_as_numbers():
    averages = PairAverages(0.5, space="log").double()
    pairs = torch.tensor([[1, 1], [1, 1], [2, 1], [2, 1]])
    observed = torch.tensor([0.0, 0.0, 0.0, 6.0], dtype=torch.float64).log()
    torch.testing.assert_close(averages(pairs, observed).exp(), torch.tensor([0.0, 0.0, 3.0, 3.0]).double())
    torch.testing.assert_close(averages(pairs, observed + 0).exp(), torch.tensor([0.0, 0.0, 3.0, 3.0]).double())
