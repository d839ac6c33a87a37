"""`rankwise predict`: the outputs of a trained run for new data."""

from __future__ import annotations

from pathlib import Path

from rankwise.cli.console import print_paragraph
from rankwise.extras import require

__all__ = ["write_predictions"]


def write_predictions(folder: Path, data: Path, out: Path) -> None:
    """Write the predictions of a run for a source to a CSV or Parquet file."""
    require("using a run", ("lightning_fabric", "pydantic", "yaml", "polars"), extra="train,data")
    from rankwise.runs import Predictions, load_run

    predictions = load_run(folder).predict(data)
    if not isinstance(predictions, Predictions):
        raise ValueError(f"{folder}: expected a run that gives scores or vectors, got one that detects boxes")
    predictions.write(out)
    print_paragraph(f"{len(predictions)} rows: {out}")
