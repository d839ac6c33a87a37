"""One number for each column: what an encoding made of a table leads back to it."""

from __future__ import annotations

import polars as pl
import pytest
import torch

from rankwise.data import read_table
from rankwise.models.rows import MISSING, NUMBER, Columns

ROWS = 60


def table(random):
    """Return a table with numbers, missing numbers, categories, missing categories, booleans and dates."""
    days = pl.date_range(pl.date(2024, 1, 1), pl.date(2025, 1, 1), eager=True)

    def draw(values, missing=0.0):
        return [None if random.random() < missing else random.choice(values) for _ in range(ROWS)]

    return pl.DataFrame(
        {
            "size": [0.5 + number for number in range(ROWS)],
            "shape": draw(["flat", "long", "round"]),
            "weight": draw([1.25, 2.5, 7.0], missing=0.3),
            "seen": draw(days.to_list(), missing=0.2),
            "colour": draw(["amber", "blue", "cyan", "white"], missing=0.3),
            "bought": draw([True, False]),
            "label": [0, 1] * (ROWS // 2),
        }
    )


def codes_of(column, values):
    return [float("nan") if value is None else float(values.index(value) + 1) for value in column]


@pytest.mark.parametrize("seed", range(3))
def test_numbers_and_codes_of_a_table_come_back(seed, tmp_path):
    import random

    frame = table(random.Random(seed))
    frame.write_parquet(tmp_path / "table.parquet")
    part, schema = read_table(tmp_path / "table.parquet", label="label", target="binary")
    columns = Columns(schema.encoding.codes)
    inputs = part.features
    values = columns(inputs.nan_to_num(nan=99.0))
    day = frame["seen"].cast(pl.Int32)
    expected = [
        frame["size"],
        frame["weight"],
        day,
        frame["seen"].dt.month().fill_null(99),
        frame["seen"].dt.weekday().fill_null(99),
        frame["bought"].cast(pl.Float64),
        codes_of(frame["shape"], ["flat", "long", "round"]),
        codes_of(frame["colour"], ["amber", "blue", "cyan", "white"]),
    ]
    expected = [torch.tensor([float("nan") if each is None else float(each) for each in column]) for column in expected]
    torch.testing.assert_close(values, torch.stack(expected, 1), equal_nan=True)
    assert bool(values.isnan().any())


def test_values_that_the_training_data_did_not_have_are_missing():
    columns = Columns([(0, 1), (0, 2), (0, MISSING), (1, NUMBER)])
    inputs = torch.tensor([[1.0, 0, 0, 4], [0, 1, 0, 5], [0, 0, 1, 6], [0, 0, 0, 7]])
    missing = torch.nan
    expected = torch.tensor([[4.0, 1], [5, 2], [6, missing], [7, missing]])
    torch.testing.assert_close(columns(inputs), expected, equal_nan=True)
    scaled = columns(inputs, 10 * inputs)
    torch.testing.assert_close(scaled, expected * torch.tensor([10.0, 1]), equal_nan=True)


def test_numbers_alone_stay_as_they_are():
    inputs = torch.randn(5, 3)
    assert torch.equal(Columns([(column, NUMBER) for column in range(3)])(inputs), inputs)
    assert Columns([(0, NUMBER)]).state_dict() == {}
