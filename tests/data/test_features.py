"""Columns of a table as inputs of a model: numbers, categories, dates, missing cells, and what is left out."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from rankwise.data import DataNote, TableSchema, read_table

ROWS = 40


def people(**changed) -> pl.DataFrame:
    """Return a table as people have them."""
    rng = np.random.default_rng(0)
    columns = {
        "customer_id": np.arange(ROWS) + 1000,
        "age": [None if row % 7 == 0 else 20 + row for row in range(ROWS)],
        "city": [("Bonn", "Oslo", "Rome")[row % 3] for row in range(ROWS)],
        "member": [row % 2 == 0 for row in range(ROWS)],
        "joined": [datetime.date(2025, 1, 1) + datetime.timedelta(days=3 * row) for row in range(ROWS)],
        "country": ["EU"] * ROWS,
        "note": [f"said {row}, then {row * row}" for row in range(ROWS)],
        "income": rng.normal(size=ROWS),
        "left": [int(row % 5 == 0) for row in range(ROWS)],
    }
    return pl.DataFrame(columns | changed)


def test_each_column_becomes_inputs_by_its_kind():
    part, schema = read_table(people(), label="left")
    assert schema.inputs == (
        "age", "age missing", "city=Bonn", "city=Oslo", "city=Rome", "member", "joined", "joined month",
        "joined weekday", "income",
    )  # fmt: skip
    assert part.features.shape == (ROWS, len(schema.inputs))
    row = dict(zip(schema.inputs, part.features[1].tolist(), strict=True))
    assert row["age"] == 21.0
    assert (row["age missing"], row["city=Oslo"], row["city=Bonn"], row["member"]) == (0.0, 1.0, 0.0, 0.0)
    assert (row["joined month"], row["joined weekday"]) == (1.0, 6.0)  # 2025-01-04 was a Saturday
    assert torch.isnan(part.features[7, 0])
    assert part.features[7, 1] == 1.0


def test_columns_that_tell_nothing_are_left_out_with_a_reason():
    _, schema = read_table(people(), label="left")
    assert schema.left_out == {
        "customer_id": "an id: a different whole number in every row",
        "country": "the same value in every row",
        "note": "text with 40 different values in 40 rows",
    }
    chosen = read_table(people(), label="left", features=["customer_id", "country"]).schema
    assert chosen.inputs == ("customer_id", "country=EU")


@pytest.mark.parametrize("form", ["csv", "parquet", "pandas", "arrow"])
def test_every_form_of_a_table_gives_the_same_inputs(form, tmp_path):
    frame = people()
    expected, schema = read_table(frame, label="left")
    if form == "csv":
        frame.write_csv(tmp_path / "people.csv")
        other = tmp_path / "people.csv"
    elif form == "parquet":
        frame.write_parquet(tmp_path / "people.parquet")
        other = tmp_path / "people.parquet"
    elif form == "arrow":
        frame.write_ipc(tmp_path / "people.arrow")
        other = tmp_path / "people.arrow"
    else:
        other = pd.DataFrame({**frame.to_dict(as_series=False), "joined": pd.to_datetime(frame["joined"].to_list())})
    learned = read_table(other, label="left")
    assert learned.schema.inputs == schema.inputs
    assert torch.equal(learned.part.features.nan_to_num(-1), expected.features.nan_to_num(-1))
    again = schema.read(other)
    assert torch.equal(again.features.nan_to_num(-1), expected.features.nan_to_num(-1))


def test_a_saved_schema_encodes_alike():
    frame = people()
    part, schema = read_table(frame, label="left")
    same = TableSchema.from_saved(schema.to_json(), {})
    assert same == schema
    shuffled = frame.select(sorted(frame.columns, reverse=True)).drop("left")
    again = same.read(shuffled, labels="optional")
    assert torch.equal(again.features.nan_to_num(-1), part.features.nan_to_num(-1))


def test_unknown_values_are_none_of_the_known_ones_and_say_so():
    _, schema = read_table(people(), label="left")
    with pytest.warns(DataNote, match="40 rows with a 'city' that the training data did not have, such as 'Lima'"):
        part = schema.read(people(city=["Lima"] * ROWS))
    names = list(schema.inputs)
    assert not part.features[:, names.index("city=Bonn") : names.index("city=Rome") + 1].any()


def test_whole_numbers_are_categories_if_said_so():
    frame = people(code=[row % 4 for row in range(ROWS)])
    schema = read_table(frame, label="left", categories=["code"]).schema
    assert [name for name in schema.inputs if name.startswith("code")] == ["code=0", "code=1", "code=2", "code=3"]
    floats = frame.with_columns(pl.col("code").cast(pl.Float64))
    assert torch.equal(schema.read(floats).features.nan_to_num(-1), schema.read(frame).features.nan_to_num(-1))


def test_of_many_values_the_most_frequent_become_inputs():
    words = [f"rare{row}" if row % 4 == 0 else f"common{row % 60}" for row in range(400)]
    frame = pl.DataFrame({"word": words, "x": range(400, 800), "y": [row % 2 for row in range(400)]})
    schema = read_table(frame, label="y").schema
    assert len(schema.encoding.categories["word"]) == 50
    assert sum(value.startswith("common") for value in schema.encoding.categories["word"]) == 45


def test_a_missing_category_is_a_value_of_its_own():
    frame = people(city=[None if row % 3 == 0 else "Oslo" for row in range(ROWS)])
    part, schema = read_table(frame, label="left")
    position = schema.inputs.index("city=missing")
    assert part.features[:, position].tolist() == [float(row % 3 == 0) for row in range(ROWS)]


def test_dates_in_text_are_dates_and_a_wrong_one_is_refused_by_line(tmp_path):
    lines = [f"2025-03-{day:02d},{day},{day % 2}" for day in range(1, 29)]
    (tmp_path / "days.csv").write_text("\n".join(["day,x,y", *lines]))
    schema = read_table(tmp_path / "days.csv").schema
    assert schema.encoding.dates == ("day",)
    (tmp_path / "new.csv").write_text("day,x\n2025-03-01,1\n31st of March,1\n")
    with pytest.raises(ValueError, match="column 'day', line 3: expected dates such as 2026-01-31, got '31st"):
        schema.read(tmp_path / "new.csv", labels="optional")


def test_a_category_that_is_missing_in_new_data_only_is_noted():
    schema = read_table(people(), label="left").schema
    cities = people()["city"].to_list()
    with pytest.warns(DataNote, match="2 missing cells in column 'city', which had none in the training data"):
        part = schema.read(people(city=[None, None, *cities[2:]]))
    of_city = [position for position, name in enumerate(schema.inputs) if name.startswith("city=")]
    assert not part.features[:2, of_city].any()


@pytest.mark.parametrize("between", ["T", " "])
@pytest.mark.parametrize("end, hours", [("", 0), ("Z", 0), ("+00:00", 0), ("+02:00", 2), ("-0330", -3.5)])
@pytest.mark.parametrize("fraction", [False, True])
def test_moments_as_programs_write_them_are_dates_and_zones_count(tmp_path, between, end, hours, fraction):
    """Those of some rows have a fraction of a second, as Python writes them."""
    days = [divmod(row, 28) for row in range(56)]
    moments = [
        f"2025-{month + 3:02d}-{day + 1:02d}{between}12:30:00{'.250' if fraction and day % 2 else ''}{end}"
        for month, day in days
    ]
    lines = [f"{moment},{row % 5},{row % 2}" for row, moment in enumerate(moments)]
    (tmp_path / "moments.csv").write_text("\n".join(["seen,x,y", *lines]))
    part, schema = read_table(tmp_path / "moments.csv")
    assert schema.encoding.dates == ("seen",)
    origin = schema.encoding.origins.get("seen", 0.0)
    expected = [
        (datetime.date(2025, month + 3, day + 1) - datetime.date(1970, 1, 1)).days
        + (12.5 - hours + (0.25 / 3600 if fraction and day % 2 else 0)) / 24
        for month, day in days
    ]
    np.testing.assert_allclose(part.features[:, 0].double() + origin, expected, rtol=0, atol=1e-3)


def test_true_and_false_in_text_are_numbers(tmp_path):
    lines = [f"{('True', 'False')[row % 2]},{row % 3},{row % 2}" for row in range(30)]
    (tmp_path / "flags.csv").write_text("\n".join(["flag,x,y", *lines]))
    part, schema = read_table(tmp_path / "flags.csv")
    assert schema.inputs == ("flag", "x")
    assert part.features[:4, 0].tolist() == [1.0, 0.0, 1.0, 0.0]


def test_few_values_with_words_among_numbers_are_a_category():
    doors = [("2", "3", "4", "5more")[row % 4] for row in range(ROWS)]
    schema = read_table(people(doors=doors), label="left").schema
    assert schema.encoding.categories["doors"] == ("2", "3", "4", "5more")


def test_arrays_keep_all_their_columns():
    X = np.ones((30, 3))
    X[:, 1] = np.arange(30)
    assert len(read_table((X, np.arange(30) % 2)).schema.inputs) == 3


@pytest.mark.parametrize("rows, kind", [(19, "number"), (20, "category")])
def test_words_among_numbers_are_answers_only_in_a_table_of_20_rows_or_more(rows, kind):
    doors = [("2", "3", "4", "5more")[row % 4] for row in range(rows)]
    table = pl.DataFrame({"doors": doors, "x": range(rows), "left": [row % 2 for row in range(rows)]})
    if kind == "category":
        assert read_table(table, label="left").schema.encoding.kind("doors") == kind
    else:
        with pytest.raises(ValueError, match=r"column 'doors', lines .*: expected numbers"):
            read_table(table, label="left")
