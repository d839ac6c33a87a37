"""Peak memory of `rankwise predict` over the number of rows: `python -m benchmarks.trust.predict_memory`.

Trains a small model on 2,000 rows of 20 features, as a table and as a LETOR file, then scores files of 1,000 rows and
of `--rows` rows in processes of their own. Printed: the size of the file and the peak of the resident memory (VmHWM) of
the process. Memory is bounded if the peaks of the long files do not grow with `--rows`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

FEATURES, CHUNK = 20, 100_000
CHILD = """
import re, sys
from pathlib import Path
from rankwise.cli import main
code = main(sys.argv[1:])
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1], file=sys.stderr)
sys.exit(code)
"""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_500_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for suffix in (".csv", ".txt"):
            _write(folder / f"train{suffix}", 2_000)
            out = str(folder / f"run{suffix}")
            _rankwise("train", str(folder / f"train{suffix}"), "budget.steps=20", "--out", out)
        print(f"{'file':<10}{'rows':>12}{'MB':>8}{'peak MiB':>10}")
        for suffix in (".csv", ".parquet", ".jsonl", ".txt"):
            run = folder / ("run.txt" if suffix == ".txt" else "run.csv")
            for count in (1_000, rows):
                data, scores = folder / f"new{suffix}", str(folder / "scores.csv")
                _write(data, count)
                peak = _rankwise("predict", str(run), "--data", str(data), "--out", scores) / 1024
                shown = "LETOR" if suffix == ".txt" else suffix
                print(f"{shown:<10}{count:>12,}{data.stat().st_size / 1e6:>8.0f}{peak:>10.0f}", flush=True)


def _rankwise(*arguments: str) -> int:
    """Run the program in a new process; return the peak of its memory in KiB."""
    done = subprocess.run([sys.executable, "-c", CHILD, *arguments], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return int(done.stderr.split()[-1])


def _write(path: Path, rows: int) -> None:
    frames = _frames(rows)
    if path.suffix == ".parquet":
        pl.concat(list(frames)).write_parquet(path, row_group_size=CHUNK)
        return
    with open(path, "wb") as file:
        for number, frame in enumerate(frames):
            if path.suffix == ".csv":
                frame.write_csv(file, include_header=number == 0)
            elif path.suffix == ".jsonl":
                frame.write_ndjson(file)
            else:
                file.write(_letor(frame).encode())


def _frames(rows: int) -> Iterator[pl.DataFrame]:
    generator = np.random.default_rng(0)
    for start in range(0, rows, CHUNK):
        values = generator.normal(size=(min(CHUNK, rows - start), FEATURES)).round(4)
        columns = {f"x{index + 1}": values[:, index] for index in range(FEATURES)}
        label = (values[:, 0] + generator.normal(size=len(values)) > 1.5).astype(np.int64)
        yield pl.DataFrame({**columns, "label": label})


def _letor(frame: pl.DataFrame) -> str:
    cells = [pl.format(f"{index + 1}:{{}}", pl.col(f"x{index + 1}")) for index in range(FEATURES)]
    query = pl.format("qid:{}", pl.int_range(pl.len()) // 50)
    lines = frame.select(pl.concat_str([pl.col("label").cast(pl.String), query, *cells], separator=" "))
    return "\n".join(lines.to_series().to_list()) + "\n"


if __name__ == "__main__":
    main()
