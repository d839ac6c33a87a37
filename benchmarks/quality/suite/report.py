"""Tables of a suite: values per data set, mean, mean rank, paired differences, CPU seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

__all__ = ["Results", "report"]

# Names with one of these words are of this library.
OWN = ("rankwise", "APClassifier", "NDCGRanker", "ours")

# By contender: values and CPU seconds, both (data sets, cuts).
Results = Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]]


def report(results: Results, data: Sequence[str], *, ours: str, metric: str) -> str:
    """Return Markdown tables.

    Args:
        results: by contender, values and CPU seconds, (data sets, cuts) each; the same cuts for all.
        data: the names of the data sets.
        ours: the contender that the others are compared with.
        metric: the name of the values.
    """
    return "\n".join([*_summary(results, ours, metric), "", *_per_set(results, data, ours, metric)])


def _summary(results: Results, ours: str, metric: str) -> Iterator[str]:
    names = list(results)
    means = np.stack([results[name][0].mean(1) for name in names])
    ranks = rankdata(-means.round(6), axis=0).mean(1)
    own = means[names.index(ours)]
    yield (
        f"| contender | mean {metric} | mean rank | {ours} minus this, 95 % over data sets | better on | CPU s a fit |"
    )
    yield "| --- | --: | --: | --: | --: | --: |"
    for row in np.argsort(ranks, kind="stable"):
        cells = "", ""
        if names[row] != ours:
            low, high = _bootstrap(own - means[row])
            interval = f" ({low:+.4f}, {high:+.4f})" if len(own) > 1 else ""
            cells = (
                f"{(own - means[row]).mean():+.4f}{interval}",
                f"{int((own > means[row]).sum())} of {len(own)}",
            )
        seconds = results[names[row]][1].mean()
        head = f"| {names[row]} | {means[row].mean():.4f} | {ranks[row]:.2f}"
        yield f"{head} | {cells[0]} | {cells[1]} | {seconds:.2f} |"


def _per_set(results: Results, data: Sequence[str], ours: str, metric: str) -> Iterator[str]:
    names = list(results)
    rivals = [name for name in names if not any(own in name for own in OWN)]
    yield f"{metric} on each data set; the last column in standard errors of the difference, corrected for shared rows:"
    yield ""
    yield f"| data | {' | '.join(names)} | {ours} minus the best rival | in s.e. |"
    yield "| --- |" + " --: |" * (len(names) + 2)
    for row, title in enumerate(data):
        values = {name: results[name][0][row] for name in names}
        best = max(rivals, key=lambda name: values[name].mean())
        top = max(names, key=lambda name: values[name].mean())
        cells = [f"**{values[name].mean():.3f}**" if name == top else f"{values[name].mean():.3f}" for name in names]
        difference = values[ours] - values[best]
        error = _standard_error(difference)
        ratio = difference.mean() / error if error > 0 else 0.0
        yield f"| {title} | {' | '.join(cells)} | {difference.mean():+.4f} ({best}) | {ratio:+.1f} |"


def _standard_error(differences: NDArray[np.float64]) -> float:
    """Return the standard error of the mean over folds, whose training parts share rows (Nadeau and Bengio, 2003)."""
    return float(np.sqrt(differences.var(ddof=1) * (1 / len(differences) + 1 / 4)))


def _bootstrap(differences: NDArray[np.float64]) -> tuple[float, float]:
    """A 95 % interval of the mean over data sets."""
    random = np.random.default_rng(0)
    drawn = differences[random.integers(len(differences), size=(10_000, len(differences)))].mean(1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)
