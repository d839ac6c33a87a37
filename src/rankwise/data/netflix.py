"""Read Netflix Prize ratings in their original format: the number of a film and a colon, then a rating per line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from rankwise.data.files import bad_line
from rankwise.data.interactions import Interactions
from rankwise.extras import require

if TYPE_CHECKING:
    import polars as pl

__all__ = ["is_netflix", "read_netflix"]

_FORMS = ("combined_data_*.txt", "mv_*.txt")


def is_netflix(folder: str | Path) -> bool:
    """Return whether a folder holds files that `read_netflix` reads."""
    return bool(_files(Path(folder)))


def read_netflix(folder: str | Path) -> Interactions:
    """The ratings of a Netflix Prize folder: `combined_data_1.txt` .. `combined_data_4.txt`, or `mv_0000001.txt` ...

    A line `7:` says which film the lines `user,rating,date` below it are about. Times are days since 1970.

    Args:
        folder: where the files lie.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "combined_data_1.txt")
        ...     _ = path.write_text("7:\\n30,4,2005-09-06\\n8:\\n30,2,2005-09-07\\n")
        ...     ratings = read_netflix(folder)
        >>> ratings.items.tolist(), ratings.item_names, ratings.ratings.tolist(), ratings.times.diff().tolist()
        ([0, 1], ('7', '8'), [4.0, 2.0], [1])
    """
    require("reading interactions", ("polars",))
    import polars as pl

    paths = _files(Path(folder))
    if not paths:
        raise FileNotFoundError(f"{folder}: expected {' or '.join(_FORMS)} in this folder, got none of them")
    frame = pl.concat([_read(path) for path in paths])
    users, items = (np.unique(frame[name].to_numpy(), return_inverse=True) for name in ("user", "film"))
    return Interactions(
        torch.from_numpy(users[1]),
        torch.from_numpy(items[1]),
        torch.from_numpy(frame["rating"].to_numpy().copy()),
        torch.from_numpy(frame["date"].to_numpy().copy()),
        *(tuple(map(str, names.tolist())) for names in (users[0], items[0])),
    )


def _files(folder: Path) -> list[Path]:
    return next((files for form in _FORMS if (files := sorted(folder.glob(form)))), [])


def _read(path: Path) -> pl.DataFrame:
    """The columns user, film, rating and date (days) of one file, a row per rating."""
    import polars as pl

    text = pl.col("text").str.strip_chars()
    lines = pl.read_csv(
        path,
        # One column a line: the lines of films and those of ratings differ in their number of fields.
        separator="\x01",
        has_header=False,
        schema={"text": pl.String},
        quote_char=None,
        glob=False,
        raise_if_empty=False,
    ).select(text, film=text.str.extract(r"^(\d+):$").cast(pl.Int64, strict=False))
    rows = lines.with_row_index("line", offset=1).with_columns(
        pl.col("film").forward_fill(), head=pl.col("film").is_not_null()
    )
    fields = pl.col("text").str.split_exact(",", 2).struct
    rows = rows.filter(~pl.col("head") & (pl.col("text").fill_null("") != "")).select(
        "line",
        "film",
        fields.field("field_0").cast(pl.Int64, strict=False).alias("user"),
        fields.field("field_1").cast(pl.Float32, strict=False).alias("rating"),
        fields.field("field_2").str.to_date("%Y-%m-%d", strict=False).cast(pl.Int64).alias("date"),
    )
    broken = rows.filter(pl.any_horizontal(pl.all().is_null()))
    if len(broken):
        number = broken["line"][0]
        orphan = broken["film"][0] is None
        expected = "`film:` before the first rating" if orphan else "`user,rating,date`"
        bad_line(path, number, expected, repr(lines["text"][number - 1]))
    if not len(rows):
        raise ValueError(f"{path}: expected ratings, got none")
    return rows.drop("line")
