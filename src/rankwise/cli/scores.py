"""Files of scores on the command line: what is wrong with them is the user's to mend, so it ends with code 2."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from rankwise.cli.extras import require
from rankwise.data import Scores, read_scores

__all__ = ["check_out", "read_file"]


def read_file(
    path: Path,
    *,
    score: str | None = None,
    label: str | None = None,
    query: str | None = None,
    group: str | None = None,
    id: str | None = None,
    features: Sequence[str] = (),
) -> Scores:
    """`read_scores`, with what is wrong as an error of the command line."""
    if path.suffix.lower() != ".npz":
        require("reading such a file", ("polars",))
    try:
        return read_scores(path, score=score, label=label, query=query, group=group, id=id, features=features)
    except (OSError, ValueError) as problem:
        raise typer.BadParameter(str(problem)) from None


def check_out(out: Path, option: str = "--out") -> None:
    """Refuse a place where no file can be written, before any work is done."""
    if not out.parent.is_dir():
        raise typer.BadParameter(f"the folder {str(out.parent)!r} does not exist", param_hint=option)
    if out.is_dir():
        raise typer.BadParameter(f"{str(out)!r} is a folder; expected the name of a file", param_hint=option)
