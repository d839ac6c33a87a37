"""Memory and time of a training whose data stay on disk.

    python -m benchmarks.scale.memory table --rows 5000000 --folder DIR
    python -m benchmarks.scale.memory pairs --rows 20000000 --folder DIR
    python -m benchmarks.scale.memory letor --rows 2000000 --folder DIR

Makes a file of random data (or takes the one made before), passes over it once with the reader's own parser, then
reads, cuts, trains some steps and evaluates on validation in a process of its own with `data.cache`. Peak of anonymous
memory: what the process cannot give back, read from /proc/PID/smaps_rollup every 50 ms; mapped pages of the cache are
not part of it. `--in-memory` trains without the cache, too, and compares the weights.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from rankwise.data import read_letor
from rankwise.data.files import report_reading
from rankwise.data.table_files import open_typed_chunks
from rankwise.problems import make_problem
from rankwise.training import fit

WIDTHS = {"table": 30, "letor": 136}
USERS, ITEMS = 150_000, 20_000
BLOCK = 250_000


def make_file(kind: str, rows: int, folder: Path) -> Path:
    """Return a file of random data of a kind, made if it is not there."""
    path = folder / f"{kind}-{rows}.{'txt' if kind == 'letor' else 'csv'}"
    if path.exists():
        return path
    random, part = np.random.default_rng(0), path.with_suffix(".part")
    with part.open("wb") as file:
        for first in range(0, rows, BLOCK):
            count = min(BLOCK, rows - first)
            if kind == "pairs":
                columns = {
                    "user": random.integers(0, USERS, count),
                    "item": (ITEMS * random.random(count) ** 2).astype(int),
                    "time": first + np.arange(count),
                }
            else:
                values = random.normal(size=(count, WIDTHS[kind])).round(4)
                label = values[:, 0] + random.normal(size=count) > 2
                columns = {f"x{index}": column for index, column in enumerate(values.T)} | {"y": label.astype(int)}
            frame = pl.DataFrame(columns)
            if kind == "letor":
                cells = [pl.format("{}:{}", pl.lit(n + 1), pl.col(f"x{n}")) for n in range(WIDTHS[kind])]
                query = (first + pl.int_range(count)) // 100
                frame = frame.select(pl.concat_str(pl.col("y"), pl.format("qid:{}", query), *cells, separator=" "))
            file.write(frame.write_csv(include_header=first == 0 and kind != "letor", quote_style="never").encode())
    part.rename(path)
    return path


def recipe(kind: str, path: Path, cache: Path | None, steps: int) -> dict[str, Any]:
    """Return a recipe that trains some steps on a file."""
    data: dict[str, Any] = {"train": str(path), "cache": None if cache is None else str(cache)}
    common: dict[str, Any] = {"budget": {"steps": steps}, "evaluation": {"every": steps, "at_start": False}}
    if kind == "table":
        return {"task": "tabular", "data": data, **common}
    if kind == "letor":
        return {"task": "ltr", "data": data, **common}
    data |= {"user": "user", "item": "item", "time": "time", "leave_one_out": "time"}
    model = {"name": "matrix-factorisation", "dimensions": 32}
    batches = {"users": 128, "relevant": 10, "irrelevant": 300}
    return {
        "task": "recsys", "data": data, "model": model, "batches": batches, "refit": False, "metrics": ["ndcg@20"],
        **common, "evaluation": {"every": steps, "at_start": False, "rows": 2000},
    }  # fmt: skip


def train(given: dict[str, Any], out: Path) -> None:
    """Train, and write the time of the first step and the weights."""
    torch.set_num_threads(1)
    problem, began, busy = make_problem(given), time.perf_counter(), time.process_time()
    reports: list[float] = []
    with report_reading(lambda path, share: reports.append(share)):
        schema, split = problem.read({})
    parts = problem.cut(split, 0)
    steps: list[tuple[float, float]] = []
    fitted = fit(
        problem,
        schema,
        parts,
        on_step=lambda _: steps.append((time.perf_counter() - began, time.process_time() - busy)),
    )
    torch.save(fitted.model.state_dict(), out / "weights.pt")
    first, used = steps[0]
    times = {"seconds to the first step": first, "CPU seconds": used, "reports of progress": len(reports)}
    (out / "times.json").write_text(json.dumps(times))


def watch_training(given: dict[str, Any], out: Path) -> dict[str, float]:
    """Train in a process of its own; return its peak of anonymous memory in GiB and its times in seconds."""
    out.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "benchmarks.scale.memory", "--train", json.dumps(given), "--folder", str(out)]
    peak = 0
    began = time.perf_counter()
    process = subprocess.Popen(command)
    while process.poll() is None:
        try:
            lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
            peak = max([peak, *(int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))])
        except OSError:
            pass
        time.sleep(0.05)
    if process.returncode:
        raise SystemExit(process.returncode)
    times: dict[str, float] = json.loads((out / "times.json").read_text())
    return {"anonymous GiB": peak / 2**20, **times, "whole run": time.perf_counter() - began}


def one_pass(kind: str, path: Path, cache: Path) -> tuple[float, float]:
    """Return the seconds and CPU seconds of one pass over a file by the reader's own parser, nothing kept."""
    begin, busy = time.perf_counter(), time.process_time()
    if kind == "letor":
        read_letor(path, cache=cache / "pass")
    else:
        for _ in open_typed_chunks(path):
            pass
    return time.perf_counter() - begin, time.process_time() - busy


def main() -> None:
    """Print one line for each training."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", nargs="?", choices=("table", "pairs", "letor"))
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--in-memory", action="store_true")
    parser.add_argument("--train", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train is not None:
        train(options.train, options.folder)
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    path = make_file(options.kind, options.rows, options.folder)
    cache = options.folder / "cache"
    print(f"{path.name}: {path.stat().st_size / 2**30:.2f} GiB of text")
    seconds, busy = one_pass(options.kind, path, cache)
    print(f"one pass: {seconds:.1f} s, {busy:.1f} CPU s", flush=True)
    trainings: dict[str, Path | None] = {"first": cache, "again": cache}
    if options.in_memory:
        trainings["in memory"] = None
    weights = []
    for name, kept in trainings.items():
        out = options.folder / name.replace(" ", "-")
        shown = watch_training(recipe(options.kind, path, kept, options.steps), out)
        print(f"{name}: " + ", ".join(f"{key} {value:.2f}" for key, value in shown.items()), flush=True)
        weights.append(torch.load(out / "weights.pt", weights_only=True))
    same = all(torch.equal(each[key], value) for each in weights for key, value in weights[0].items())
    print("weights: " + ("the same bits" if same else "DIFFERENT"))


if __name__ == "__main__":
    main()
