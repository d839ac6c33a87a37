"""A trained run: problem, schema and weights, ready to be used anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from rankwise.metrics import BoxTable, Evaluation
from rankwise.problems.importance import REPEATS, Importance, measure_importance, quick_importance
from rankwise.problems.inspection import Inspection
from rankwise.problems.problem import Problem
from rankwise.runs.folder import REPORT, RunFolder, write_table
from rankwise.runs.migrations import migrate
from rankwise.runs.predictions import Predictions, score_columns
from rankwise.training import History

if TYPE_CHECKING:
    from rankwise.runs.export import Exported

__all__ = ["Run", "load_run", "load_runs"]


@dataclass
class Run:
    """A problem with what was learned from its data: the schema and the trained model.

    Attributes:
        problem: what was asked for.
        schema: the form of the data; reads sources.
        model: the trained network, a plain `nn.Module` in evaluation mode.
        history: of the training.
        record: format, versions, fingerprints of the data, seed, calibration.
        folder: where the run is saved; None if it is in memory only.
        test: metrics on the test part, if this process trained the run.
    """

    problem: Problem[Any, Any]
    schema: Any
    model: nn.Module
    history: History
    record: dict[str, Any]
    folder: Path | None = None
    test: Evaluation | None = None
    _parts: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def calibration(self) -> dict[str, Any]:
        """Return what turns outputs into decisions, learned on the validation part."""
        return dict(self.record.get("calibration", {}))

    @property
    def finished(self) -> bool:
        """Return whether the training came to its end."""
        return self.history.stopped_early or 0 < self.steps <= len(self.history.losses)

    @property
    def steps(self) -> int:
        """Return the number of steps that the training takes in all; 0 if it has not started."""
        return int(self.record.get("steps", 0))

    def predict(self, source: Any) -> Predictions | BoxTable:
        """Return the outputs of the model for the rows of a source; labels are not needed.

        Args:
            source: in the form of the training data: a file or a table in memory. Columns are matched by name.
        """
        part = self.schema.read(source, labels="optional")
        outputs = self.problem.predict(self.model, part)
        if not isinstance(outputs, Tensor):
            return outputs
        names = ("query_ids", "query_names", "row_names", "output_names")
        known = {name: getattr(part, name, None) for name in names}
        labels = getattr(part, "targets", None)
        return Predictions(outputs, labels=labels if isinstance(labels, Tensor) else None, **known)

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
            source: with labels, in the form of the training data; None is the validation part, which is read and cut
                again from the files of the problem.
            metric: by name; by default that by which choices are made.
            repeats: shuffles of each column.
        """
        part = self.part("validation") if source is None else self.read(source)
        return measure_importance(self.problem, self.model, self.schema, part, metric=metric, repeats=repeats)

    def write_scores(self, path: Path, shown: Inspection, source: Any = None) -> None:
        """Write the scores of an inspection of a source, or of the test part, as a CSV file."""
        part = self.part("test") if source is None else self.read(source)
        assert shown.scores is not None
        write_table(path, score_columns(shown.scores, part.targets, part.query_ids))

    def read(self, source: Any) -> Any:
        """Return a source with labels as a part."""
        return self.schema.read(source, labels="required")

    def part(self, name: str) -> Any:
        """Return a part of the run's own data: "train", "validation" or "test"."""
        if name not in self._parts:
            _, split = self.problem.read({})
            cut = self.problem.cut(split, int(self.record["seed"]))
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
            importance: of the columns; by default, without an inspection, on the validation part if that takes seconds.
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
            importance = quick_importance(self.problem, self.model, self.schema, self.part("validation"))
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
        target.update_record(**{key: self.record[key] for key in ("steps", "calibration") if key in self.record})
        self.folder = target.path


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
    migrate(where)
    record = where.read_record()
    problem = where.read_problem()
    schema = where.read_schema(problem)
    model = problem.build_model(schema)
    where.load_model(model)
    history = where.read_history() or History()
    return Run(problem, schema, model.eval(), history, record, where.path)


def load_runs(folder: str | Path) -> list[Run]:
    """Open the runs of all seeds that a folder holds: one, or one in each `seed-N` below it."""
    below = sorted(each for each in Path(folder).glob("seed-*") if RunFolder(each).exists)
    return [load_run(each) for each in (below if below and not RunFolder(folder).exists else [Path(folder)])]
