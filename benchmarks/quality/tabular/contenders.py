"""Who competes: each loss with its settings and the batches it is meant for, and gradient boosting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import average_precision_score

from benchmarks.quality.tabular.ensemble import Ensemble, Member, draw_batches, train_ensemble
from rankwise.data import Part, Split
from rankwise.training import Budget, EvaluationOptions, OptimiserOptions

__all__ = ["BASELINE", "CURVE", "NEURAL", "OURS", "Found", "Neural", "boosting", "run"]

BASELINE = "cross-entropy"
OURS = ("soprc", "stable-ap")
BATCH, POSITIVES = 128, 16
# After which steps the learning curve is read off; the last is the length of a run.
CURVE = (50, 100, 250, 500)
# Everyone chooses among four: four learning rates, or two with two widths of the surrogate.
RATES = (0.001, 0.003, 0.01, 0.03)
TWO_RATES = (0.003, 0.01)


@dataclass(frozen=True)
class Neural:
    """A loss for the network 64-64.

    Attributes:
        loss: its registered name.
        settings: the options to choose from.
        rates: the learning rates to choose from.
        counted: whether it is told how many negatives and positives the data hold.
        positives: positives in every batch; None draws batches like the data.
    """

    loss: str
    settings: tuple[Mapping[str, Any], ...] = ({},)
    rates: tuple[float, ...] = RATES
    counted: bool = False
    positives: int | None = POSITIVES

    def ensemble(self, splits: Sequence[tuple[int, Split[Part]]], steps: int, setting: Mapping[str, Any]) -> Ensemble:
        """Return one network for each seed and data."""
        options, first = dict(setting), splits[0][1].train.labels
        if self.counted:
            # The same in all folds, give or take one.
            options["counts"] = (len(first) - int(first.sum()), int(first.sum()))
        members = [
            Member(
                seed,
                split,
                draw_batches(split.train.labels, size=BATCH, positives=self.positives, steps=steps, seed=seed),
            )
            for seed, split in splits
        ]
        return Ensemble(members, self.loss, options, budget=Budget(steps=steps))


NEURAL = (
    Neural("cross-entropy", positives=None),
    Neural("class-balanced-cross-entropy", counted=True, positives=None),
    Neural("focal", positives=None),
    Neural("ldam", counted=True, positives=None),
    Neural("soap"),
    Neural("smooth-ap", ({"temperature": 0.1}, {"temperature": 0.3}), TWO_RATES),
    Neural("soprc", ({"tau": 0.1}, {"tau": 1.0, "prior": 0.5}), TWO_RATES),
    Neural("stable-ap", ({"tau": 0.5}, {"tau": 1.0}), TWO_RATES),
)


@dataclass(frozen=True)
class Found:
    """What a run gave: what was chosen, AP on validation and test, and validation AP at the steps of `CURVE`."""

    rate: float
    setting: str
    validation: float
    test: float
    curve: tuple[float, ...] = ()


def run(
    neural: Neural,
    splits: Sequence[tuple[int, Split[Part]]],
    on_step: Callable[[], None],
    curve: Sequence[int] = CURVE,
) -> list[Found]:
    """Train a network for each seed and data with every candidate; each keeps the best on its validation part."""
    candidates: list[list[Found]] = [[] for _ in splits]
    for rate, setting in product(neural.rates, neural.settings):
        ensemble = replace(
            neural.ensemble(splits, curve[-1], setting),
            optimiser=OptimiserOptions(learning_rate=rate),
            evaluation=EvaluationOptions(every=curve[0], weights="last"),
        )
        done = train_ensemble(ensemble, on_step=lambda step: on_step())
        seen = dict(zip(done.history.steps, done.history.metrics, strict=True))
        test = ensemble.evaluate(done.model, "test").means
        for place, found in enumerate(candidates):
            line = tuple(seen[step][str(place)] for step in curve)
            words = ", ".join(f"{name} {value}" for name, value in setting.items())
            found.append(Found(rate, words, line[-1], test[str(place)], line))
    # The test figures of what was not chosen are dropped unseen.
    return [max(found, key=lambda each: each.validation) for found in candidates]


def boosting(split: Split[Part], rates: Sequence[float]) -> Found:
    """scikit-learn's gradient boosting, its learning rate chosen on validation as well."""

    def precision(model: HistGradientBoostingClassifier, part: str) -> float:
        chosen = split.part(part)
        return float(average_precision_score(chosen.labels, model.predict_proba(chosen.features.numpy())[:, 1]))

    models = [
        HistGradientBoostingClassifier(learning_rate=rate, random_state=0).fit(
            split.train.features.numpy(), split.train.labels.numpy()
        )
        for rate in rates
    ]
    on_validation = [precision(model, "validation") for model in models]
    best = max(range(len(rates)), key=on_validation.__getitem__)
    return Found(rates[best], "", on_validation[best], precision(models[best], "test"))
