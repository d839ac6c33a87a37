"""Run an example several times, one after the other.

In float64, so that rounding in another order is not taken for a difference in method.
"""

from __future__ import annotations

import runpy
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

import rankwise.data
from rankwise.data import Split


def run_example(file: str, runs: Sequence[Sequence[str]]) -> int:
    """Run the file as a program, with the words of each run as its arguments."""
    warnings.simplefilter("ignore")
    torch.set_default_dtype(torch.float64)
    for name in ("load_eights", "load_digit_retrieval"):
        setattr(rankwise.data, name, in_double(getattr(rankwise.data, name)))
    for words in runs:
        sys.argv = [file, *words]
        runpy.run_path(file, run_name="__main__")
    return 0


def in_double(load: Callable[[int], Split]) -> Callable[[int], Split]:
    def loaded(seed: int) -> Split:
        split = load(seed)
        parts = (split.train, split.validation, split.test)
        return Split(*(replace(part, features=part.features.double()) for part in parts))

    return loaded
