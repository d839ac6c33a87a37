"""The results as Markdown: means with intervals, paired differences, and what was left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.quality.ml100k.methods import METHODS
from benchmarks.quality.ml100k.plan import CUTOFFS, LONG_RATES, PENALTIES, RATES, STEPS
from benchmarks.quality.ml100k.results import Results
from rankwise.problems.trials import summarise

__all__ = ["write_table"]

_OURS = tuple(method.name for method in METHODS if method.ours)
_RIVALS = tuple(method.name for method in METHODS if not method.ours)

_ABOUT = (
    "`python -m benchmarks.quality.ml100k`: test micro-pAp@k (x 100) on MovieLens-100K, mean of {seeds} seeds with the "
    "half width of its 95 % interval (Student's t over seeds, each of which cuts the data anew). Linear scorers on 90 "
    "features: NMF of rank 30 of the first 20 ratings of each "
    f"user. Every method starts from the same cross-entropy solution and takes {STEPS} full-batch steps with each of "
    f"two rates (cross entropy {LONG_RATES}, the hinges {RATES}, their slopes being steeper) and each of the penalties "
    f"{PENALTIES}; rate, penalty and step are chosen on validation by the same metric. The start is chosen in the same "
    f"way, from {STEPS} steps of cross entropy from zero. Hinge partial AUC is that of all users pooled; per user and "
    "over k negatives it is avg+."
)


def write_table(results: Results, seeds: Sequence[int]) -> str:
    """The whole page."""

    def values(method: str, k: int) -> list[float]:
        return [results.get(seed, k, method).test for seed in seeds]

    means = {(m.name, k): summarise(values(m.name, k)) for m in METHODS for k in CUTOFFS}
    best = {k: max(_OURS, key=lambda name: means[name, k].mean) for k in CUTOFFS}

    def mean_cell(name: str) -> Callable[[int], str]:
        def cell(k: int) -> str:
            found = means[name, k]
            text = f"{100 * found.mean:.2f} +- {100 * (found.high - found.mean):.2f}"
            return f"**{text}**" if best[k] == name else text

        return cell

    def difference(ours: Callable[[int], str], rival: str) -> Callable[[int], str]:
        return lambda k: _paired(values(ours(k), k), values(rival, k))

    lines = [_ABOUT.format(seeds=len(seeds)), "", *_header("method")]
    lines += [_row(method.name, mean_cell(method.name)) for method in METHODS]
    lines += ["", "Bold: the surrogate of pAp@k with the highest mean, so chosen with the test part in view.", ""]
    lines += ["Differences paired by seed (x 100), with 95 % intervals:", "", *_header("difference")]
    lines += [_row(f"ramp - {rival}", difference(lambda k: _OURS[0], rival)) for rival in _RIVALS]
    lines += [_row(f"bold - {rival}", difference(best.__getitem__, rival)) for rival in _RIVALS]
    lines += ["", *_counts(results, seeds)]
    return "\n".join(lines) + "\n"


def _counts(results: Results, seeds: Sequence[int]) -> list[str]:
    counts = [results.get(seeds[0], k, _OURS[0]) for k in CUTOFFS]
    users = ", ".join(f"k = {k}: {c.users} / {c.left_out}" for k, c in zip(CUTOFFS, counts, strict=True))
    stayed = {m.name: sum(results.get(s, k, m.name).step == 0 for s in seeds for k in CUTOFFS) for m in METHODS}
    return [
        f"Users of the test part that count / left out (no positive, or fewer than k negatives), first seed: {users}.",
        "",
        f"Cells of {len(seeds) * len(CUTOFFS)} in which no step improved on the start on validation, so that the "
        f"method is judged by the cross-entropy solution: {', '.join(f'{m} {n}' for m, n in stayed.items())}.",
    ]


def _header(first: str) -> list[str]:
    return [_row(first, lambda k: f"k = {k}"), "|---|" + "---|" * len(CUTOFFS)]


def _row(first: str, cell: Callable[[int], str]) -> str:
    return f"| {first} | " + " | ".join(cell(k) for k in CUTOFFS) + " |"


def _paired(a: Sequence[float], b: Sequence[float]) -> str:
    found = summarise([x - y for x, y in zip(a, b, strict=True)])
    return f"{100 * found.mean:+.2f} ({100 * found.low:+.2f} to {100 * found.high:+.2f})"
