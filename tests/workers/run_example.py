"""Run an example several times in one process, as importing takes longest: run_example.py FILE WORDS [+ WORDS]...

In float64, so that rounding in another order is not taken for a difference in method.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from dataclasses import replace

import torch

import rankwise.data
from rankwise.data import Split


def in_double(load: Callable[[int], Split]) -> Callable[[int], Split]:
    def loaded(seed: int) -> Split:
        split = load(seed)
        parts = (split.train, split.validation, split.test)
        return Split(*(replace(part, features=part.features.double()) for part in parts))

    return loaded


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    for name in ("load_eights", "load_digit_retrieval"):
        setattr(rankwise.data, name, in_double(getattr(rankwise.data, name)))
    file, *words = sys.argv[1:]
    while words:
        end = words.index("+") if "+" in words else len(words)
        sys.argv = [file, *words[:end]]
        words = words[end + 1 :]
        runpy.run_path(file, run_name="__main__")
