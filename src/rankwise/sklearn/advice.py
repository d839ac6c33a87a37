"""Sentences on what to expect of a fitted portfolio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankwise.data.expectations import ap_interval
from rankwise.sklearn.portfolio import NETWORKS

__all__ = ["advise"]

_LEAST = 1e-3  # distance of an AP from 0 and 1, where the interval is not defined


def advise(learners: Sequence[dict[str, Any]], positives: int | None) -> list[str]:
    """Say how exact the out-of-fold AP of the best learner is, and which loss the network did better with.

    Args:
        learners: name and out-of-fold AP of each.
        positives: number of positive rows; None with more than two classes, of which each has its own.

    Example:
        >>> aps = {"network, cross entropy": 0.41, "network, ranking loss": 0.46, "extra trees": 0.5}
        >>> exact, loss = advise([{"learner": name, "ap": ap} for name, ap in aps.items()], 40)
        >>> exact
        'extra trees: out-of-fold AP 0.500, on 40 positive rows with a 95 % interval of about 0.35 to 0.65.'
        >>> loss.partition(":")[0]
        'The network did better out of fold with the ranking loss than with cross entropy'
    """
    best = max(learners, key=lambda each: each["ap"])
    said, reach = [], 0.0
    if positives is not None:
        low, high = ap_interval(min(max(best["ap"], _LEAST), 1 - _LEAST), positives)
        reach = (high - low) / 2
        said.append(
            f"{best['learner']}: out-of-fold AP {best['ap']:.3f}, on {positives:,} positive rows with a 95 % interval "
            f"of about {low:.2f} to {high:.2f}."
        )
    entropy, ranking = (next(each["ap"] for each in learners if each["learner"] == name) for name in NETWORKS)
    losses = ("the ranking loss", "cross entropy")
    first, second = losses if ranking > entropy else losses[::-1]
    luck = "; at this number of positive rows that may be luck" if abs(ranking - entropy) < reach else ""
    said.append(
        f"The network did better out of fold with {first} than with {second}: AP {max(ranking, entropy):.3f} against "
        f"{min(ranking, entropy):.3f}{luck}."
    )
    return said
