"""`python -m benchmarks.speed [--quick] [--rows one-list,ap] [--only times] [--threads N] [--out DIR]`."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.speed.facts import machine_facts, thread_gain
from benchmarks.speed.groups import GROUPS, find_group
from benchmarks.speed.peak import THREADS
from benchmarks.speed.results import Result, merge, read_results, with_memory_of, write_results
from benchmarks.speed.run import FULL, QUICK, measure_memory, run_row
from benchmarks.speed.table import render, render_group


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    plan = QUICK if options.quick else FULL
    if options.only == "times":
        plan = replace(plan, memory=False)
    out = options.out or (None if options.quick else Path(__file__).parent)
    begin = time.perf_counter()

    def tell(text: str) -> None:
        print(f"[{time.perf_counter() - begin:6.0f} s] {text}", file=sys.stderr, flush=True)

    known = [] if out is None else read_results(out / "results.csv")
    refused = False
    for key in options.rows:
        group = find_group(key)
        if options.only == "memory":
            results = measure_memory(group, known, tell)
            if out is not None:
                _save(out, results)
            continue
        gain = thread_gain(options.threads)
        if gain < 0.9:
            tell(
                "WARNING: the machine is busy, threads wait for each other; times mean little. Wait, or use --threads 1"
            )
        facts = machine_facts(gain, options.quick)
        results = []
        for number, row in enumerate(group.rows, 1):
            where = f"{group.key} {number}/{len(group.rows)}, {row.name}"
            results += run_row(group, row, plan, facts, lambda text, where=where: tell(f"{where}: {text}"))  # type: ignore[misc]
        if options.only == "times":
            results = with_memory_of(known, results)
        print(render_group(group, results), flush=True)
        refused |= any(result.note.startswith("refused") for result in results)
        if out is not None:
            _save(out, results)
    if out is not None:
        tell(f"saved in {out}")
    return int(refused)


def _save(out: Path, results: list[Result]) -> None:
    """After every group, so that an interrupted run can be taken up with `--rows`."""
    out.mkdir(parents=True, exist_ok=True)
    merged = merge(read_results(out / "results.csv"), results)
    places = [group.key for group in GROUPS]
    merged = sorted((r for r in merged if r.group in places), key=lambda result: places.index(result.group))
    write_results(out / "results.csv", merged)
    (out / "RESULTS.md").write_text(render(GROUPS, merged), encoding="utf-8")


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    keys = [group.key for group in GROUPS]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description="Time and memory against peers.")
    parser.add_argument("--quick", action="store_true", help="about two minutes; prints only, unless --out is given")
    parser.add_argument(
        "--rows", default=",".join(keys), help=f"groups to measure, of {', '.join(keys)}; all by default"
    )
    parser.add_argument(
        "--only",
        choices=("times", "memory"),
        help="keep the other figures as they are: only times need a quiet machine, and take less of its time alone",
    )
    parser.add_argument("--threads", type=int, default=THREADS, help="of torch; 1 is steadier on a busy machine")
    parser.add_argument("--out", type=Path, help="folder of RESULTS.md and results.csv; groups not measured are kept")
    options = parser.parse_args(arguments)
    options.rows = [key.strip() for key in options.rows.split(",") if key.strip()]
    unknown = [key for key in options.rows if key not in keys]
    if unknown or not options.rows:
        parser.error(f"--rows: expected some of {', '.join(keys)}, got {', '.join(unknown) or 'none'}")
    return options


if __name__ == "__main__":
    sys.exit(main())
