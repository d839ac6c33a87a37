"""Use a trained run: `rankwise predict`, `recommend`, `search` and `detect`."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rankwise.cli.console import print_paragraph, progress_bar, say, share_bar
from rankwise.extras import require

if TYPE_CHECKING:
    from rankwise.runs import Run

__all__ = ["detect", "predict", "recommend", "search"]

STANDARD = "-"  # the standard input or output


def predict(
    folder: Path, data: Path, out: Path, *, keep: Sequence[str], probabilities: bool, ranked: bool, device: str
) -> None:
    """Write the predictions of a run for a source, chunk by chunk."""
    from rankwise.runs import write_tables

    run = _open(folder, device)
    with _source(data) as source:
        if ranked:
            rows = write_tables(out, [run.predict(source, probabilities=probabilities, keep=keep).ranked()])
        else:
            rows = write_tables(out, _shown(run, source, keep=keep, probabilities=probabilities))
    _say(f"{rows:,} rows", out)


def recommend(folder: Path, users: Path | None, out: Path, k: int, device: str) -> None:
    """Write the k best items for each user."""
    from rankwise.runs import write_tables

    run = _open(folder, device)
    with share_bar("recommend") as on_progress:
        if users is None:
            lists = run.recommend(k=k, on_progress=on_progress)
        else:
            with _source(users) as source:
                lists = run.recommend(source, k=k, on_progress=on_progress)
    write_tables(out, [lists.columns()])
    _say(f"{len(lists):,} users, {lists.items.shape[1]} items each", out)


def search(folder: Path, queries: Path, gallery: Path | None, out: Path, k: int, device: str) -> None:
    """Write the k nearest of a gallery for each query."""
    from rankwise.runs import write_tables

    run = _open(folder, device)
    with share_bar("search") as on_progress:
        lists = run.search(queries, gallery, k, on_progress=on_progress)
    if out.suffix == ".trec":
        lists.write(out)
    else:
        write_tables(out, [lists.columns()])
    _say(f"{len(lists):,} queries, {lists.items.shape[1]} matches each", out)


def detect(folder: Path, images: Path, out: Path, drawings: Path | None, device: str) -> None:
    """Write the boxes that a run detects, in the form of COCO's results, and drawings of them."""
    run = _open(folder, device)
    with share_bar("detect") as on_progress:
        boxes = run.detect(images, on_progress=on_progress)
    boxes.write(out)
    _say(f"{len(boxes):,} boxes in {len(boxes.part):,} images", out)
    if drawings is not None:
        _say(f"{boxes.draw(drawings):,} drawings", drawings)


def _open(folder: Path, device: str) -> Run:
    """Open a run with its model on a device."""
    require("using a run", ("lightning_fabric", "pydantic", "yaml", "polars"), extra="train,data")
    from rankwise.runs import load_run
    from rankwise.runs.folder import MODEL

    run = load_run(folder)
    if not (folder / MODEL).is_file():
        say(f"{folder}: the run is not over; these are its best weights so far")
    return run.to(_find_device(device))


def _find_device(name: str) -> torch.device:
    if name == "auto":
        accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        return torch.device("cpu") if accelerator is None else accelerator
    try:
        # A small tensor shows whether the device is there.
        return torch.zeros(1, device=name).device
    except (RuntimeError, AssertionError, NotImplementedError) as problem:
        reason = str(problem).strip().splitlines()[0]
        raise ValueError(f"device: expected auto, cpu or a device of this machine, got {name!r} ({reason})") from None


def _shown(run: Run, source: Path, **options: Any) -> Iterator[Mapping[str, list[Any]]]:
    """Yield the columns of each chunk, with the number of rows on the terminal."""
    with progress_bar("{task.completed:,} rows") as progress:
        bar = progress.add_task("predict", total=None)
        for chunk in run.predict_chunks(source, **options):
            yield chunk.columns()
            progress.advance(bar, len(chunk))


@contextmanager
def _source(path: Path) -> Iterator[Path]:
    """Yield the path itself; the standard input is kept in a temporary file, as it may be larger than memory."""
    if str(path) != STANDARD:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder, "input")
        with open(whole, "wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        with open(whole, "rb") as file:
            start = file.read(4)
        suffix = ".parquet" if start == b"PAR1" else ".jsonl" if start.startswith(b"{") else ".csv"
        yield whole.rename(Path(folder, f"standard input{suffix}"))


def _say(what: str, out: Path) -> None:
    if str(out) != STANDARD:  # the result itself is there
        print_paragraph(f"{what}: {out}")
