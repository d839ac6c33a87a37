"""Whether ours reaches the mark of a row."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.speed.contest import Mark
from benchmarks.speed.results import Result

__all__ = ["describe", "judge"]


def describe(mark: Mark) -> str:
    """The mark in words."""
    parts = [
        "" if mark.ms is None else f"<= {mark.ms:g} ms",
        "" if mark.times_limit is None else f"<= {mark.times_limit:g} x limit",
        "" if mark.over_limit_ms is None else f"<= limit + {mark.over_limit_ms:g} ms",
        *(f">= {factor:g} x faster than {name}" for name, factor in mark.times_faster),
        *(f"<= {factor:g} x {name}" for name, factor in mark.at_most),
        "" if mark.peak_mib is None else f"<= {mark.peak_mib:g} MiB",
        "" if mark.process_mib is None else f"whole process <= {mark.process_mib:g} MiB",
    ]
    return ", ".join(part for part in parts if part)


def judge(mark: Mark, row: Sequence[Result]) -> str:
    """ "met", or "missed" with the figures and the reason, or which figure is lacking.

    A time in milliseconds belongs to the machine it was set on. Where the anchor ran, the verdict also says what the
    ratio to it makes of the mark, met or missed alike.
    """
    times = {result.contender: result.ms for result in row if result.ms is not None}
    ours = next((result for result in row if result.role == "ours" and result.ms is not None), None)
    limit = next((result.ms for result in row if result.role == "limit" and result.ms is not None), None)
    if ours is None or ours.ms is None:
        return "not measured"
    missed, lacking = [], []
    if mark.ms is not None and ours.ms > mark.ms:
        missed.append(f"{ours.ms:.3g} ms")
    ratio = _by_ratio(mark, ours.ms, times)
    if mark.times_limit is not None:
        if limit is None:
            lacking.append("limit")
        elif ours.ms > mark.times_limit * limit:
            missed.append(f"{ours.ms / limit:.2f} x limit")
    if mark.over_limit_ms is not None:
        if limit is None:
            lacking.append("limit")
        elif ours.ms - limit > mark.over_limit_ms:
            missed.append(f"limit + {ours.ms - limit:.0f} ms")
    for name, factor in mark.times_faster:
        if name not in times:
            lacking.append(name)
        elif times[name] < factor * ours.ms:
            missed.append(f"{times[name] / ours.ms:.3g} x faster than {name}")
    for name, factor in mark.at_most:
        if name not in times:
            lacking.append(name)
        elif ours.ms > factor * times[name]:
            missed.append(f"{ours.ms / times[name]:.2f} x {name}")
    for what, most, came in (
        ("", mark.peak_mib, ours.peak_mib),
        ("whole process ", mark.process_mib, ours.process_mib),
    ):
        if most is None:
            continue
        if came is None:
            lacking.append("memory")
        elif came > most:
            missed.append(f"{what}{came:.0f} MiB")
    without = f" (not measured: {', '.join(lacking)})" if lacking else ""
    if not missed:
        return f"met{ratio}{without}"
    reason = f": {mark.why_missed}" if mark.why_missed else ""
    return f"missed, {', '.join(missed)}{ratio}{reason}{without}"


def _by_ratio(mark: Mark, ms: float, times: dict[str, float]) -> str:
    if mark.anchor is None or mark.ms is None or mark.anchor[0] not in times:
        return ""
    name, then = mark.anchor
    slower = times[name] / then
    verdict = "met" if ms <= mark.ms * slower else "missed"
    return f" ({name} took {slower:.2f} x its time when the mark was set; by ratio to it {verdict})"
