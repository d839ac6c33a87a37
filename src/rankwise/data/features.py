"""Feature columns of a table: learn how each becomes inputs of a model, and encode them."""

from __future__ import annotations

import itertools
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from rankwise.data.columns import loses_differences, read_numbers, refuse_cells, strip_text
from rankwise.data.files import LARGEST
from rankwise.data.schema import DataNote, with_tuples
from rankwise.data.table_files import RawTable

if TYPE_CHECKING:
    import polars as pl

__all__ = ["FeatureEncoding", "LearnedFeatures", "learn_features"]

# Of the values of a category so many, the most frequent ones, become inputs of their own.
MOST_VALUES = 50
# A smaller table is taken as it is: a few rows are easily constant or all different.
FEWEST_ROWS = 20
# A column of text in which more cells than this share are numbers is a column of numbers with mistakes.
MOSTLY = 0.5
# ... unless the words are frequent and the values few: answers to choose from, such as 2, 3, 4, 5more.
SOMETIMES, FEW_VALUES = 0.05, 10
ID_NAME = re.compile(r"(^|[\s_.-])(id|ids|uuid|guid|key|index|row|nr|no)$|[a-z]I[dD]$", re.IGNORECASE)
DECIMAL_COMMA = r"^[+-]?\d+,\d+$"
# Numbers as people write them: with a decimal comma, groups of three digits, a currency, a percent sign, a minus sign.
LOCAL_NUMBER = (
    r"^[+\-\u2212\u2013]?\s*[$\u20ac\u00a3\u00a5]?\s*"
    r"(\d+([.,]\d+)?|\d{1,3}([ .,'\u2019\u00a0\u202f]\d{3})+([.,]\d+)?)\s*[%$\u20ac\u00a3\u00a5]?$"
)
LOCAL_DATE = r"^\d{1,2}([./-])\d{1,2}[./-](\d{4}|\d{2})\b"
# Seconds may have a fraction; moments of a time zone are read as those of UTC.
DATE_FORMATS = (
    *("%Y-%m-%d", "%Y/%m/%d", "%Y-%m-%d %H:%M"),
    *(f"%Y-%m-%d{between}%H:%M:%S%.f{zone}" for between in " T" for zone in ("", "%#z")),
)
DAY = 86_400_000_000.0  # in microseconds
# Of a column every so many cells are enough to see that float32 holds its differences, and its rounding error.
_SAMPLED, _HALF_UNIT, _LEAST_ERROR = 16, 2.0**-24, 2.0**-150
ABSENT = ""  # the value of a missing category

Values = NDArray[np.float64]


@dataclass(frozen=True)
class FeatureEncoding:
    """The inputs that a model gets from the feature columns of a table.

    A column of numbers (or booleans) is one input, plus one that is 1 where the cell is missing if the training data
    had missing cells. A category is one input for each of its known values; all are 0 for a value that is unknown or
    rare. A date is three: the number of days since 1970, the month and the day of the week (Monday is 1).

    Attributes:
        names: of the feature columns.
        categories: known values of the columns that are categories.
        dates: columns that are dates.
        indicators: columns of numbers and dates that have an input for missing cells.
        origins: of columns whose differences float32 could not hold (Unix times), a value that is subtracted first.
    """

    names: tuple[str, ...]
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dates: tuple[str, ...] = ()
    indicators: tuple[str, ...] = ()
    origins: Mapping[str, float] = field(default_factory=dict)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Return the names of the model's inputs, in order."""
        return tuple(name for column in self.names for name in self.inputs_of(column))

    def inputs_of(self, column: str) -> tuple[str, ...]:
        """Return the names of the inputs that one column becomes."""
        if column in self.categories:
            return tuple(f"{column}={value or 'missing'}" for value in self.categories[column])
        further = (f"{column} month", f"{column} weekday") if column in self.dates else ()
        return (column, *further, *((f"{column} missing",) if column in self.indicators else ()))

    @property
    def codes(self) -> tuple[tuple[int, int], ...]:
        """Return for each input its column and its code there, see `rankwise.models.Columns`.

        Codes of categories are in the order of their names; a missing category has the code of a missing cell. Month
        and day of the week are columns of their own.
        """
        codes: list[tuple[int, int]] = []
        columns = itertools.count()
        for name in self.names:
            column = next(columns)
            if name in self.categories:
                known = [value for value in self.categories[name] if value != ABSENT]
                codes += [(column, known.index(value) + 1 if value in known else 0) for value in self.categories[name]]
                continue
            codes.append((column, -1))
            if name in self.dates:
                codes += [(next(columns), -1), (next(columns), -1)]
            if name in self.indicators:
                codes.append((column, 0))
        return tuple(codes)

    def kind(self, column: str) -> str:
        """Return "category", "date" or "number"."""
        return "category" if column in self.categories else "date" if column in self.dates else "number"

    def encode(
        self, raw: RawTable, missing: str, dtype: Any = np.float32, out: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """Return the inputs (N, D) of a table, filled column by column: no second copy of all is held.

        Args:
            raw: a table with all the columns.
            missing: "error" refuses missing cells; otherwise a missing number is NaN.
            dtype: of the inputs.
            out: (N, D), to write the inputs to; by default a new array.
        """
        values = np.empty((len(raw.frame), len(self.inputs)), dtype=dtype) if out is None else out
        position = 0
        for name in self.names:
            for column in self._encode_column(raw, name, missing):
                values[:, position] = column
                position += 1
        return values

    @classmethod
    def from_saved(cls, values: Mapping[str, Any]) -> FeatureEncoding:
        """Return the encoding that `dataclasses.asdict` describes."""
        fields = with_tuples(values)
        return cls(**{**fields, "categories": with_tuples(fields.get("categories", {}))})

    def _encode_column(self, raw: RawTable, name: str, missing: str) -> Iterator[NDArray[Any]]:
        if name in self.categories:
            yield from self._encode_category(raw, name, missing)
            return
        parts = _read_date(raw, name) if name in self.dates else (_read_number(raw, name),)
        absent = np.isnan(parts[0])
        if missing == "error":
            _refuse_absent(raw, name, absent)
        if missing == "auto" and name not in self.indicators and absent.any():
            warnings.warn(
                f"{raw.name}: {int(absent.sum())} missing cells in column {name!r}, which had none in the training "
                "data; the model takes its median for them",
                DataNote,
                stacklevel=6,
            )
        yield parts[0] - self.origins[name] if name in self.origins else parts[0]
        yield from parts[1:]
        if name in self.indicators:
            yield absent

    def _encode_category(self, raw: RawTable, name: str, missing: str) -> Iterator[NDArray[np.bool_]]:
        words = _words(raw.frame[name])
        if missing == "error":
            _refuse_absent(raw, name, (words == ABSENT).to_numpy())
        known = self.categories[name]
        absent = 0 if ABSENT in known else int((words == ABSENT).sum())
        if absent and len(known) < MOST_VALUES:
            warnings.warn(
                f"{raw.name}: {absent} missing cells in column {name!r}, which had none in the training data; they "
                "count as none of the known values",
                DataNote,
                stacklevel=6,
            )
        strange = words.filter(~words.is_in([*known, ABSENT]))
        if len(strange) and len(known) < MOST_VALUES:
            warnings.warn(
                f"{raw.name}: {len(strange)} rows with a {name!r} that the training data did not have, such as "
                f"{strange[0]!r}; they count as none of the known values",
                DataNote,
                stacklevel=6,
            )
        for value in known:
            yield (words == value).to_numpy()


class LearnedFeatures(NamedTuple):
    """An encoding, and the columns that were left out with the reason for each."""

    encoding: FeatureEncoding
    left_out: dict[str, str]


def learn_features(
    raw: RawTable, names: Sequence[str], *, missing: str, categories: Sequence[str] = (), keep_all: bool = False
) -> LearnedFeatures:
    """Decide from a table to learn from how each column is encoded.

    Columns that tell nothing are left out: those with one value, those of ids (a different value in every row), and
    those of a type that cannot be encoded. Columns that hold numbers with a few words among them are refused.

    Args:
        raw: the table.
        names: of the feature columns.
        missing: "auto" adds inputs for missing cells; "error" refuses missing cells; "median" and "keep" add nothing.
        categories: columns of whole numbers that are categories.
        keep_all: whether to leave out nothing.
    """
    kept: list[str] = []
    known: dict[str, tuple[str, ...]] = {}
    dates: list[str] = []
    indicators: list[str] = []
    origins: dict[str, float] = {}
    left_out: dict[str, str] = {}
    for name in names:
        kind = "category" if name in categories else _kind(raw, name)
        if reason := _unusable(raw, name, kind) or ("" if keep_all else _useless(raw, name, kind)):
            left_out[name] = reason
            continue
        kept.append(name)
        if kind == "category":
            known[name] = _frequent_values(raw.frame[name])
            continue
        values = _read_date(raw, name)[0] if kind == "date" else _read_number(raw, name)
        if kind == "date":
            dates.append(name)
        if missing == "auto" and np.isnan(values).any():
            indicators.append(name)
        if (origin := _origin(values)) is not None:
            origins[name] = origin
    if keep_all and left_out:
        name, reason = next(iter(left_out.items()))
        raise ValueError(f"{raw.name}, column {name!r}: expected numbers, categories or dates, got {reason}")
    return LearnedFeatures(FeatureEncoding(tuple(kept), known, tuple(dates), tuple(indicators), origins), left_out)


def _kind(raw: RawTable, name: str) -> str:
    import polars as pl

    column = raw.frame[name]
    if column.dtype in (pl.Date, pl.Datetime):
        return "date"
    if column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null):
        return "number"
    if column.dtype in (pl.Categorical, pl.Enum):
        return "category"
    if column.dtype != pl.String:
        return "unusable"
    text = strip_text(column).drop_nulls()
    numbers = text.cast(pl.Float64, strict=False)
    words, local = numbers.null_count(), text.filter(numbers.is_null() & text.str.contains(LOCAL_NUMBER))
    if len(text) - words > MOSTLY * len(text):
        few = len(text) >= FEWEST_ROWS and words > SOMETIMES * len(text) and text.n_unique() <= FEW_VALUES
        return "category" if few and not len(local) else "number"
    commas = text.filter(text.str.contains(DECIMAL_COMMA))
    if len(commas) > MOSTLY * len(text):
        raise ValueError(
            f"{raw.name}, column {name!r}: expected numbers with a decimal point, got decimal commas such as "
            f"{commas[0]!r}; save the table with points, or leave the column out with drop"
        )
    if len(local) and len(text) - words + len(local) > MOSTLY * len(text):
        _refuse_form(raw, name, "plain numbers such as -1234.5", local[0])
    dates = text.filter(text.str.contains(LOCAL_DATE))
    if len(dates) > MOSTLY * len(text):
        _refuse_form(raw, name, "dates such as 2026-01-31", dates[0])
    if bool(text.str.to_lowercase().is_in(["true", "false"]).all()):
        return "number"
    return "date" if _parse_dates(text).null_count() == 0 else "category"


def _refuse_form(raw: RawTable, name: str, expected: str, example: str) -> NoReturn:
    raise ValueError(
        f"{raw.name}, column {name!r}: expected {expected}, got {example!r}; write the column so, leave it out with "
        "`drop`, or name it in `categories` if its values are only names"
    )


def _unusable(raw: RawTable, name: str, kind: str) -> str:
    """Return why a column cannot be a feature; "" if it can."""
    column = raw.frame[name]
    if column.null_count() == len(column):
        return "no value in any row"
    return f"the type {column.dtype}" if kind == "unusable" else ""


def _useless(raw: RawTable, name: str, kind: str) -> str:
    """Return why a column tells nothing about other rows; "" if it may."""
    column, rows = raw.frame[name], len(raw.frame)
    if rows < FEWEST_ROWS:
        return ""
    if kind == "category":
        different = column.n_unique()
        if different > max(FEWEST_ROWS, rows // 2):
            return f"text with {different} different values in {rows} rows"
        return "the same value in every row" if different == 1 else ""
    low, high = column.min(), column.max()
    if low == high and column.null_count() == 0:
        return "the same value in every row"
    if column.dtype.is_integer() and (ID_NAME.search(name) or high - low == rows - 1) and column.n_unique() == rows:  # type: ignore[operator]
        return "an id: a different whole number in every row"
    return ""


def _frequent_values(column: pl.Series) -> tuple[str, ...]:
    """Return the most frequent values in alphabetical order; missing cells count as a value."""
    counts = _words(column).alias("word").value_counts().sort("count", "word", descending=[True, False])
    return tuple(sorted(counts["word"].head(MOST_VALUES).to_list()))


def _words(column: pl.Series) -> pl.Series:
    """Return the values of a category as text; whole numbers are written without a point, missing cells as ""."""
    import polars as pl

    if column.dtype.is_float():
        column = column.fill_nan(None)
        if bool(((column % 1).fill_null(0) == 0).all()):
            column = column.cast(pl.Int64)
    return strip_text(column.cast(pl.String)).fill_null(ABSENT)


def _read_number(raw: RawTable, name: str) -> Values:
    """Return a column as float64, checked; NaN where a cell is missing."""
    advice = f"; leave it out with drop=[{name!r}] or turn it into numbers first, for example one column per word"
    values = read_numbers(raw.name, raw.frame, name, advice=advice)
    if _largest(values) > LARGEST:
        refuse_cells(
            raw.name,
            raw.frame,
            name,
            np.abs(values) > LARGEST,
            "finite numbers up to 3.4e38 (float32)",
            "larger or infinite ones; divide the column by a power of ten, or take logarithms",
        )
    return values


def _read_date(raw: RawTable, name: str) -> tuple[Values, Values, Values]:
    """Return days since 1970, months and days of the week; NaN where a cell is missing."""
    import polars as pl

    column = raw.frame[name]
    if column.dtype not in (pl.Date, pl.Datetime, pl.Null):
        text = strip_text(column.cast(pl.String))
        column = _parse_dates(text)
        if (wrong := column.is_null() & text.is_not_null()).any():
            example = text.filter(wrong)[0]
            refuse_cells(raw.name, raw.frame, name, wrong.to_numpy(), "dates such as 2026-01-31", f"{example!r}")
    moments = column.cast(pl.Datetime("us"))
    days = moments.cast(pl.Int64).cast(pl.Float64) / DAY
    return (
        days.fill_null(float("nan")).to_numpy(),
        moments.dt.month().cast(pl.Float64).fill_null(float("nan")).to_numpy(),
        moments.dt.weekday().cast(pl.Float64).fill_null(float("nan")).to_numpy(),
    )


def _parse_dates(text: pl.Series) -> pl.Series:
    """Return text as moments, by the one format that fits most cells; null where it does not fit."""
    import polars as pl

    tried = [text.str.to_datetime(format_, strict=False, time_unit="us") for format_ in DATE_FORMATS]
    best = min(tried, key=lambda parsed: parsed.null_count())
    return best.cast(pl.Datetime("us"))


def _refuse_absent(raw: RawTable, name: str, absent: NDArray[np.bool_]) -> None:
    if absent.any():
        refuse_cells(
            raw.name, raw.frame, name, absent, "a value in every line",
            "missing cells (missing='auto' fills them in, drop=[...] leaves the column out)",
        )  # fmt: skip


def _largest(values: Values) -> float:
    """Return the largest absolute value; 0 if all are missing."""
    low, high = np.fmin.reduce(values, initial=0.0), np.fmax.reduce(values, initial=0.0)
    return float(max(-low, high))


def _origin(values: Values) -> float | None:
    """Return a value to subtract from a column whose differences float32 cannot hold; None where it can."""
    sample = values[::_SAMPLED]
    sample = sample[~np.isnan(sample)]
    if len(sample):
        # The spread of all is at least that of some, times the root of their share; the error at most half a unit.
        spread = np.asarray(sample.std() * math.sqrt(len(sample) / len(values)))
        error = np.asarray(max(_largest(values) * _HALF_UNIT, _LEAST_ERROR))
        if spread > 0 and not loses_differences(spread, error):
            return None
    known = values[~np.isnan(values)]
    if not len(known):
        return None
    error = np.abs(known - known.astype(np.float32)).max()
    return float(np.median(known)) if loses_differences(known.std(), error) else None
