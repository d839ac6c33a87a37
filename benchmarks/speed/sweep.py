"""How time grows with size: `python -m benchmarks.speed.sweep [--quick] [--sweeps one-list,song] [--largest N]`.

Writes `docs/speed.md` and its pictures from `benchmarks/speed/sweep.csv`; sweeps not measured are kept as they were.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.speed.facts import machine_facts, thread_gain
from benchmarks.speed.groups.one_list import list_of, on_list
from benchmarks.speed.groups.ranking import sampled_batch
from benchmarks.speed.groups.retrieval_batch import batch_of, metric_learning_step, on_batch, product_step
from benchmarks.speed.groups.retrieval_metrics import evaluate_items, items_of, product_of_items
from benchmarks.speed.peak import THREADS
from benchmarks.speed.picture import draw_log_log
from benchmarks.speed.timing import Effort, interleave
from rankwise.losses import AUPRCLoss, NDCGLoss, StableAPLoss

__all__ = ["SWEEPS", "Point", "Sweep", "exponent", "main", "page"]

ROOT = Path(__file__).resolve().parents[2]
CSV, PAGE, PICTURES = Path(__file__).parent / "sweep.csv", ROOT / "docs" / "speed.md", ROOT / "docs" / "assets"
EFFORT = Effort(rounds=9, seconds=2.0, at_least=2, patience=20.0)
QUICK = Effort(rounds=3, seconds=0.2, at_least=1, patience=1.0)


@dataclass(frozen=True)
class Sweep:
    """Who is timed at which sizes, and how fast time may grow.

    Attributes:
        key, title, across: on the command line, above the picture, of its horizontal axis.
        about: what is timed.
        sizes: of the problems; beyond `quick` they are left out by `--quick`.
        make: the problem of a size.
        contenders: by name, what takes a problem and gives the call that is timed; ours come first.
        ours: how many of the contenders are.
        fit_from: exponents are fitted to sizes from here on; below, fixed costs rule.
        most: the largest exponent that ours may have.
    """

    key: str
    title: str
    across: str
    about: str
    sizes: tuple[int, ...]
    quick: int
    make: Callable[[int], Any]
    contenders: dict[str, Callable[[Any], Callable[[], object]]]
    ours: int
    fit_from: int
    most: float | None = None


@dataclass(frozen=True)
class Point:
    """Median milliseconds of one contender at one size."""

    sweep: str
    contender: str
    size: int
    ms: float
    facts: str


SWEEPS = (
    Sweep(
        key="one-list",
        title="A step on one list, 1 % positive",
        across="items",
        about="Forward and backward on the scores of one list.",
        sizes=(1_000, 10_000, 100_000, 1_000_000, 10_000_000),
        quick=100_000,
        make=lambda size: list_of(size // 100, size - size // 100),
        contenders={
            "rankwise AUPRCLoss (SOPRC)": on_list(AUPRCLoss),
            "rankwise StableAPLoss": on_list(StableAPLoss),
            "torch.sort": lambda problem: lambda: torch.sort(problem.scores.detach()),
        },
        ours=2,
        fit_from=10_000,
        most=1.15,
    ),
    Sweep(
        key="retrieval-batch",
        title="A step on a retrieval batch, 512-d, 4 per class",
        across="batch size B",
        about="Forward and backward on the embeddings. The number of similarities is the square of B.",
        sizes=(64, 128, 256, 512, 1024, 2048, 4096),
        quick=256,
        make=batch_of,
        contenders={
            "rankwise EmbeddingLoss(AUPRCLoss())": on_batch(AUPRCLoss),
            "rankwise EmbeddingLoss(StableAPLoss())": on_batch(StableAPLoss),
            "PML multi-similarity": metric_learning_step("MultiSimilarityLoss"),
            "similarity matmul, forward + backward": product_step,
        },
        ours=2,
        fit_from=512,
        most=2.15,
    ),
    Sweep(
        key="song",
        title="A step of SONG, 64 queries x 100 sampled items",
        across="items of a whole list",
        about="Forward and backward on the scores; only the statistics of the lists know how long they are.",
        sizes=(100, 1_000, 10_000, 100_000, 1_000_000),
        quick=10_000,
        make=lambda size: (sampled_batch(64, 100), size),
        contenders={"rankwise SONG": lambda problem: problem[0].step(NDCGLoss(problem[0].statistics(problem[1])))},
        ours=1,
        fit_from=100,
        most=0.05,
    ),
    Sweep(
        key="retrieval-metrics",
        title="mAP and recall, all against all, 512-d",
        across="items N",
        about="`evaluate_retrieval` without intervals. The number of similarities is the square of N.",
        sizes=(1_000, 3_000, 10_000, 30_000, 60_502),
        quick=3_000,
        make=lambda size: items_of(size, 5),
        contenders={
            "rankwise evaluate_retrieval": evaluate_items,
            "similarity matmul, in blocks": product_of_items,
        },
        ours=1,
        fit_from=3_000,
        most=2.15,
    ),
)


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """The slope of log time against log size, by least squares; NaN for fewer than two sizes."""
    if len(points) < 2:
        return math.nan
    logs = [(math.log(x), math.log(y)) for x, y in points]
    across, up = (sum(values) / len(logs) for values in zip(*logs, strict=True))
    spread = sum((x - across) ** 2 for x, _ in logs)
    return sum((x - across) * (y - up) for x, y in logs) / spread


def measure(
    sweep: Sweep, effort: Effort, facts: str, quick: bool, tell: Callable[[str], None], largest: int | None = None
) -> list[Point]:
    """All sizes take turns too, so that a machine that slows down does not bend the curves."""
    calls: dict[tuple[str, int], Callable[[], object]] = {}
    first: dict[tuple[str, int], float] = {}
    for size in sweep.sizes:
        if (quick and size > sweep.quick) or (largest is not None and size > largest):
            break
        problem = sweep.make(size)
        for name, prepare in sweep.contenders.items():
            try:
                call = prepare(problem)
            except ModuleNotFoundError:
                continue
            tell(f"{sweep.key}, {size:,}, {name}: first run")
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call()
            calls[name, size], first[name, size] = call, time.perf_counter() - start
    times = interleave(calls, effort, first)
    return [Point(sweep.key, name, size, found.median_ms, facts) for (name, size), found in times.items()]


def page(points: Sequence[Point]) -> str:
    """The page of the documentation: for each sweep a picture, times and exponents with their verdict."""
    parts = [_INTRODUCTION]
    for sweep in SWEEPS:
        own = [point for point in points if point.sweep == sweep.key]
        if own:
            parts.append(_section(sweep, own))
    return "\n".join(parts)


_INTRODUCTION = """\
# Speed

How time grows with size. Made by `python -m benchmarks.speed.sweep`; the figures are in `benchmarks/speed/sweep.csv`.
Times are medians in milliseconds, contenders taking turns in one process. How each size compares with other libraries,
and what memory it takes, is in `benchmarks/speed/RESULTS.md`, made by `make bench`.

The exponent is the slope of log time against log size, fitted to the sizes from the one named on: time grows as size to
that power.
"""


def _section(sweep: Sweep, points: Sequence[Point]) -> str:
    names = [name for name in sweep.contenders if any(point.contender == name for point in points)]
    sizes = sorted({point.size for point in points})
    times = {(point.contender, point.size): point.ms for point in points}
    lines = [[sweep.across, *(f"{size:,}" for size in sizes), f"exponent from {sweep.fit_from:,}", "mark"]]
    lines.append(["---", *["--:"] * (len(sizes) + 1), "---"])
    for name in names:
        fitted = [(size, times[name, size]) for size in sizes if size >= sweep.fit_from and (name, size) in times]
        slope = exponent(fitted)
        ours = name in list(sweep.contenders)[: sweep.ours]
        cells = [_figure(times.get((name, size))) for size in sizes]
        mark = _verdict(slope, sweep.most) if ours and sweep.most is not None else ""
        lines.append([f"**{name}**" if ours else name, *cells, "-" if math.isnan(slope) else f"{slope:.2f}", mark])
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    measured = "\n".join(f"Measured: {fact}." for fact in dict.fromkeys(point.facts for point in points))
    picture = f"![{sweep.title}: time against {sweep.across}](assets/speed-{sweep.key}.svg)"
    return f"## {sweep.title}\n\n{sweep.about}\n{measured}\n\n{picture}\n\n{table}\n"


def _verdict(slope: float, most: float) -> str:
    if math.isnan(slope):
        return f"<= {most:g}: not measured"
    return f"<= {most:g}: {'met' if slope <= most else 'missed'}"


def _figure(ms: float | None) -> str:
    if ms is None:
        return "-"
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.3g}"


def _merged(before: Sequence[Point], found: Sequence[Point]) -> list[Point]:
    """What was found takes the place of what was known of the same contenders and sizes."""
    known = {(p.sweep, p.contender, p.size): p for p in (*before, *found)}
    order = [sweep.key for sweep in SWEEPS]
    return sorted(known.values(), key=lambda point: (order.index(point.sweep), point.size))


def _read() -> list[Point]:
    if not CSV.exists():
        return []
    with CSV.open(newline="", encoding="utf-8") as file:
        return [
            Point(line["sweep"], line["contender"], int(line["size"]), float(line["ms"]), line["facts"])
            for line in csv.DictReader(file)
        ]


def _write(points: Sequence[Point]) -> None:
    with CSV.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["sweep", "contender", "size", "ms", "facts"])
        writer.writerows([p.sweep, p.contender, p.size, f"{p.ms:.5g}", p.facts] for p in points)
    PAGE.write_text(page(points), encoding="utf-8")
    for sweep in SWEEPS:
        curves: dict[str, list[tuple[float, float]]] = {}
        for point in points:
            if point.sweep == sweep.key:
                curves.setdefault(point.contender, []).append((point.size, point.ms))
        if curves:
            picture = draw_log_log(sweep.title, sweep.across, curves)
            (PICTURES / f"speed-{sweep.key}.svg").write_text(picture, encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    keys = [sweep.key for sweep in SWEEPS]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.sweep", description="How time grows with size.")
    parser.add_argument("--quick", action="store_true", help="small sizes, few runs; prints only")
    parser.add_argument("--sweeps", default=",".join(keys), help=f"some of {', '.join(keys)}; all by default")
    parser.add_argument("--threads", type=int, default=THREADS, help="of torch; 1 is steadier on a busy machine")
    parser.add_argument("--largest", type=int, help="leave out larger sizes; their last figures are kept")
    options = parser.parse_args(arguments)
    wanted = [key.strip() for key in options.sweeps.split(",")]
    unknown = [key for key in wanted if key not in keys]
    if unknown:
        parser.error(f"--sweeps: expected some of {', '.join(keys)}, got {', '.join(unknown)}")
    begin = time.perf_counter()

    def tell(text: str) -> None:
        print(f"[{time.perf_counter() - begin:6.0f} s] {text}", file=sys.stderr, flush=True)

    facts = machine_facts(thread_gain(options.threads), options.quick)
    points = [] if options.quick else _read()
    for sweep in SWEEPS:
        if sweep.key in wanted:
            effort = QUICK if options.quick else EFFORT
            points = _merged(points, measure(sweep, effort, facts, options.quick, tell, options.largest))
            if not options.quick:
                _write(points)
    print(page(points))
    return 0


if __name__ == "__main__":
    sys.exit(main())
