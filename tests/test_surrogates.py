"""Surrogates: on the right side of the indicator, smooth where said, slopes and pieces true to the values."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from rankwise.surrogates import (
    Hinge,
    Logistic,
    OneSidedHuber,
    OneSidedTanh,
    PiecewiseStep,
    Sigmoid,
    Slope,
    SquaredHinge,
)

ALL = [
    OneSidedHuber(0.3),
    Hinge(0.5),
    Hinge(0.0),
    SquaredHinge(1.0),
    OneSidedTanh(0.2),
    Sigmoid(0.3),
    Logistic(0.7),
    PiecewiseStep(0.4),
]
# Surrogates and their pieces are keys of caches.
VALUES = [*ALL, OneSidedHuber(0.3).pieces, Slope(Sigmoid(0.3))]
GRID = torch.linspace(-3, 3, 6001, dtype=torch.float64)


@pytest.mark.parametrize("surrogate", VALUES, ids=lambda each: type(each).__name__)
def test_surrogates_are_values_that_cannot_be_changed(surrogate):
    same = dataclasses.replace(surrogate)
    assert same == surrogate
    assert hash(same) == hash(surrogate)
    for field in dataclasses.fields(surrogate):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(same, field.name, getattr(surrogate, field.name))


def test_huber_lies_above_and_tanh_below_the_indicator():
    indicator = (GRID <= 0).double()
    assert bool((OneSidedHuber(0.1).value(GRID.clone()) >= indicator).all())
    assert bool((OneSidedTanh(0.001).value(GRID.clone()) <= indicator).all())


def test_huber_is_lipschitz_and_smooth_as_stated():
    """2/tau-Lipschitz and 2/tau^2-smooth."""
    tau, step = 0.3, float(GRID[1] - GRID[0])
    value, slope = OneSidedHuber(tau).value(GRID.clone()), OneSidedHuber(tau).slope(GRID.clone())
    assert float(value.diff().abs().max()) <= 2 / tau * step * (1 + 1e-9)
    assert float(slope.diff().abs().max()) <= 2 / tau**2 * step * (1 + 1e-9)


@pytest.mark.parametrize("surrogate", ALL)
def test_slope_is_the_derivative_of_value(surrogate):
    # An irrational shift keeps the grid away from the kinks.
    x = (GRID + 0.00031415).requires_grad_()
    step = 1e-6
    numeric = (surrogate.value(x.detach() + step) - surrogate.value(x.detach() - step)) / (2 * step)
    torch.testing.assert_close(surrogate.slope(x.detach().clone()), numeric, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("surrogate", ALL)
def test_curvature_is_the_derivative_of_slope(surrogate):
    # An irrational shift keeps the grid away from the kinks.
    x, step = GRID + 0.00031415, 1e-6
    numeric = (surrogate.slope(x + step) - surrogate.slope(x - step)) / (2 * step)
    torch.testing.assert_close(surrogate.curvature(x.clone()), numeric, rtol=1e-5, atol=1e-5)
    assert surrogate.curvature(torch.tensor([torch.inf])).item() == 0


@pytest.mark.parametrize("surrogate", [s for s in [*ALL, *map(Slope, ALL)] if s.pieces is not None])
def test_pieces_are_the_same_function(surrogate):
    pieces = surrogate.pieces
    # Slopes jump at kinks, which a shift keeps the grid away from.
    x = GRID + 0.00031415 if isinstance(surrogate, Slope) else GRID
    scaled = x / pieces.scale

    def polynomial(coefficients, at):
        return sum(c * at**power for power, c in enumerate(coefficients))

    u = scaled - pieces.tail_end
    middle = polynomial(pieces.middle, u) if pieces.middle else torch.zeros_like(u)
    expected = torch.where(u < 0, polynomial(pieces.tail, scaled), torch.where(u < 1, middle, 0.0))
    torch.testing.assert_close(surrogate.value(x.clone()), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("build", [OneSidedHuber, SquaredHinge, OneSidedTanh, Sigmoid, Logistic, PiecewiseStep])
@pytest.mark.parametrize("width", [0.0, -1.0, float("nan"), float("inf")])
def test_width_must_be_a_positive_number(build, width):
    with pytest.raises(ValueError, match=r"(tau|margin|temperature|width): expected a finite number > 0, got"):
        build(width)


@pytest.mark.parametrize("margin", [-1.0, float("nan"), float("inf")])
def test_margin_of_a_hinge_may_be_0_but_not_less(margin):
    assert Hinge(0.0).value(torch.tensor([-2.0, 0.0, 1.0])).tolist() == [2, 0, 0]
    with pytest.raises(ValueError, match="margin: expected a finite number >= 0, got"):
        Hinge(margin)


@pytest.mark.parametrize("surrogate", ALL)
def test_curvature_is_0_at_kinks(surrogate):
    kinks = {
        OneSidedHuber: [0.0, 0.3],
        Hinge: [getattr(surrogate, "margin", 0.0)],
        SquaredHinge: [1.0],
        OneSidedTanh: [0.0],
        PiecewiseStep: [-0.4, 0.4],
    }.get(type(surrogate), [])
    assert not surrogate.curvature(torch.tensor(kinks, dtype=torch.float64)).any()


@pytest.mark.parametrize("build", [Hinge, SquaredHinge, Sigmoid, Logistic, PiecewiseStep])
def test_a_width_that_is_not_given_is_1(build):
    assert build() == build(1.0)
    assert torch.equal(build().value(GRID.clone()), build(1.0).value(GRID.clone()))
