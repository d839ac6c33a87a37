"""Only those who compute the same thing are compared: values are checked before times are taken."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from benchmarks.speed.contest import Values

__all__ = ["disagreements"]


def disagreements(values: Mapping[str, Values], tolerance: float) -> dict[str, str]:
    """By name, in what a contender differs from the first one; contenders that agree are not in it.

    Names that both have computed are compared; a contender with none in common disagrees.

    Args:
        values: by contender; the first is the reference.
        tolerance: largest difference, relative to the largest number of the reference.
    """
    contenders = iter(values.items())
    name, reference = next(contenders, ("", {}))
    return {
        other: found for other, found_in in contenders if (found := _difference(found_in, reference, tolerance, name))
    }


def _difference(values: Values, reference: Values, tolerance: float, name: str) -> str:
    common = [key for key in reference if key in values]
    if not common:
        return f"refused: nothing in common with {name}"
    for key in common:
        got, expected = (torch.as_tensor(of[key]).detach().double() for of in (values, reference))
        if got.shape != expected.shape:
            return f"refused: {key} has shape {tuple(got.shape)}, {tuple(expected.shape)} by {name}"
        # Written so that NaN is a disagreement.
        close = (got - expected).abs().max() <= tolerance * expected.abs().max().clamp_min(1e-30)
        if not bool(close):
            if got.ndim:
                return f"refused: {key} differs from that by {name} by up to {float((got - expected).abs().max()):.2g}"
            return f"refused: {key} is {float(got):.6g}, {float(expected):.6g} by {name}"
    return ""
