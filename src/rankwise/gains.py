"""Gains of relevance grades: one definition for the metric and its loss."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from rankwise.checks import check_choice, when
from rankwise.modes import wide_dtype, widen

__all__ = ["GAINS", "Gain", "describe_gain", "gain_function"]

Gain = str | Callable[[Tensor], Tensor]

# Beyond this grade one item's 2^y - 1 drowns all others and soon leaves the range of exact whole numbers.
_LARGEST_EXP2_GRADE = 60.0


def gain_function(gain: Gain = "exp2") -> Callable[[Tensor], Tensor]:
    """The gain as a function of grades: float64 out, the shape kept.

    Args:
        gain: "exp2" for 2^y - 1, "linear" for y, or a function of a float64 tensor of grades that gives finite gains of
            0 or more.

    Example:
        >>> gain_function("exp2")(torch.tensor([0, 1, 3]))
        tensor([0., 1., 7.], dtype=torch.float64)
    """
    if isinstance(gain, str):
        return GAINS[check_choice("gain", gain, GAINS)]
    if not callable(gain):
        raise TypeError(f'gain: expected "exp2", "linear" or a function of grades, got {gain!r}')
    return partial(_checked, gain)


def describe_gain(gain: Gain) -> str:
    """The gain in words, for the definition printed beside a result."""
    words = {"exp2": "2^y - 1", "linear": "y"}
    return words[gain] if isinstance(gain, str) else getattr(gain, "__name__", repr(gain))


def _exp2(grades: Tensor) -> Tensor:
    if grades.numel():
        when(grades.max() > _LARGEST_EXP2_GRADE, partial(_refuse_grades, grades))
    return grades.to(wide_dtype(grades.device), copy=True).exp2_().sub_(1)


def _refuse_grades(grades: Tensor) -> None:
    raise ValueError(
        f'labels: gain="exp2" takes grades up to {_LARGEST_EXP2_GRADE:g}, got {grades.max().item():g}; '
        'scale the grades down, or take gain="linear" or a function of your own'
    )


def _linear(grades: Tensor) -> Tensor:
    return widen(grades)


def _checked(gain: Callable[[Tensor], Tensor], grades: Tensor) -> Tensor:
    gains = gain(widen(grades))
    if not isinstance(gains, Tensor) or gains.shape != grades.shape:
        came = tuple(gains.shape) if isinstance(gains, Tensor) else type(gains).__name__
        raise ValueError(f"gain: expected one gain for each grade, shape {tuple(grades.shape)}, got {came}")
    gains = widen(gains)
    when(~((gains >= 0) & (gains < torch.inf)).all(), _refuse_gains)
    return gains


def _refuse_gains() -> None:
    raise ValueError("gain: expected finite gains of 0 or more, got others")


GAINS: dict[str, Callable[[Tensor], Tensor]] = {"exp2": _exp2, "linear": _linear}
