"""`python -m benchmarks.device.xla [--out FILE]`: losses, metrics and tables on XLA, a second real device, as a table.

It needs `torch_xla` and the `torch` it was built for, in an environment of its own, and runs on the CPU with
`PJRT_DEVICE=CPU`. Each loss takes two steps with new scores, forward and backward, on the CPU and on XLA; compared are
values, gradients and state.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch_xla
from torch import Tensor

import rankwise as rw
from benchmarks.device.cases import CASES
from rankwise.estimators import IdTable, PairAverages, QuantileTracker

__all__ = ["compare"]

_TOLERANCE = 1e-4
_HEAD = """Values, gradients and state of two steps of each loss on XLA, compared with the CPU, and the losses that XLA
cannot run. The largest difference is relative to the largest number of each tensor. Made by
`PJRT_DEVICE=CPU python -m benchmarks.device.xla --out {name}`, torch {torch}, torch_xla {xla}.

| case | result | largest difference |
| --- | --- | --: |
"""

Run = Callable[[torch.device], Iterator[Tensor]]


def of_loss(name: str) -> Run:
    """Return the run of one of the cases."""
    build, batch = CASES[name]

    def run(device: torch.device) -> Iterator[Tensor]:
        torch.manual_seed(0)
        loss = build().to(device)
        for seed in (0, 1):
            (scores, *others), options = batch(seed)
            leaf = scores.to(device).requires_grad_()
            value = loss(leaf, *(t.to(device) for t in others), **{key: t.to(device) for key, t in options.items()})
            value.backward()
            yield value.detach()
            yield leaf.grad
        yield from (value for key, value in loss.state_dict().items() if not key.endswith("_extra_state"))

    return run


def metrics(device: torch.device) -> Iterator[Tensor]:
    """Evaluate a batch of rows."""
    scores = torch.randn(6, 20, generator=torch.Generator().manual_seed(0))
    labels = (torch.arange(120).view(6, 20) % 5 == 0).long()
    result = rw.evaluate(scores.to(device), labels.to(device), ["ap", "ndcg@5", "auroc", "rr", "pap@3"], bootstrap=0)
    yield from result.per_query.values()


def tables(device: torch.device) -> Iterator[Tensor]:
    """Update and read the tables of running estimates."""
    random = torch.Generator().manual_seed(0)
    table, pairs, quantiles = IdTable(2).to(device), PairAverages(0.3).to(device), QuantileTracker(5, 0.3).to(device)
    for _ in range(3):
        ids, two = torch.randint(0, 50, (80,), generator=random), torch.randint(0, 9, (80, 2), generator=random)
        values = torch.randn(80, 5, generator=random)
        there = values.to(device)
        yield table.update(ids.to(device), there[:, :2], 0.3)
        yield pairs(two.to(device), there[:, 0])
        yield quantiles(there.sort(1).values, torch.ones(80, dtype=torch.bool, device=device), ids.to(device))


RUNS: dict[str, Run] = {**{name: of_loss(name) for name in CASES}, "metrics": metrics, "tables": tables}


def compare(run: Run) -> tuple[str, float | None]:
    """Return "equal", or what is wrong, and the largest difference of a run on the CPU and on XLA."""
    try:
        found = [each.cpu() for each in run(torch_xla.device())]
    except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
        return f"not run: {_reason(error)}", None
    expected = list(run(torch.device("cpu")))
    if [each.shape for each in found] != [each.shape for each in expected]:
        return "other shapes", None
    largest = max((_difference(*pair) for pair in zip(found, expected, strict=True)), default=0.0)
    return ("equal" if largest < _TOLERANCE else "differs"), largest


def _difference(found: Tensor, expected: Tensor) -> float:
    if not expected.numel():
        return 0.0
    found, expected = found.double().nan_to_num(), expected.double().nan_to_num()
    return float((found - expected).abs().max() / expected.abs().max().clamp_min(1e-6))


def _reason(error: Exception) -> str:
    lines: Any = [line for line in str(error).splitlines() if line.strip()]
    first = re.sub(r"0x[0-9a-f]+|/\S+/", "", lines[0] if lines else "")
    return f"{type(error).__name__}: {first[:160]}".replace("|", "/")


def row(name: str) -> str:
    """Compare one case, and return its row of the table."""
    result, largest = compare(RUNS[name])
    return f"| {name} | {result} | {'' if largest is None else format(largest, '.0e')} |"


def row_of_a_process(name: str) -> str:
    """Return the row of a case from a process of its own, because a failed check inside XLA ends the process."""
    with tempfile.TemporaryDirectory() as folder:
        out, errors = Path(folder) / "row", Path(folder) / "errors"
        child = multiprocessing.get_context("fork").Process(target=_write_row, args=(name, out, errors))
        child.start()
        child.join()
        if out.exists():
            return out.read_text()
        failed = [line for line in errors.read_text().splitlines() if "Check failed" in line or "Error" in line]
    reason = failed[0].partition("] ")[2] or failed[0] if failed else f"exit code {child.exitcode}"
    return f"| {name} | the process ends: {reason[:160].replace('|', '/')} | |"


def _write_row(name: str, out: Path, errors: Path) -> None:
    with errors.open("w") as file:
        os.dup2(file.fileno(), 2)
    out.write_text(row(name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write the table there, too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = []
    for name in RUNS:
        lines.append(row_of_a_process(name))
        print(lines[-1], flush=True)
    if options.out is not None:
        text = _HEAD.format(name=options.out.as_posix(), torch=torch.__version__, xla=torch_xla.__version__)
        options.out.write_text(text + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    warnings.filterwarnings("ignore", category=UserWarning)
    main()
