"""`python -m benchmarks.device [--out FILE]`: stops and kernels of a step of each main loss, as a table.

A stop is a read by the host that waits for all work given to the device before it. Kernels are operations that launch
at least one. Both are counted on the pretend device of `pretend.py`, forward and backward pass together, for our losses
and for the plain versions of `plain.py`.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.device.cases import CASES
from benchmarks.device.plain import PLAIN
from benchmarks.device.pretend import DEVICE, PretendDevice

_HEAD = """Stops: how often the host waits for the device in a step, forward and backward pass; "new ids": in the step
after one with new ids. Kernels: operations that launch at least one. Plain: kernels of the same loss in plain torch
without checks and ids (`benchmarks/device/plain.py`), and ours divided by them. Counted by
`python -m benchmarks.device --out {name}` on a pretend device, so that no accelerator is needed and the numbers do not
depend on the machine.

| loss | stops | stops, new ids | kernels | plain | ratio |
| --- | --: | --: | --: | --: | --: |
"""


def count(build: Callable[[], Any], batch: Callable[[int], Any]) -> tuple[int, int, int]:
    """Return stops in steady state, the most stops with new ids, and kernels in steady state of a loss."""
    with PretendDevice() as pretend:
        loss = build().to(DEVICE)
        most = stops = 0
        for seed in (0, 1, 2, 2, 2):
            (scores, *others), options = batch(seed)
            scores, *others = map(pretend.put, (scores, *others))
            options = {key: pretend.put(option) for key, option in options.items()}
            pretend.reset()
            loss(scores.requires_grad_(), *others, **options).backward()
            stops = sum(pretend.stops.values())
            most = max(most, stops)
    return stops, most, sum(pretend.operations.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write the table there, too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = []
    for name in CASES:
        stops, most, kernels = count(*CASES[name])
        plain, ratio = "", ""
        if name in PLAIN:
            *_, others = count(*PLAIN[name])
            plain, ratio = str(others), f"{kernels / others:.2f}"
        lines.append(f"| {name} | {stops} | {most} | {kernels} | {plain} | {ratio} |")
        print(lines[-1], flush=True)
    if options.out is not None:
        text = _HEAD.format(name=options.out.as_posix()) + "\n".join(lines) + "\n"
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    warnings.filterwarnings("ignore", category=UserWarning)
    main()
