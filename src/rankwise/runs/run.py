"""A trained run: problem, schema and weights, ready to be used anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from rankwise.checks import check_count
from rankwise.data import InteractionSchema, TableSchema, TextPart, TextSchema
from rankwise.data.columns import find_column
from rankwise.data.files import Progress, address_of
from rankwise.data.remote import local_copy
from rankwise.data.schema import Labels
from rankwise.data.table_files import RawTable
from rankwise.metrics import BoxTable, Evaluation
from rankwise.models import TextRanker
from rankwise.problems.importance import REPEATS, Importance, measure_importance, quick_importance
from rankwise.problems.inspection import Inspection
from rankwise.problems.problem import Problem
from rankwise.runs.folder import REPORT, RunFolder, migrate, part_columns, write_table
from rankwise.runs.predictions import Detections, Predictions, RankedLists
from rankwise.training import History

if TYPE_CHECKING:
    from rankwise.runs.export import Exported

__all__ = ["Run", "load_run", "load_runs"]

# Scores that `recommend` and `search` hold at once.
SCORES_AT_ONCE = 1 << 23
# Rows of a table, and images or sparse rows, that are scored between two reports of progress.
ROWS_AT_ONCE, IMAGES_AT_ONCE = 1 << 16, 256
# Entries of the record that training adds.
RESULTS = ("cut_seed", "cross_validated", "steps", "settings", "calibration", "refit", "baselines")


@dataclass
class Run:
    """A problem with what was learned from its data: the schema and the trained model.

    Attributes:
        problem: what was asked for.
        schema: the form of the data; reads sources.
        model: the trained network, a plain `nn.Module` in evaluation mode.
        record: format, versions, fingerprints of the data, seed, calibration, settings chosen on validation, refit,
            metrics of baselines on the test part.
        folder: where the run is saved; None if it is in memory only.
        test: metrics on the test part, if this process trained the run.
    """

    problem: Problem[Any, Any]
    schema: Any
    model: nn.Module
    _history: History | None
    record: dict[str, Any]
    folder: Path | None = None
    test: Evaluation | None = None
    _parts: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def history(self) -> History:
        """Return the history of the training; that of a run in a folder is read when it is first asked for."""
        if self._history is None:
            assert self.folder is not None
            self._history = RunFolder(self.folder).read_history() or History()
        return self._history

    @property
    def calibration(self) -> dict[str, Any]:
        """Return what turns outputs into decisions, learned on the validation part."""
        return dict(self.record.get("calibration", {}))

    @property
    def finished(self) -> bool:
        """Return whether the training came to its end."""
        trained = self.history.stopped_early or 0 < self.steps <= len(self.history.losses)
        return trained and (not self.refits or "steps" in self.record.get("refit", {}))

    @property
    def refits(self) -> bool:
        """Return whether the problem is trained again on training and validation data together."""
        return self.problem.refit and not self.record.get("cross_validated", False)

    @property
    def steps(self) -> int:
        """Return the number of steps that the training takes in all; 0 if it has not started."""
        return int(self.record.get("steps", 0))

    @property
    def unseen(self) -> str:
        """Return the part to explain the model on: "validation", or "test" once that is among what it learned from."""
        return "test" if self.problem.refit and self.finished else "validation"

    def to(self, device: str | torch.device) -> Run:
        """Move the model to a device, on which all further outputs are computed; return the run."""
        self.model.to(device)
        return self

    def predict(self, source: Any, *, probabilities: bool = False, keep: Sequence[str] = ()) -> Predictions:
        """Return the outputs of the model for the rows of a source; labels are not needed.

        Args:
            source: in the form of the training data: a file or a table in memory. Columns are matched by name.
            probabilities: return probabilities of a positive label instead of scores, by a sigmoid that was fitted
                on the validation part.
            keep: columns of the source to return beside the outputs, such as an id.
        """
        self._require("predict", "scores", "vectors")
        chunks = list(self.predict_chunks(source, probabilities=probabilities, keep=keep))
        return chunks[0] if len(chunks) == 1 else _joined(chunks)

    def predict_chunks(
        self, source: Any, *, probabilities: bool = False, keep: Sequence[str] = ()
    ) -> Iterator[Predictions]:
        """Yield the outputs for a source that may be larger than memory, in chunks of rows; see `predict`.

        Tables (CSV, Parquet, Arrow, JSON lines, LETOR) are read in chunks, unless the model needs whole lists; images
        are decoded in chunks.
        """
        self._require("predict", "scores", "vectors")
        sigmoid = self._sigmoid() if probabilities else None
        row = 1
        for part, raw in self._read_chunks(source, keep):
            outputs = self.problem.predict(self.model, part)
            assert isinstance(outputs, Tensor)
            if sigmoid is not None:
                outputs = torch.sigmoid(sigmoid[0] * outputs.double() + sigmoid[1])
            names = ["query_ids", "query_names", "row_names"]
            if self.problem.outputs == "scores":
                names.append("output_names")
            known = {name: getattr(part, name, None) for name in names}
            labels = getattr(part, "targets", None)
            yield Predictions(
                outputs,
                labels=labels if isinstance(labels, Tensor) else None,
                name="score" if sigmoid is None else "probability",
                first_row=row,
                kept=_kept(raw, keep),
                **known,
            )
            row += len(outputs)

    def rank(self, source: Any, *, keep: Sequence[str] = ()) -> dict[str, list[Any]]:
        """Return the rows of a source as columns, those of each list together, best first, with a column `rank`."""
        return self.predict(source, keep=keep).ranked()

    def recommend(self, users: Any = None, k: int = 10, *, on_progress: Progress | None = None) -> RankedLists:
        """Return the k best items for each user, without those that the user is known to have chosen.

        Args:
            users: names of users; or a source of users, who are ranked for by what they chose in training; or a source
                of users and items, the histories to rank by, also of new users. None is all users of the training data.
            k: length of the lists.
            on_progress: called with the share of the users that are done.
        """
        if not isinstance(self.schema, InteractionSchema):
            raise ValueError(f"recommend: expected a recsys run, got {self.problem.kind}; use {self._verb}")
        part = self._read_source(self._as_users(users))
        k = min(check_count("k", k), len(self.schema.items))
        items, scores = [], []
        for block in self._blocks(part, on_progress):
            outputs = self.problem.predict(self.model, block)
            assert isinstance(outputs, Tensor)
            known = block.known.dense() > 0
            best = outputs.masked_fill(known, float("-inf")).topk(k, dim=1)
            items.append(torch.where(best.values.isinf(), -1, best.indices))
            scores.append(best.values)
        return RankedLists(part.user_names, torch.cat(items), self.schema.items, torch.cat(scores))

    def embed(self, source: Any) -> Predictions:
        """Return the vectors of the images or rows of a source, or of texts as queries."""
        if isinstance(self.schema, TextSchema):
            assert isinstance(self.model, TextRanker)
            part = self._read_source(source)
            with torch.no_grad():
                vectors = self.model.embed(part.vectors.to(self.model.share.device)).cpu()
            return Predictions(vectors, row_names=part.names)
        self._require("embed", "vectors")
        return self.predict(source)

    def search(
        self, queries: Any, gallery: Any = None, k: int = 10, *, on_progress: Progress | None = None
    ) -> RankedLists:
        """Return the k nearest of a gallery for each query, by the cosine of their vectors.

        Args:
            queries: images or rows; for a text-search run texts, see `TextSchema.read`.
            gallery: images or rows to search; None searches the queries themselves, each without itself. A text-search
                run searches its own corpus.
            k: length of the lists.
            on_progress: called with the share of the queries, then of the gallery, whose vectors are computed.
        """
        if isinstance(self.schema, TextSchema):
            if gallery is not None:
                raise ValueError("gallery: expected none for a text-search run, which searches its corpus, got one")
            return self._search_texts(queries, k, on_progress)
        self._require("search", "vectors")
        asked, asked_names = self._vectors(queries, on_progress)
        among, names = (asked, asked_names) if gallery is None else self._vectors(gallery, on_progress)
        k = min(check_count("k", k), len(among) - (gallery is None))
        items, scores = [], []
        for rows in torch.arange(len(asked)).split(max(1, SCORES_AT_ONCE // max(1, len(among)))):
            cosines = asked[rows] @ among.T
            if gallery is None:
                cosines[torch.arange(len(rows)), rows] = float("-inf")
            best = cosines.topk(k, dim=1)
            items.append(best.indices)
            scores.append(best.values)
        return RankedLists(asked_names, torch.cat(items), names, torch.cat(scores), ("query", "match"))

    def _search_texts(self, queries: Any, k: int, on_progress: Progress | None) -> RankedLists:
        """Return the k best documents of the corpus for each query, exactly, in blocks of queries."""
        part = self._read_source(queries)
        part = part.take(torch.arange(len(part)))
        k = min(check_count("k", k), len(part.documents))
        items, scores = [], []
        for block in self._blocks(part, on_progress):
            outputs = self.problem.predict(self.model, block)
            assert isinstance(outputs, Tensor)
            best = outputs.topk(k, dim=1)
            items.append(best.indices)
            scores.append(best.values)
        return RankedLists(part.names, torch.cat(items), part.documents, torch.cat(scores), ("query", "document"))

    def detect(self, source: Any, *, on_progress: Progress | None = None) -> Detections:
        """Return the boxes that a detector finds in images, with scores from 0 to 1.

        Args:
            source: a folder of images, a file, or a data set with or without boxes.
            on_progress: called with the share of the images that are done.
        """
        self._require("detect", "boxes")
        part = self._read_source(source)
        tables, first = [], 0
        for block in self._blocks(part, on_progress):
            boxes = self.problem.predict(self.model, block)
            assert isinstance(boxes, BoxTable)
            tables.append(boxes._replace(image=boxes.image + first))
            first += len(block)
        columns = ("image", "label", "corners", "score")
        joined = BoxTable(*(torch.cat([getattr(table, name) for table in tables]) for name in columns))
        assert joined.score is not None
        logits = [float("inf") if each is None else float(each) for each in self.calibration.get("thresholds", ())]
        thresholds = tuple(torch.tensor(logits).sigmoid().tolist()) or (0.5,) * len(part.classes)
        return Detections(joined._replace(score=joined.score.sigmoid()), part, thresholds)

    def evaluate(self, source: Any = None, metrics: Sequence[str] = (), *, bootstrap: int = 1000) -> Evaluation:
        """Return the metrics on a source with labels, or on the test part.

        Args:
            source: in the form of the training data; None is the test part, which is read and cut again from the files
                of the problem.
            metrics: by name; by default those of the problem.
            bootstrap: number of replicates for intervals; 0 gives none.
        """
        return self.inspect(source, metrics=metrics, bootstrap=bootstrap).evaluation

    def inspect(
        self, source: Any = None, *, part: str = "test", metrics: Sequence[str] = (), bootstrap: int = 1000
    ) -> Inspection:
        """Return the metrics with intervals, and access to the lists behind them, on a source or a part of the data."""
        problem = self.problem.changed(metrics=tuple(metrics)) if metrics else self.problem
        chosen = self.part(part) if source is None else self.read(source)
        return problem.inspect(self.model, chosen, bootstrap=bootstrap, calibration=self.calibration)

    def importance(self, source: Any = None, metric: str | None = None, repeats: int = REPEATS) -> Importance:
        """Return how much of a metric is lost when one column is shuffled, for each column of a table.

        Args:
            source: with labels, in the form of the training data; None is the part `unseen`, which is read and cut
                again from the files of the problem.
            metric: by name; by default that by which choices are made.
            repeats: shuffles of each column.
        """
        part = self.part(self.unseen) if source is None else self.read(source)
        return measure_importance(self.problem, self.model, self.schema, part, metric=metric, repeats=repeats)

    def quick_importance(self) -> Importance | None:
        """Return the importance of the columns on the part `unseen`; None if there is none or it takes long."""
        return quick_importance(self.problem, self.model, self.schema, self.part(self.unseen))

    def write_scores(self, path: Path, shown: Inspection, source: Any = None) -> None:
        """Write the scores of an inspection of a source, or of the test part, as a CSV file."""
        part = self.part("test") if source is None else self.read(source)
        assert shown.scores is not None
        write_table(path, part_columns(shown.scores, part))

    @property
    def _verb(self) -> str:
        """Return the names of the methods to use this run with, for error messages."""
        if isinstance(self.schema, InteractionSchema):
            return "recommend"
        if isinstance(self.schema, TextSchema):
            return "search, rank or embed"
        return {"scores": "predict", "vectors": "embed or search", "boxes": "detect"}[self.problem.outputs]

    def _require(self, verb: str, *outputs: str) -> None:
        """Refuse a method that this kind of run does not have, and name the one it has."""
        if self.problem.outputs not in outputs:
            raise ValueError(
                f"{verb}: expected a run whose model gives {' or '.join(outputs)}, got a {self.problem.kind} run, "
                f"which gives {self.problem.outputs}; use {self._verb}"
            )

    def _read_chunks(self, source: Any, keep: Sequence[str]) -> Iterator[tuple[Any, RawTable | None]]:
        if isinstance(self.schema, TableSchema):
            yield from self.schema.read_chunks(_local(source), keep=keep, whole=self.problem.whole_lists)
            return
        part = self._read_source(source)
        if isinstance(part, TextPart) and part.pairs is not None:
            yield part, None  # the pairs of a query may be far apart
            return
        for block in self._blocks(part):
            yield block, None

    def _read_source(self, source: Any, labels: Labels = "optional") -> Any:
        """Return a source as a part; one at a remote address is copied first."""
        return self.schema.read(_local(source), labels=labels)

    def _blocks(self, part: Any, on_progress: Progress | None = None) -> Iterator[Any]:
        """Yield a part in blocks of rows; report the share of the rows whose block the caller is done with."""
        size = ROWS_AT_ONCE if isinstance(self.schema, TableSchema) else IMAGES_AT_ONCE
        if isinstance(self.schema, InteractionSchema):
            size = max(1, SCORES_AT_ONCE // max(1, len(self.schema.items)))
        elif isinstance(self.schema, TextSchema):
            size = max(1, SCORES_AT_ONCE // len(part.documents))
        done = 0
        for rows in torch.arange(len(part)).split(size):
            yield part.take(rows)
            done += len(rows)
            if on_progress is not None:
                on_progress(done / len(part))

    def _sigmoid(self) -> tuple[float, float]:
        sigmoid = self.calibration.get("sigmoid")
        if sigmoid is None:
            raise ValueError(
                f"probabilities: expected a run with a calibration of its scores, got a {self.problem.kind} run without"
            )
        return float(sigmoid[0]), float(sigmoid[1])

    def _as_users(self, users: Any) -> Any:
        """Return names of users as a table of one column."""
        names = self.schema.users if users is None else users
        if not isinstance(names, tuple | list):
            return users
        import polars as pl

        return pl.DataFrame({self.schema.user if self.schema.named else "user": [str(name) for name in names]})

    def _vectors(self, source: Any, on_progress: Progress | None) -> tuple[Tensor, tuple[str, ...]]:
        """Return unit vectors and the names of their images or rows."""
        part = self._read_source(source)
        vectors = []
        for block in self._blocks(part, on_progress):
            outputs = self.problem.predict(self.model, block)
            assert isinstance(outputs, Tensor)
            vectors.append(normalize(outputs, dim=1))
        names = getattr(part, "row_names", None) or tuple(str(row + 1) for row in range(len(part)))
        return torch.cat(vectors), names

    def read(self, source: Any) -> Any:
        """Return a source with labels as a part."""
        return self._read_source(source, "required")

    def part(self, name: str) -> Any:
        """Return a part of the run's own data: "train", "validation" or "test"."""
        if name not in self._parts:
            _, split = self.problem.read({})
            cut = self.problem.cut(split, int(self.record.get("cut_seed", self.record["seed"])))
            self._parts = {each: cut.part(each) for each in ("train", "validation", "test")}
        return self._parts[name]

    def report(
        self,
        path: str | Path | None = None,
        *,
        inspection: Inspection | None = None,
        importance: Importance | None = None,
        part: str = "test",
        name: str | None = None,
    ) -> Path:
        """Write the report of the run, one HTML file; by default `report.html` in its folder.

        Args:
            path: of the file.
            inspection: what the figures are of; by default the test part.
            importance: of the columns; by default, without an inspection, on the part `unseen` if that takes seconds.
            part: what the report calls those data.
            name: the title; by default that of the folder.
        """
        from rankwise.report import write_report
        from rankwise.report.pages import page_of

        if path is None:
            if self.folder is None:
                raise ValueError("path: expected the name of a file, as this run has no folder, got None")
            path = self.folder / REPORT
        shown = self.inspect(part=part) if inspection is None else inspection
        if inspection is None and importance is None:
            importance = self.quick_importance()
        title = name or (self.folder.resolve().name if self.folder is not None else "run")
        page = page_of(
            title, self.problem, self.record, shown, self.history, steps=self.steps, part=part, importance=importance
        )
        write_report(Path(path), page)
        return Path(path)

    def export(self, path: str | Path, source: Any = None) -> Exported:
        """Write the model, with its numeric preprocessing, as .onnx or .pt2, checked against the run's own outputs.

        Args:
            path: of the file.
            source: data in the form of the training data to check on; by default random ones.
        """
        from rankwise.runs.export import export_run

        return export_run(self, path, source)

    def save(self, folder: str | Path) -> None:
        """Save a run that is in memory; `load_run` opens it anywhere."""
        target = RunFolder(folder)
        if target.exists:
            raise FileExistsError(f"{folder}: expected a folder without a run, got one that holds a run")
        target.write_start(self.problem, self.schema, int(self.record["seed"]), self.record["data"])
        target.write_model(self.model)
        target.checkpoints().save(
            {"step": len(self.history.losses), "model": self.model.state_dict(), "history": self.history.to_state()},
            len(self.history.losses),
            best=True,
        )
        target.update_record(**{key: self.record[key] for key in RESULTS if key in self.record})
        self.folder = target.path


def _kept(raw: RawTable | None, names: Sequence[str]) -> dict[str, list[Any]]:
    """Return columns of a source as lists."""
    if not names:
        return {}
    if raw is None:
        raise ValueError(f"keep: expected a source that is a table with columns, got another, and {names[0]!r}")
    return {name: raw.frame[find_column(raw.name, raw.columns, "keep", name)].to_list() for name in names}


def _joined(chunks: Sequence[Predictions]) -> Predictions:
    """Return chunks as one; lists that are known by name are numbered anew."""
    first = chunks[0]
    kept = {name: [value for chunk in chunks for value in chunk.kept[name]] for name in first.kept}
    query_ids, query_names = None, first.query_names
    if first.query_ids is not None:
        if query_names is None:
            query_ids = torch.cat([chunk.query_ids for chunk in chunks if chunk.query_ids is not None])
        else:
            numbers: dict[str, int] = {}
            for chunk in chunks:
                for name in chunk.query_names or ():
                    numbers.setdefault(name, len(numbers))
            query_ids = torch.cat(
                [
                    torch.tensor([numbers[name] for name in chunk.query_names or ()])[chunk.query_ids]
                    for chunk in chunks
                    if chunk.query_ids is not None
                ]
            )
            query_names = tuple(numbers)
    labels = [chunk.labels for chunk in chunks if chunk.labels is not None]
    return Predictions(
        torch.cat([chunk.outputs for chunk in chunks]),
        query_ids,
        torch.cat(labels) if labels else None,
        query_names,
        None if first.row_names is None else tuple(name for chunk in chunks for name in chunk.row_names or ()),
        first.output_names,
        first.name,
        kept=kept,
    )


def _local(source: Any) -> Any:
    """Return a source, or the local copy of one at a remote address."""
    return source if address_of(source) is None else local_copy(source, None)


def load_run(folder: str | Path) -> Run:
    """Open a run from its folder, anywhere; the training data are not needed.

    Args:
        folder: written by `rankwise train`, `rankwise.train` or `Run.save`.
    """
    where = RunFolder(folder)
    if not where.exists:
        several = sorted(each.name for each in where.path.glob("seed-*") if RunFolder(each).exists)
        hint = f"; it holds the runs {', '.join(several)}: load_runs opens them" if several else ""
        raise ValueError(f"{folder}: expected the folder of a run, got no run.json in it{hint}")
    if where.old:
        migrate(where)
    record = where.read_record()
    problem = where.read_problem()
    schema = where.read_schema(problem)
    model = problem.with_whole_tables().build_model(schema)
    where.load_model(model)
    return Run(problem, schema, model.eval(), None, record, where.path)


def load_runs(folder: str | Path) -> list[Run]:
    """Open the runs of all seeds that a folder holds: one, or one in each `seed-N` below it."""
    below = sorted(each for each in Path(folder).glob("seed-*") if RunFolder(each).exists)
    return [load_run(each) for each in (below if below and not RunFolder(folder).exists else [Path(folder)])]
