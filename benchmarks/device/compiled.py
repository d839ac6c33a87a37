"""`python -m benchmarks.device.compiled [--out FILE]`: main losses with and without torch.compile, side by side.

Times are those of one thread of the CPU, forward and backward pass, without what other programs take of it: the median
of blocks of steps that alternate between both. Calls are what the compiled graphs call in a step: their own loops and
operators, those of torch and ours.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch._inductor.utils import run_and_get_code

from benchmarks.device.cases import CASES

__all__ = ["compare"]

_NAMES = (
    "SOPRC, 64 + 960",
    "stable AP, 64 + 960",
    "SONG, 64 x 100",
    "SONG, sampled 64 x 100",
    "K-SONG, 64 x 100",
    "pAp@10, 32 x 200",
    "retrieval SOPRC, 112",
    "ListNet, 64 x 100",
)
_CALL = re.compile(r"^ +(?:buf\d+ = )?(cpp_fused\w*|extern_kernels\.\w+|torch\.ops\.[\w.]+)\(", re.MULTILINE)
_HEAD = """Microseconds of a step without and with `torch.compile(loss, fullgraph=True)` on one thread of a CPU, and the
calls of loops and operators in the compiled step. Measured by `python -m benchmarks.device.compiled --out {name}`,
torch {version}.

| loss | eager | compiled | ratio | calls |
| --- | --: | --: | --: | --: |
"""


def compare(name: str, blocks: int = 15, steps: int = 40) -> tuple[float, float, int]:
    """Return the microseconds of an eager and of a compiled step of one of the cases, and the calls of the latter."""
    torch._dynamo.reset()
    build, batch = CASES[name]
    (scores, *others), options = batch(0)
    scores.requires_grad_()
    losses = [build(), torch.compile(build(), fullgraph=True)]
    runs = [lambda loss=loss: torch.autograd.grad(loss(scores, *others, **options), scores) for loss in losses]
    _, codes = run_and_get_code(runs[1])
    for run in runs:
        for _ in range(steps):
            run()
    times: list[list[float]] = [[], []]
    for _ in range(blocks):
        for run, found in zip(runs, times, strict=True):
            found.append(_seconds(run, steps))
    eager, compiled = (1e6 * statistics.median(found) for found in times)
    return eager, compiled, sum(len(_CALL.findall(code)) for code in codes)


def _seconds(run: Callable[[], object], steps: int) -> float:
    begin = time.thread_time()
    for _ in range(steps):
        run()
    return (time.thread_time() - begin) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write the table there, too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = []
    for name in _NAMES:
        eager, compiled, calls = compare(name)
        lines.append(f"| {name} | {eager:.0f} | {compiled:.0f} | {compiled / eager:.2f} | {calls} |")
        print(lines[-1], flush=True)
    if options.out is not None:
        text = _HEAD.format(name=options.out.as_posix(), version=torch.__version__.partition("+")[0])
        options.out.write_text(text + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    warnings.filterwarnings("ignore", category=UserWarning)
    main()
