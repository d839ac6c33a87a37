"""`rankwise embed`: the vectors of a trained run for new images or rows, and its weights, as files others can read."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from rankwise.cli.console import print_paragraph
from rankwise.cli.extras import require
from rankwise.files import write_whole

__all__ = ["FORMATS", "write_embeddings"]

FORMATS = (".npz", ".parquet")


def write_embeddings(folder: Path, data: Path | None, out: Path | None, weights: Path | None) -> None:
    """Write the vectors of the test part, or of other data, to `out`, and the weights to `weights`."""
    require("opening a run", ("lightning_fabric", "pydantic", "yaml"), extra="train")
    from rankwise.recipes.run import open_run
    from rankwise.tasks import ImageRetrievalTask, RetrievalTask

    if out is not None and out.suffix == ".parquet":
        require("writing .parquet", ("polars",))
    if weights is not None:
        require("writing .safetensors", ("safetensors",))
    run = open_run(folder, data)
    task = run.task
    if not isinstance(task, ImageRetrievalTask | RetrievalTask):
        raise ValueError(f"{folder}: expected a run whose model gives vectors (retrieval), got {run.recipe.task}")
    if out is not None:
        part = task.data.test
        names = getattr(getattr(part, "source", None), "names", None)
        rows = None if names is None else [str(names[row]) for row in part.rows.tolist()]  # type: ignore[union-attr]
        vectors = task.embed(run.model, "test")
        write_whole(out, _packed(out.suffix, vectors, part.labels, getattr(part, "classes", None), rows))
        print_paragraph(f"{len(vectors)} vectors of {vectors.shape[1]} numbers: {out}")
    if weights is not None:
        write_whole(weights, _tensors(run.model))
        print_paragraph(f"Weights: {weights}")


def _packed(
    suffix: str, vectors: Tensor, labels: Tensor, classes: tuple[str, ...] | None, names: list[str] | None
) -> bytes:
    """Vectors with their labels, what the labels are called, and the files the images came from, if any."""
    buffer = io.BytesIO()
    called = None if classes is None else [classes[label] for label in labels.tolist()]
    texts = {name: values for name, values in (("class", called), ("path", names)) if values is not None}
    if suffix == ".npz":
        arrays: dict[str, Any] = {"vectors": vectors.numpy(), "labels": labels.numpy()}
        arrays.update({name: np.array(values) for name, values in texts.items()})
        np.savez(buffer, **arrays)
        return buffer.getvalue()
    import polars

    width = vectors.shape[1]
    polars.DataFrame(
        {"vector": vectors.numpy(), "label": labels.numpy(), **texts},
        schema_overrides={"vector": polars.Array(polars.Float32, width)},
    ).write_parquet(buffer)
    return buffer.getvalue()


def _tensors(model: nn.Module) -> bytes:
    from safetensors.torch import save

    content: bytes = save({name: value.contiguous() for name, value in model.state_dict().items()})
    return content
