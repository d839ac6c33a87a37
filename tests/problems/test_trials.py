"""Fair comparisons: choices on validation, one look at the test part, right intervals."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from rankwise.data import load_eights
from rankwise.problems import Tabular
from rankwise.problems.demo import plan_demo
from rankwise.problems.trials import Contender, compete, summarise
from workers.fitting import eights

LOOKS: list[str] = []
# The sizes of the parts of `load_eights`.
PARTS = {612: "train", 350: "validation", 835: "test"}


class Watched(Tabular):
    """Writes down which part was looked at."""

    def evaluate(self, model, part, *, bootstrap=0):
        LOOKS.append(PARTS[len(part)])
        return super().evaluate(model, part, bootstrap=bootstrap)


def contender(steps=10):
    return Contender("c", eights(kind=Watched), load_eights, steps)


def test_the_test_part_is_looked_at_once_per_seed_and_after_all_choices():
    LOOKS.clear()
    compete(contender(), seeds=[0, 1], rates=[1e-3, 1e-2])
    half = len(LOOKS) // 2
    assert LOOKS.count("test") == 2
    assert LOOKS[half - 1] == LOOKS[-1] == "test"


def test_the_rate_is_the_best_on_validation():
    outcome = compete(contender(), seeds=[0], rates=[1e-9, 3e-3])
    single = [compete(contender(), seeds=[0], rates=[rate]).trials[0] for rate in (1e-9, 3e-3)]
    best = max(single, key=lambda trial: trial.history.curve("ap")[-1])
    assert outcome.trials[0].learning_rate == best.learning_rate == 3e-3
    assert outcome.values("ap") == [best.test["ap"]]


def test_nothing_is_trained_without_steps():
    trial = compete(contender(steps=0), seeds=[0], rates=[1.0]).trials[0]
    assert trial.learning_rate is None
    assert trial.history.losses == []


@pytest.mark.parametrize("values", [[0.1, 0.5], [0.7, 0.72, 0.8, 0.75, 0.71]])
def test_the_interval_is_students(values):
    summary = summarise(values)
    low, high = stats.t.interval(0.95, len(values) - 1, loc=summary.mean, scale=stats.sem(values))
    assert (summary.low, summary.high) == pytest.approx((low, high))


def test_one_seed_has_no_interval():
    summary = summarise([0.5])
    assert summary.mean == 0.5
    assert math.isnan(summary.low)
    assert math.isnan(summary.high)


def test_the_interval_of_a_metric_stays_within_its_range():
    summary = compete(contender(steps=2), seeds=[0, 1], rates=[1e-3]).summary("ap")
    assert 0 <= summary.low <= summary.mean <= summary.high <= 1


def test_rivals_of_the_demo_get_at_least_the_budget_of_soprc():
    plan = plan_demo()
    for contenders in (plan.eights, plan.retrieval):
        ours = contenders[-1]
        assert ours.name == "SOPRC"
        rivals = [each for each in contenders[:-1] if each.steps]
        assert rivals
        assert all(each.steps >= ours.steps for each in rivals)
        train = ours.data(0).train
        mine = ours.problem.train_loader(train, 0).batch_sampler
        for each in rivals:
            assert each.problem.model == ours.problem.model
            assert each.problem.train_loader(train, 0).batch_sampler.batch_size == mine.batch_size
            assert each.data(0).train.features.equal(train.features)
