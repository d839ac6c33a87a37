"""`rankwise embed`: vectors of new images or rows by a trained run, and its weights, as files others can read."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from rankwise.cli.console import print_paragraph
from rankwise.data import EncodedImages, ImagePart, Part
from rankwise.extras import require
from rankwise.files import write_whole

__all__ = ["FORMATS", "write_embeddings"]

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
