"""Files that others read, made from a run: its report, its vectors and weights, its model."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from rankwise.cli.console import print_paragraph, print_table, record
from rankwise.data import EncodedImages, ImagePart, Part
from rankwise.extras import require
from rankwise.files import write_whole

__all__ = ["FORMATS", "write_embeddings", "write_export", "write_reports"]

FORMATS = (".npz", ".parquet")


def write_embeddings(folder: Path, data: Path | None, out: Path | None, weights: Path | None) -> None:
    """Write the vectors of the test part, or of other data, to `out`, and the weights to `weights`."""
    require("opening a run", ("lightning_fabric", "pydantic", "yaml"), extra="train")
    from rankwise.runs import load_run

    if out is not None and out.suffix == ".parquet":
        require("writing .parquet", ("polars",))
    run = load_run(folder)
    if run.problem.outputs != "vectors":
        raise ValueError(f"{folder}: expected a run whose model gives vectors (retrieval), got {run.problem.kind}")
    if out is not None:
        part = run.part("test") if data is None else run.schema.read(data, labels="optional")
        vectors = run.problem.predict(run.model, part)
        assert isinstance(vectors, Tensor)
        write_whole(out, _packed(out.suffix, vectors, part))
        print_paragraph(f"{len(vectors)} vectors of {vectors.shape[1]} numbers: {out}")
    if weights is not None:
        write_whole(weights, _tensors(run.model))
        print_paragraph(f"Weights: {weights}")


def _packed(suffix: str, vectors: Tensor, part: Part | ImagePart) -> bytes:
    """Return a file of vectors, with labels, names of classes and files of images where they are known."""
    buffer = io.BytesIO()
    labels, texts = part.targets, {}
    if isinstance(part, ImagePart):
        if labels is not None:
            texts["class"] = [part.classes[label] for label in labels.tolist()]
        if isinstance(part.source, EncodedImages):
            texts["path"] = [part.source.names[row] for row in part.rows.tolist()]
    if suffix == ".npz":
        arrays: dict[str, Any] = {"vectors": vectors.numpy()}
        if labels is not None:
            arrays["labels"] = labels.numpy()
        arrays.update({name: np.array(values) for name, values in texts.items()})
        np.savez(buffer, **arrays)
        return buffer.getvalue()
    import polars

    columns: dict[str, Any] = {"vector": vectors.numpy()}
    if labels is not None:
        columns["label"] = labels.numpy()
    polars.DataFrame(
        {**columns, **texts}, schema_overrides={"vector": polars.Array(polars.Float32, vectors.shape[1])}
    ).write_parquet(buffer)
    return buffer.getvalue()


def _tensors(model: nn.Module) -> bytes:
    from safetensors.torch import save

    content: bytes = save({name: value.contiguous() for name, value in model.state_dict().items()})
    return content


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


def write_reports(folder: Path, out: Path | None) -> None:
    """Write the report of a run; with several seeds that of each and one of all."""
    require("the report of a run", ("lightning_fabric", "pydantic", "yaml", "jinja2"), extra="train,report")
    from rankwise.runs import load_runs

    runs = load_runs(folder)
    part = "test" if all(run.finished for run in runs) else "validation"
    if len(runs) == 1:
        print_paragraph(f"Report: {runs[0].report(out, part=part)}")
        return
    from rankwise.report.seeds import write_seeds_report

    results = []
    for run in runs:
        shown = run.inspect(part=part)
        results.append(shown.evaluation)
        page = run.report(inspection=shown, importance=run.quick_importance(), part=part)
        print_paragraph(f"Seed {run.record['seed']}: {page}")
    target = out or folder / "report.html"
    write_seeds_report(target, folder.resolve().name, runs, results, part=f"{part} part")
    print_paragraph(f"Report: {target}")
