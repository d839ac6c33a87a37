"""The SOPRC paper's simulation: how far off are estimates of AUPRC when batches are not mixed like the data?"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from rankwise.audit.pools import BatchAP, ExactAUPRC, Steps
from rankwise.checks import check_count, check_share
from rankwise.data.expectations import training_prior
from rankwise.estimators import interpolate_quantiles
from rankwise.metrics import average_precision

__all__ = ["DISTRIBUTIONS", "PRIOR", "RATES", "Case", "Distribution", "Simulation", "simulate"]

Values = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Values]

RATES = (0.01, 0.02, 0.03, 0.1, 0.2)
PRIOR = 0.1


@dataclass(frozen=True)
class Distribution:
    """Distributions of the scores of positives and of negatives."""

    name: str
    positives: Draw
    negatives: Draw


DISTRIBUTIONS = (
    Distribution("binormal", lambda random, n: random.normal(1, 1, n), lambda random, n: random.normal(0, 1, n)),
    Distribution("bibeta", lambda random, n: random.beta(5, 2, n), lambda random, n: random.beta(2, 5, n)),
    Distribution(
        "offset uniform", lambda random, n: random.uniform(0.5, 1.5, n), lambda random, n: random.uniform(0, 1, n)
    ),
)


@dataclass(frozen=True)
class Case:
    """One distribution at one sampling rate.

    Attributes:
        distribution: its name; rate: the share of positives in the batches; positives: their number in a batch.
        truth: 1 - AUPRC of all scores.
        plain: (R,) error of one minus the average precision of each batch.
        ours: (R,) error of the SOPRC estimate from each batch, with the prior of the data and the remembered quantiles.
        levels: (M,) the levels of the quantiles.
        interpolated, interpolated_std: (M,) mean and standard deviation of the error of the quantiles interpolated
            from the positives of one batch, in standard deviations of the positive scores.
        remembered, remembered_std: (M,) the same of the moving averages V, over the second half of the batches.
    """

    distribution: str
    rate: float
    positives: int
    truth: float
    plain: Values
    ours: Values
    levels: Values
    interpolated: Values
    interpolated_std: Values
    remembered: Values
    remembered_std: Values

    @property
    def interpolation_error(self) -> float:
        """Return the typical (root mean square) error of a quantile interpolated from one batch."""
        return _root_mean_square(self.interpolated, self.interpolated_std)

    @property
    def memory_error(self) -> float:
        """Return the typical (root mean square) error of a remembered quantile."""
        return _root_mean_square(self.remembered, self.remembered_std)

    def row(self) -> dict[str, str]:
        """Return everything but the curves, by column name."""
        numbers = {
            "rate": self.rate,
            "batch_positives": self.positives,
            "truth": self.truth,
            "plain_bias": self.plain.mean(),
            "plain_std": self.plain.std(),
            "soprc_bias": self.ours.mean(),
            "soprc_std": self.ours.std(),
            "interpolation_bias": np.abs(self.interpolated).mean(),
            "interpolation_error": self.interpolation_error,
            "memory_bias": np.abs(self.remembered).mean(),
            "memory_error": self.memory_error,
        }
        return {"distribution": self.distribution, **{name: f"{number:.6g}" for name, number in numbers.items()}}


@dataclass(frozen=True)
class Simulation:
    """Results of `simulate`: a `Case` for each distribution and sampling rate."""

    cases: tuple[Case, ...]
    repeats: int
    batch_size: int
    prior: float
    seed: int

    @property
    def sentence(self) -> str:
        """Return the result as one sentence for users."""
        plain = max(self.cases, key=lambda case: abs(case.plain.mean()))
        ours = max(abs(case.ours.mean()) for case in self.cases)
        return (
            f"Mix batches as you like: with the share of positives in the data as prior, the estimate of 1 - AUPRC was "
            f"off by at most {ours:.3f}, the AP of the batch by up to {plain.plain.mean():+.2f}. Train with "
            f"AUPRCLoss({training_prior(self.prior)}) here, and with AUPRCLoss({training_prior(0.0)}) where positives "
            "are rare, because training stalls with a tiny prior."
        )

    def to_csv(self) -> str:
        """Return CSV text: a line of column names and one line per case."""
        rows = [case.row() for case in self.cases]
        text = io.StringIO()
        table = csv.DictWriter(text, rows[0], lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
        return text.getvalue()


def simulate(
    *,
    repeats: int = 500,
    rates: Sequence[float] = RATES,
    batch_size: int = 2000,
    population: int = 100_000,
    seed: int = 0,
    on_progress: Callable[[float], None] | None = None,
) -> Simulation:
    """Draw scores, then batches with too few and too many positives, and compare estimates of 1 - AUPRC with the truth.

    One in ten of the scores is a positive's. SOPRC sees the batches one after the other, as in training, with its
    default memory.

    Args:
        repeats: batches at each sampling rate.
        rates: shares of positives in the batches.
        batch_size: scores in a batch. population: scores in all.
        seed: of everything random.
        on_progress: called now and then with the share of the work that is done.

    Example:
        >>> result = simulate(repeats=20, rates=[0.02])
        >>> [round(case.truth, 2) for case in result.cases]
        [0.71, 0.19, 0.34]

    Paper: Wen et al., NeurIPS 2022, section 3.3 and appendix B.2.
    """
    check_count("repeats", repeats, least=2)
    check_count("batch_size", batch_size, least=2)
    check_count("population", population, least=20)
    for rate in rates:
        check_share("rates", rate)
        if not 1 <= round(batch_size * rate) < batch_size:
            raise ValueError(f"rates: expected 1 to {batch_size - 1} positives in a batch, got {rate} of {batch_size}")
    random = np.random.default_rng(seed)
    steps = Steps(len(DISTRIBUTIONS) * len(rates) * repeats, on_progress)
    cases = []
    for distribution in DISTRIBUTIONS:
        count = round(population * PRIOR)
        pool = distribution.positives(random, count), distribution.negatives(random, population - count)
        labels = np.repeat([1, 0], [count, population - count])
        truth = 1 - float(average_precision(np.concatenate(pool), labels))
        for rate in rates:
            drawn = round(batch_size * rate)
            batches = np.hstack(
                [random.choice(pool[0], (repeats, drawn)), random.choice(pool[1], (repeats, batch_size - drawn))]
            )
            cases.append(_measure(distribution.name, rate, pool[0], truth, batches, drawn, steps))
    return Simulation(tuple(cases), repeats, batch_size, PRIOR, seed)


def _measure(
    name: str,
    rate: float,
    positives: Values,
    truth: float,
    batches: Values,
    drawn: int,
    steps: Steps,
) -> Case:
    scores = torch.from_numpy(batches)
    labels = (torch.arange(scores.shape[1]) < drawn).long()
    loss = ExactAUPRC(PRIOR).double()
    ours, kept = [], []
    for batch in scores:
        ours.append(float(loss(batch, labels)) - truth)
        kept.append(_remembered(loss))
        steps.done()
    shown = scores[:, :drawn]
    seen = interpolate_quantiles(shown, torch.ones_like(shown, dtype=torch.bool), len(kept[0])).numpy()
    plain = BatchAP(reduction="none")(scores, labels.expand_as(scores)).numpy() - truth
    levels = (np.arange(len(kept[0])) + 0.5) / len(kept[0])
    right = np.quantile(positives, levels, method="hazen")
    one_batch, memory = ((rows - right) / positives.std() for rows in (seen, np.stack(kept[len(kept) // 2 :])))
    return Case(
        distribution=name,
        rate=rate,
        positives=drawn,
        truth=truth,
        plain=plain,
        ours=np.array(ours),
        levels=levels,
        interpolated=one_batch.mean(0),
        interpolated_std=one_batch.std(0),
        remembered=memory.mean(0),
        remembered_std=memory.std(0),
    )


def _remembered(loss: ExactAUPRC) -> Values:
    assert loss.tracker is not None
    row: Values = loss.tracker.table.rows[0].double().numpy().copy()
    return row


def _root_mean_square(mean: Values, std: Values) -> float:
    return float(np.sqrt((mean**2 + std**2).mean()))
