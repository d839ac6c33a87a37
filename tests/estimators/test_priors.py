"""Priors: the schedule between its ends, shares counted from data, and never a prior of 0 or 1."""

from __future__ import annotations

import math

import pytest
import torch

from rankwise.estimators.groups import (
    ConstantPrior,
    GroupPrior,
    PriorSchedule,
    as_prior,
    class_prior,
    counts_prior,
    list_prior,
)

RATE = torch.tensor([0.25], dtype=torch.float64)


def test_a_schedule_falls_by_equal_factors_and_stays_at_its_end():
    schedule = PriorSchedule(0.5, 0.01, steps=4)
    found = [float(schedule(RATE, None)) for _ in range(7)]
    assert found == pytest.approx([0.5 * (0.01 / 0.5) ** (step / 4) for step in range(4)] + [0.01] * 3)


def test_a_schedule_ends_with_the_prior_of_each_group_and_stands_still_in_eval_mode():
    schedule = PriorSchedule(0.5, GroupPrior([0.1, 0.02], group_ids=[7, 3]), steps=1)
    rates, groups = RATE.expand(2), torch.tensor([3, 7])
    schedule.eval()
    assert [schedule(rates, groups).tolist() for _ in range(2)] == [[0.5, 0.5]] * 2
    schedule.train()
    schedule(rates, groups)
    assert schedule(rates, groups).tolist() == pytest.approx([0.02, 0.1])


@pytest.mark.parametrize("prior", [0.2, "batch", torch.tensor([0.2, 0.4]), {"start": 0.5, "end": 0.2, "steps": 3}])
def test_odds_are_negatives_per_positive(prior):
    prior = as_prior(prior).eval()
    group = torch.tensor([1])
    share = prior(RATE, group)
    odds = prior.odds(lambda: RATE, group)
    assert float(odds) == pytest.approx(float((1 - share) / share))


def test_a_number_of_no_dimension_is_one_prior_for_all():
    for given in (0.3, torch.tensor(0.3)):
        prior = as_prior(given)
        assert isinstance(prior, ConstantPrior)
        assert prior(RATE, None).tolist() == pytest.approx([0.3])


def test_lists_have_the_share_of_their_positives():
    prior = list_prior([1, 0, 0, 0, 1, 1, 0], query_ids=[9, 9, 9, 9, -2, 5, 5])
    found = prior(torch.zeros(3, dtype=torch.float64), torch.tensor([9, 5, -2])).tolist()
    assert found == pytest.approx([1 / 4, 1 / 2, 0.5])  # a list of one positive misses half a negative


def test_a_missing_kind_counts_as_half_an_item():
    prior = counts_prior(torch.tensor([0, 3, 10]), 10)
    assert prior.priors.tolist() == pytest.approx([0.05, 0.3, 0.95])
    sizes = counts_prior(torch.tensor([0, 2]), torch.tensor([4, 2]))
    assert sizes.priors.tolist() == pytest.approx([0.125, 0.75])


def test_the_only_item_of_a_class_gets_the_prior_of_two():
    assert class_prior([1, 2, 2, 3, 3, 3]).priors.tolist() == pytest.approx([1 / 5, 1 / 5, 2 / 5])


@pytest.mark.parametrize("priors", [[0.0, 0.5], [0.5, 1.0], [math.nan]])
def test_priors_of_groups_lie_between_0_and_1(priors):
    with pytest.raises(ValueError, match=r"prior: expected numbers in \(0, 1\)"):
        GroupPrior(priors)


def test_unknown_keys_of_a_schedule_are_named():
    with pytest.raises(ValueError, match=r"prior: unknown key 'step'; did you mean 'steps'\?"):
        as_prior({"start": 0.5, "step": 3})
