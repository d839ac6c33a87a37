"""Write a LETOR file of many rows, read it twice, print time and memory: `read_long_letor.py FOLDER ROWS FEATURES`.

Prints `name=value` lines: rows, features, megabytes of the file, seconds to read it, seconds to read it from the cache,
and the highest resident memory while reading, in MiB, less what the process held before.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import numpy as np

from rankwise.data import read_letor

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
BLOCK = 20_000
PER_QUERY = 120


def write(path: Path, rows: int, features: int) -> None:
    """Rows of random numbers; the features repeat every `BLOCK` rows, the queries do not."""
    random = np.random.default_rng(0)
    items = [
        " ".join(f"{index}:{value:.6g}" for index, value in enumerate(row, start=1)).encode()
        for row in random.lognormal(sigma=3, size=(BLOCK, features))
    ]
    grades = random.integers(5, size=BLOCK)
    with path.open("wb", buffering=1 << 24) as file:
        for row in range(rows):
            place = row % BLOCK
            file.write(b"%d qid:%d %b\n" % (grades[place], row // PER_QUERY, items[place]))


def mib(field: str) -> float:
    found = re.search(rf"{field}:\s+(\d+) kB", STATUS.read_text())
    if found is None:
        raise RuntimeError(f"no {field} in {STATUS}")
    return int(found[1]) / 1024


def main() -> None:
    folder, rows, features = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    small, path = folder / "small.txt", folder / "long.txt"
    write(small, 100, features)
    write(path, rows, features)
    read_letor(small)  # code pages and imports are not counted
    RESET.write_text("5")
    before = mib("VmRSS")
    start = time.perf_counter()
    part = read_letor(path, cache=folder / "cache")
    seconds = time.perf_counter() - start
    peak = mib("VmHWM") - before
    print(f"rows={len(part)}", f"features={part.features.shape[1]}", f"megabytes={path.stat().st_size / 1e6:.0f}")
    queries = int(part.query_ids[-1]) + 1
    del part
    start = time.perf_counter()
    again = read_letor(path, cache=folder / "cache")
    print(f"seconds={seconds:.1f}", f"seconds_cached={time.perf_counter() - start:.1f}", f"peak_mib={peak:.0f}")
    print(f"queries={queries}", f"same={int(again.query_ids[-1]) + 1 == queries}")


if __name__ == "__main__":
    main()
