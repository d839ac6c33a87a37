"""LETOR lines that name every feature, 1 to D, in order: most collections hold no others, and they are fast to read.

Without its colons such a block is a table with columns of known types, which polars reads several times as fast as
scikit-learn reads sparse lines. Whatever is not of this form is left to scikit-learn.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

__all__ = ["parse_complete_lines"]

_FORM = re.compile(rb"\S+ qid:-?\d+(?: \d+:[^ :]+)+\Z")
_COMMENT = re.compile(rb"[ \t]*#[^\n]*")


def parse_complete_lines(
    text: bytes,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]] | None:
    """Parse a block of lines into features (n, D), grades (n,) and query ids (n,); return None if a line is
    incomplete.
    """
    if find_spec("polars") is None:
        return None
    import polars as pl

    if b"#" in text:
        text = _COMMENT.sub(b"", text)
    for ending in (b"\r\n", b" \n"):
        text = text.replace(ending, b"\n")
    text = text.strip()
    first = text.partition(b"\n")[0]
    # Every line must have as many colons as the first: a line that is cut short would be filled up silently.
    lines, colons = text.count(b"\n") + 1, first.count(b":")
    if not _FORM.match(first) or text.count(b":") != lines * colons or text.count(b" ") != lines * colons:
        return None
    features = range(colons - 1)
    columns = ["grade", "qid", "query", *(f"{kind}{feature}" for feature in features for kind in ("index", "value"))]
    types = [pl.Float64, pl.String, pl.Int64, *([pl.Int32, pl.Float64] * len(features))]
    try:
        frame = pl.read_csv(
            BytesIO(text.replace(b":", b" ")),
            separator=" ",
            has_header=False,
            schema=dict(zip(columns, types, strict=True)),
            quote_char=None,
        )
    except pl.exceptions.PolarsError:
        return None
    complete = (
        len(frame) == lines
        and not any(column.null_count() for column in frame)
        and bool((frame["qid"] == "qid").all())
        and all(bool((frame[f"index{feature}"] == feature + 1).all()) for feature in features)
    )
    if not complete:
        return None
    values = frame.select(columns[4::2]).to_numpy(order="c")
    return values, frame["grade"].to_numpy(), frame["query"].to_numpy()
