"""`rankwise export`: the model of a run as a file that ONNX Runtime or torch opens without rankwise."""

from __future__ import annotations

from pathlib import Path

from rankwise.cli.console import print_paragraph, print_table
from rankwise.cli.machine import record
from rankwise.extras import require

__all__ = ["write_export"]


def write_export(folder: Path, out: Path, data: Path | None) -> None:
    """Write the model of a run to `out` and print its inputs and outputs."""
    require("opening a run", ("lightning_fabric", "pydantic", "yaml"), extra="train")
    from rankwise.runs import load_run

    exported = load_run(folder).export(out, data)
    rows = [
        (direction.removesuffix("s"), name, each["dtype"], f"({', '.join(map(str, each['shape']))})")
        for direction in ("inputs", "outputs")
        for name, each in exported.metadata[direction].items()
    ]
    print_table(str(out), ("", "name", "type", "shape"), rows, numbers=False)
    entries = next(iter(exported.metadata["inputs"].values()))["shape"][0]
    print_paragraph(
        f"Checked on {exported.checked} {entries} {'of ' + str(data) if data else 'of random content'}: the largest "
        f"difference to the run is {exported.difference:.1g}."
    )
    record(path=out, metadata=exported.metadata, difference=exported.difference, checked=exported.checked)
