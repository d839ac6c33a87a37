"""Retrieval of rows of numbers: rows of the same class should be each other's neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import model_validator
from torch import Tensor, nn
from torch.utils.data import DataLoader

from rankwise.data import Batch, Part, Split, TableSchema
from rankwise.metrics import evaluate_retrieval
from rankwise.models import MLPEmbedder, fit_scaling, scaled
from rankwise.problems.batches import batches_of, predict_all
from rankwise.problems.inspection import Inspection
from rankwise.problems.neighbours import (
    ClassBatches,
    EmbeddingLossChoice,
    build_embedding_loss,
    check_neighbours,
    check_samples,
    class_batches,
    embedding_step,
    map_of,
    neighbours,
    probe_classes,
)
from rankwise.problems.problem import Names, Problem, Sources
from rankwise.problems.tabular import MLPOptions, TableOptions, cut_rows, read_tables
from rankwise.training import Outputs
from rankwise.training.options import Count

__all__ = ["Retrieval"]

# Classes in a batch by default; rows on which running estimates are compared with exact values.
CLASSES, PROBED_ROWS = 16, 320


class EmbedderOptions(MLPOptions):
    """A fully connected network from rows to vectors of so many `dimensions`."""

    dimensions: Count = 64


class Retrieval(Problem[TableSchema, Part]):
    """Find the rows of the same class among all others, by the cosine of their vectors.

    Example:
        >>> from rankwise.data import load_digit_retrieval
        >>> problem = Retrieval(loss="soprc", batches={"classes": 10, "samples_per_class": 6})
        >>> pixels = problem.evaluate(nn.Identity(), load_digit_retrieval(seed=0).test)  # the features as they are
        >>> round(pixels.means["map"], 2)
        0.65
    """

    kind: ClassVar[str] = "retrieval"
    summary: ClassVar[str] = "rows of a table with classes: rows of a class become neighbours"
    outputs: ClassVar[Literal["scores", "vectors", "boxes"]] = "vectors"
    schema_type: ClassVar[type[Any]] = TableSchema

    data: TableOptions = TableOptions()
    model: EmbedderOptions = EmbedderOptions()
    loss: EmbeddingLossChoice = EmbeddingLossChoice.of("soprc", recall_floor=1 / 3)
    batches: ClassBatches = ClassBatches()
    metrics: Names = ("map", "recall@1")

    @model_validator(mode="after")
    def _enough_samples(self) -> Retrieval:
        check_samples(self.loss, self.batches)
        return self

    def read(self, sources: Sources) -> tuple[TableSchema, Split[Part]]:
        return read_tables(self.data, sources, target="classes")

    def cut(self, split: Split[Part], seed: int) -> Split[Part]:
        cut = cut_rows(self.data, split, seed)
        check_neighbours(cut, "rows")
        return cut

    def build_model(self, schema: TableSchema) -> nn.Module:
        width, options = len(schema.inputs), self.model
        # A classifier is free in the length of its vectors; the metric depends on angles only.
        embedder = MLPEmbedder(width, options.dimensions, hidden=options.hidden, normalise=not self.loss.classifies)
        return scaled(embedder, width, options.scaling, fill_missing=schema.fill_missing)

    def fit_model(self, model: nn.Module, train: Part) -> None:
        fit_scaling(model, train.features)

    def build_loss(self, schema: TableSchema, train: Part, *, steps: int) -> nn.Module:
        return build_embedding_loss(self.loss, self.model.dimensions, train.labels)

    def train_loader(self, train: Part, seed: int) -> DataLoader[Batch]:
        return batches_of(train, class_batches(train.labels, self.batches, default=CLASSES, seed=seed))

    def training_step(
        self, model: nn.Module, loss: nn.Module, batch: Batch, *, previous: Outputs | None = None
    ) -> Tensor:
        before = None if previous is None else previous(batch.features)
        return embedding_step(loss, model(batch.features), batch.labels, before)

    def predict(self, model: nn.Module, part: Part) -> Tensor:
        """Return the vectors (N, d) of the rows of a part."""
        return predict_all(model, part.features)

    def inspect(
        self, model: nn.Module, part: Part, *, bootstrap: int = 0, calibration: Mapping[str, Any] | None = None
    ) -> Inspection:
        vectors = self.predict(model, part)
        return Inspection(
            evaluate_retrieval(vectors, part.labels, self.measured, bootstrap=bootstrap),
            "query",
            "row",
            "precision",
            neighbours(vectors, part.labels),
            list_name=lambda row: f"row {row} (class {int(part.labels[row])})",
            item_name=lambda _, row: f"row {row} (class {int(part.labels[row])})",
            embedding=map_of(vectors, part.labels, str),
        )

    def probe_batch(self, train: Part) -> Batch:
        return probe_classes(train, PROBED_ROWS)
