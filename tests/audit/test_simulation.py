"""The paper's simulation: METHODS 1.5 comes out, whatever else is changed."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from scipy import stats

from rankwise.audit import simulate
from rankwise.audit.simulation import DISTRIBUTIONS, RATES
from rankwise.data.expectations import training_prior

# The plain AP loss at 1 % and at 20 % positives, and 1 - AUPRC, as METHODS has them (from one draw of 100,000 scores).
EXPECTED = {
    "binormal": (0.23, -0.17, 0.7106),
    "bibeta": (0.32, -0.08, 0.1866),
    "offset uniform": (0.14, -0.09, 0.3488),
}
SPREADS = {
    "binormal": (stats.norm(1, 1), stats.norm(0, 1)),
    "bibeta": (stats.beta(5, 2), stats.beta(2, 5)),
    "offset uniform": (stats.uniform(0.5, 1), stats.uniform(0, 1)),
}


@pytest.fixture(scope="module")
def result():
    return simulate(repeats=100, rates=(0.01, 0.1, 0.2))


def check(result, *, noise):
    """`noise`: what fewer batches than the paper's add to the errors of the means."""
    for case in result.cases:
        under, over, truth = EXPECTED[case.distribution]
        assert case.truth == pytest.approx(truth, abs=0.02)
        assert abs(case.ours.mean()) <= 0.015, (case.distribution, case.rate)
        if case.rate == 0.01:
            assert case.plain.mean() == pytest.approx(under, abs=0.02 + noise)
        if case.rate == 0.1:
            assert abs(case.plain.mean()) < 0.015
        if case.rate == 0.2:
            assert case.plain.mean() == pytest.approx(over, abs=0.02)


def test_ours_is_unbiased_at_any_sampling_rate_and_the_plain_loss_is_not(result):
    check(result, noise=0.01)


@pytest.mark.slow
def test_the_paper_s_numbers_of_batches_give_the_same():
    full = simulate()
    assert [case.rate for case in full.cases] == [*RATES] * 3
    check(full, noise=0)


def test_the_truth_is_that_of_the_distributions(result):
    """1 - AUPRC by integration over the quantiles of the positives."""
    levels = (np.arange(200_000) + 0.5) / 200_000
    for case in result.cases:
        positives, negatives = SPREADS[case.distribution]
        scores = positives.ppf(levels)
        odds = 9 * negatives.sf(scores) / positives.sf(scores)
        assert case.truth == pytest.approx((odds / (1 + odds)).mean(), abs=0.012)


def test_scores_are_drawn_from_the_distributions_of_the_paper():
    random = np.random.default_rng(0)
    for distribution in DISTRIBUTIONS:
        for draw, spread in zip(
            (distribution.positives, distribution.negatives), SPREADS[distribution.name], strict=True
        ):
            assert stats.kstest(draw(random, 5000), spread.cdf).pvalue > 1e-3


def test_the_memory_is_closer_than_a_batch_and_more_positives_closer_than_few(result):
    for case in result.cases:
        assert case.memory_error < 0.5 * case.interpolation_error
    for name in EXPECTED:
        errors = [case.interpolation_error for case in result.cases if case.distribution == name]
        assert errors == sorted(errors, reverse=True)


def test_the_table_holds_every_case(result):
    rows = list(csv.DictReader(io.StringIO(result.to_csv())))
    assert len(rows) == len(result.cases)
    for row, case in zip(rows, result.cases, strict=True):
        assert row["distribution"] == case.distribution
        assert float(row["rate"]) == case.rate
        assert int(row["batch_positives"]) == round(2000 * case.rate) == case.positives
        assert float(row["soprc_bias"]) == pytest.approx(case.ours.mean(), rel=1e-4)
        assert float(row["plain_std"]) == pytest.approx(case.plain.std(), rel=1e-4)


def test_the_sentence_says_what_the_numbers_say(result):
    assert f"at most {max(abs(case.ours.mean()) for case in result.cases):.3f}" in result.sentence
    assert f"{max(case.plain.mean() for case in result.cases):+.2f}" in result.sentence
    assert f"AUPRCLoss({training_prior(result.prior)})" in result.sentence
    assert f"AUPRCLoss({training_prior(0.001)}) where positives are rare" in result.sentence


def test_a_seed_gives_the_same_again_and_progress_is_told():
    told: list[float] = []
    once = simulate(repeats=2, rates=[0.1], seed=3, on_progress=told.append)
    again = simulate(repeats=2, rates=[0.1], seed=3)
    other = simulate(repeats=2, rates=[0.1], seed=4)
    assert once.to_csv() == again.to_csv() != other.to_csv()
    assert told == pytest.approx(np.arange(1, 7) / 6)


@pytest.mark.parametrize(
    "options, kind, message",
    [
        ({"repeats": 1}, ValueError, "repeats: expected a whole number of at least 2, got 1"),
        ({"repeats": 2.5}, TypeError, "repeats: expected a whole number"),
        ({"rates": [1.5]}, ValueError, "rates: expected a number in"),
        ({"rates": [0.0001]}, ValueError, "rates: expected 1 to 1999 positives in a batch"),
        ({"population": 1}, ValueError, "population: expected a whole number of at least 20"),
    ],
)
def test_bad_options_are_named(options, kind, message):
    with pytest.raises(kind, match=message):
        simulate(**options)
