"""Elementwise functions of losses: surrogates of the step function, and gains of grades.

A surrogate replaces the indicator 1[x <= 0] of a pair with score difference x = anchor - other. Piecewise polynomial
surrogates expose their pieces, so that sums over all pairs need only a sort (see `pairs`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from rankwise.checks import check_between, check_choice, check_later, check_positive, wide_dtype, widen
from rankwise.sorting import filled

__all__ = [
    "GAINS",
    "Gain",
    "Hinge",
    "Logistic",
    "OneSidedHuber",
    "OneSidedTanh",
    "Pieces",
    "PiecewiseStep",
    "Sigmoid",
    "Slope",
    "SquaredHinge",
    "Surrogate",
    "describe_gain",
    "gain_function",
]


@dataclass(frozen=True)
class Pieces:
    """Polynomial pieces of a surrogate in X = x / scale.

    `tail` applies for X < tail_end; `middle`, if any, for tail_end <= X < tail_end + 1, in U = X - tail_end; beyond
    that the surrogate is 0. Coefficients are those of 1, X, X^2.
    """

    scale: float
    tail_end: float
    tail: tuple[float, float, float]
    middle: tuple[float, float, float] | None = None


class Surrogate(Protocol):
    """Elementwise surrogate. Value, slope and curvature are 0 at infinity, and finite elsewhere.

    To save memory traffic all three may overwrite their argument.
    """

    @property
    def pieces(self) -> Pieces | None:
        """Return the polynomial pieces, or None when the surrogate has none."""

    def value(self, x: Tensor) -> Tensor:
        """Compute l(x) for every element."""

    def slope(self, x: Tensor) -> Tensor:
        """Compute dl/dx for every element."""

    def curvature(self, x: Tensor) -> Tensor:
        """Compute d^2l/dx^2 for every element, 0 at kinks."""


@dataclass(frozen=True)
class OneSidedHuber:
    """One-sided Huber loss: 1 - 2x/tau for x < 0, (1 - x/tau)^2 for 0 <= x < tau, else 0; an upper bound of 1[x <= 0].

    Example:
        >>> OneSidedHuber(0.5).value(torch.tensor([-1.0, 0.0, 0.25]))
        tensor([5.0000, 1.0000, 0.2500])
    """

    tau: float

    def __post_init__(self) -> None:
        check_positive("tau", self.tau)

    @property
    def pieces(self) -> Pieces:
        return Pieces(scale=self.tau, tail_end=0.0, tail=(1.0, -2.0, 0.0), middle=(1.0, -2.0, 1.0))

    @property
    def unit(self) -> float:
        """Return the factor from `raw` to the value; a sum of many values is multiplied once, at the end."""
        return 2 / self.tau

    def value(self, x: Tensor) -> Tensor:
        return self.raw(x).mul_(self.unit)

    def raw(self, x: Tensor) -> Tensor:
        # The smooth L1 loss around tau, which is 0 at tau; x beyond tau is clamped to it.
        x = x.clamp_max_(self.tau)
        middle = filled((), self.tau, x.dtype, x.device).expand_as(x)
        return torch.nn.functional.smooth_l1_loss(x, middle, reduction="none", beta=self.tau)

    def slope(self, x: Tensor) -> Tensor:
        line = torch.add(filled((), -2 / self.tau, x.dtype, x.device), x, alpha=2 / self.tau**2, out=x)
        return line.clamp_(-2 / self.tau, 0.0)

    def curvature(self, x: Tensor) -> Tensor:
        return ((x > 0) & (x < self.tau)).to(x.dtype).mul_(2 / self.tau**2)


@dataclass(frozen=True)
class Hinge:
    """Hinge loss max(0, margin - x); with a margin of 0, pairs in the right order have a loss of 0.

    Example:
        >>> Hinge(1.0).value(torch.tensor([-1.0, 0.5, 2.0]))
        tensor([2.0000, 0.5000, 0.0000])
    """

    margin: float = 1.0

    def __post_init__(self) -> None:
        check_positive("margin", self.margin, zero=True)

    @property
    def pieces(self) -> Pieces:
        return Pieces(scale=1.0, tail_end=self.margin, tail=(self.margin, -1.0, 0.0))

    def value(self, x: Tensor) -> Tensor:
        return torch.sub(filled((), self.margin, x.dtype, x.device), x, out=x).clamp_min_(0.0)

    def slope(self, x: Tensor) -> Tensor:
        return x.lt_(self.margin).neg_()

    def curvature(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)


@dataclass(frozen=True)
class SquaredHinge:
    """Squared hinge loss max(0, margin - x)^2.

    Example:
        >>> SquaredHinge(1.0).value(torch.tensor([-1.0, 0.5, 2.0]))
        tensor([4.0000, 0.2500, 0.0000])
    """

    margin: float = 1.0

    def __post_init__(self) -> None:
        check_positive("margin", self.margin)

    @property
    def pieces(self) -> Pieces:
        return Pieces(scale=1.0, tail_end=self.margin, tail=(self.margin**2, -2.0 * self.margin, 1.0))

    def value(self, x: Tensor) -> Tensor:
        return x.sub_(self.margin).clamp_max_(0.0).square_()

    def slope(self, x: Tensor) -> Tensor:
        return x.sub_(self.margin).clamp_max_(0.0).mul_(2.0)

    def curvature(self, x: Tensor) -> Tensor:
        return (x < self.margin).to(x.dtype).mul_(2.0)


@dataclass(frozen=True)
class OneSidedTanh:
    """One-sided tanh: tanh(-x / (2 tau)) for x < 0, else 0; a lower bound of 1[x <= 0], for the recall of SOPRC.

    Example:
        >>> OneSidedTanh(0.5).value(torch.tensor([-1.0, 1.0]))
        tensor([0.7616, 0.0000])
    """

    tau: float

    def __post_init__(self) -> None:
        check_positive("tau", self.tau)

    @property
    def pieces(self) -> None:
        return None

    def value(self, x: Tensor) -> Tensor:
        return x.mul_(-0.5 / self.tau).clamp_min_(0.0).tanh_()

    def slope(self, x: Tensor) -> Tensor:
        below = x < 0
        return self.value(x).square_().sub_(1.0).mul_(0.5 / self.tau).mul_(below)

    def curvature(self, x: Tensor) -> Tensor:
        value = self.value(x)
        return (value * value).sub_(1.0).mul_(value).mul_(0.5 / self.tau**2)


@dataclass(frozen=True)
class Sigmoid:
    """Sigmoid 1 / (1 + exp(x / temperature)), the smooth step of Smooth-AP.

    Example:
        >>> Sigmoid(1.0).value(torch.tensor([0.0]))
        tensor([0.5000])
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature)

    @property
    def pieces(self) -> None:
        return None

    def value(self, x: Tensor) -> Tensor:
        return x.mul_(-1 / self.temperature).sigmoid_()

    def slope(self, x: Tensor) -> Tensor:
        value = self.value(x)
        factor = filled((), -1 / self.temperature, value.dtype, value.device)
        slope: Tensor = torch.ops.aten.sigmoid_backward(factor, value)
        return slope

    def curvature(self, x: Tensor) -> Tensor:
        value = self.value(x)
        return (value * value).sub_(value).mul_(value.mul_(2).sub_(1)).div_(self.temperature**2)


@dataclass(frozen=True)
class PiecewiseStep:
    """Piecewise linear step: 1 for x < -width, 0 for x > width, linear in between; the step of AP-loss.

    Example:
        >>> PiecewiseStep(1.0).value(torch.tensor([-2.0, 0.0, 0.5]))
        tensor([1.0000, 0.5000, 0.2500])
    """

    width: float = 1.0

    def __post_init__(self) -> None:
        check_positive("width", self.width)

    @property
    def pieces(self) -> Pieces:
        return Pieces(scale=2 * self.width, tail_end=-0.5, tail=(1.0, 0.0, 0.0), middle=(1.0, -1.0, 0.0))

    def value(self, x: Tensor) -> Tensor:
        return x.mul_(-0.5 / self.width).add_(0.5).clamp_(0.0, 1.0)

    def slope(self, x: Tensor) -> Tensor:
        return (x.abs() < self.width).to(x.dtype).mul_(-0.5 / self.width)

    def curvature(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)


@dataclass(frozen=True)
class Logistic:
    """Logistic loss log(1 + exp(-x / temperature)), the pairwise loss of RankNet and BPR.

    Example:
        >>> Logistic(1.0).value(torch.tensor([0.0]))
        tensor([0.6931])
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature)

    @property
    def pieces(self) -> None:
        return None

    def value(self, x: Tensor) -> Tensor:
        return torch.nn.functional.softplus(x.div_(-self.temperature), threshold=50.0)

    def slope(self, x: Tensor) -> Tensor:
        return x.div_(-self.temperature).sigmoid_().div_(-self.temperature)

    def value_and_slope(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Compute both together; `x` is overwritten."""
        x = x.div_(-self.temperature)
        return torch.nn.functional.softplus(x, threshold=50.0), x.sigmoid_().div_(-self.temperature)

    def curvature(self, x: Tensor) -> Tensor:
        share = x.div_(-self.temperature).sigmoid_()
        return (share - share * share).div_(self.temperature**2)


@dataclass(frozen=True)
class Slope:
    """Derivative of a surrogate, as a surrogate: second derivatives of pair sums are pair sums of it.

    Example:
        >>> Slope(SquaredHinge(1.0)).value(torch.tensor([-1.0, 0.5, 2.0]))
        tensor([-4., -1., 0.])
    """

    of: Surrogate

    @property
    def pieces(self) -> Pieces | None:
        pieces = self.of.pieces
        if pieces is None:
            return None
        _, c1, c2 = pieces.tail
        middle = pieces.middle
        return replace(
            pieces,
            tail=(c1 / pieces.scale, 2 * c2 / pieces.scale, 0.0),
            middle=None if middle is None else (middle[1] / pieces.scale, 2 * middle[2] / pieces.scale, 0.0),
        )

    def value(self, x: Tensor) -> Tensor:
        return self.of.slope(x)

    def slope(self, x: Tensor) -> Tensor:
        return self.of.curvature(x)

    def curvature(self, x: Tensor) -> Tensor:
        raise RuntimeError("scores: third derivatives are not supported")


Gain = str | Callable[[Tensor], Tensor]

# Beyond this grade the gain 2^y - 1 of one item outweighs all others, and float64 sums of gains lose precision.
_LARGEST_EXP2_GRADE = 60.0


def gain_function(gain: Gain = "exp2") -> Callable[[Tensor], Tensor]:
    """Return the gain as an elementwise function from grades to float64.

    Args:
        gain: "exp2" for 2^y - 1, "linear" for y, or a function of a float64 tensor of grades that returns finite gains
            of 0 or more.

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
    """Describe the gain, for the definition printed with a result."""
    words = {"exp2": "2^y - 1", "linear": "y"}
    return words[gain] if isinstance(gain, str) else getattr(gain, "__name__", repr(gain))


def _exp2(grades: Tensor) -> Tensor:
    if grades.numel():
        check_between(grades, -math.inf, _LARGEST_EXP2_GRADE, partial(_refuse_grades, grades))
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
    check_later(~((gains >= 0) & (gains < torch.inf)).all(), _refuse_gains)
    return gains


def _refuse_gains() -> None:
    raise ValueError("gain: expected finite gains of 0 or more, got others")


GAINS: dict[str, Callable[[Tensor], Tensor]] = {"exp2": _exp2, "linear": _linear}
