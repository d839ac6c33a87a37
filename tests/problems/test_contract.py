"""Every kind of problem passes the public contract."""

from __future__ import annotations

import random

import pandas as pd
import polars as pl

from rankwise.data import DataNote
from rankwise.problems import Tabular
from rankwise.testing import check_problem
from workers.rows import write_table

SHORT = {"budget": {"steps": 6}, "evaluation": {"every": 3}}


def table_variants(path, label):
    """Forms of a table that say the same, and tables that must be refused."""
    frame = pl.read_csv(path)
    names = list(frame.columns)
    random.Random(0).shuffle(names)
    feature = next(name for name in frame.columns if name != label)
    folder = path.parent
    frame.select(names).write_csv(folder / "shuffled.csv")
    frame.with_columns(further=pl.lit("x"), another=pl.lit(1)).write_parquet(folder / "extra.parquet")
    frame.drop(label).select([name for name in names if name != label]).write_ipc(folder / "unlabelled.arrow")
    header, *lines = path.read_text().splitlines()
    (folder / "doubled.csv").write_text("\n".join([f"{header},{feature}", *(f"{line},1" for line in lines)]) + "\n")
    same = {
        "in another order": folder / "shuffled.csv",
        "with further columns": folder / "extra.parquet",
        "without labels": folder / "unlabelled.arrow",
        "a polars frame": frame,
        "a pandas frame": pd.DataFrame(frame.to_dict(as_series=False)),
    }
    refused = {
        "without a column": frame.drop(feature),
        "with a column twice": folder / "doubled.csv",
        "with text in a column": frame.with_columns(pl.lit("much").alias(feature)),
        "with a missing cell": frame.with_columns(pl.when(pl.col(feature) > 0).then(pl.col(feature)).alias(feature)),
        "empty": frame.head(0),
    }
    return same, refused


def test_tabular(tmp_path):
    path = write_table(tmp_path / "rows.csv")
    same, refused = table_variants(path, "ill")
    problem = Tabular(data={"label": "ill"}, **SHORT)
    check_problem(problem, {"train": path}, path, same=same, refused=refused, ignoring=[DataNote])
