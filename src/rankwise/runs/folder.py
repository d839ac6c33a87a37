"""The folder of a run: what is in it, how it is written whole, who may write to it, how an older one is migrated."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import platform
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from safetensors.torch import load_file, save
from torch import Tensor, nn

from rankwise import __version__
from rankwise.data import container
from rankwise.data.files import address_of
from rankwise.files import write_whole
from rankwise.metrics import Evaluation
from rankwise.problems.load import dump_problem, make_problem
from rankwise.problems.problem import Problem, SourceOptions
from rankwise.training import Checkpoints, History
from rankwise.training.checkpoints import read_checkpoint, read_weights
from rankwise.training.shards import write_joined

__all__ = [
    "FORMAT",
    "IMPORTANCE",
    "QUERIES",
    "REPORT",
    "RESULT",
    "SCORES",
    "RunFolder",
    "fingerprint",
    "make_record",
    "migrate",
    "part_columns",
    "score_columns",
    "write_table",
]

FORMAT = 2
RECIPE, RECORD, SCHEMA, MODEL = "recipe.yaml", "run.json", "schema", "model.safetensors"
OLD_RECORD = "record.json"  # of a run of 0.1
RESULT, QUERIES, SCORES, REPORT = "test.json", "test-queries.csv", "test-scores.csv", "report.html"
IMPORTANCE = "importance.csv"
TENSORS = "tensors"  # in the schema: what is kept beside it
PACKAGES = ("torch", "numpy", "lightning-fabric", "scikit-learn", "polars")


class RunFolder:
    """The folder of one run (one seed).

    It holds `recipe.yaml` (complete), `schema.json` (+ `schema.safetensors`), `run.json` (format number, versions,
    fingerprints of the data, seed, calibration, settings chosen on validation, what a refit did), `log.csv`,
    `checkpoints/` to resume from (a refit has `refit-log.csv` and `checkpoints/refit/`), `model.safetensors`, and, when
    the run is over, `test.json`, `test-queries.csv`, for problems that score rows `test-scores.csv`, for those of
    tables `importance.csv` (of the columns), and `report.html`.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def exists(self) -> bool:
        """Return whether the folder holds a run, of this or of an older format."""
        return (self.path / RECORD).is_file() or self.old

    @property
    def old(self) -> bool:
        """Return whether the folder holds a run of 0.1 only, which is to be migrated."""
        return (self.path / OLD_RECORD).is_file() and not (self.path / RECORD).is_file()

    @property
    def finished(self) -> bool:
        """Return whether the run is over; its results are written last."""
        return (self.path / RESULT).is_file()

    def checkpoints(self, keep: int = 3) -> Checkpoints:
        """Return the checkpoints of the run."""
        return Checkpoints(self.path / "checkpoints", keep=keep)

    def refit_checkpoints(self, keep: int = 3) -> Checkpoints:
        """Return the checkpoints of the refit."""
        return Checkpoints(self.path / "checkpoints" / "refit", keep=keep)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other training out of the folder while entered."""
        self.path.mkdir(parents=True, exist_ok=True)
        lock, owner = FileLock(self.path / ".lock", timeout=0), self.path / ".lock-owner"
        try:
            lock.acquire()
        except Timeout:
            name = owner.read_text(encoding="utf-8") if owner.is_file() else "another process"
            raise FileExistsError(
                f"{self.path}: another training writes to this folder ({name}); wait, or use --out"
            ) from None
        try:
            owner.write_text(f"process {os.getpid()} on {platform.node()}", encoding="utf-8")
            yield
        finally:
            owner.unlink(missing_ok=True)
            lock.release()

    def write_start(
        self, problem: Problem[Any, Any], schema: Any, seed: int, data: Mapping[str, str], **values: Any
    ) -> None:
        """Write what a run is made from, before it starts, with further values of `run.json`."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_whole(self.path / RECIPE, dump_problem(problem).encode())
        tensors, saved = schema.tensors(), schema.to_json()
        if tensors:
            write_whole(self.path / f"{SCHEMA}.safetensors", _pack(tensors))
            saved = {**saved, TENSORS: sorted(tensors)}
        write_whole(self.path / f"{SCHEMA}.json", json.dumps(saved, indent=1).encode())
        # Last: a folder holds a run when this file exists.
        record = {**make_record(problem, seed, data), **values}
        write_whole(self.path / RECORD, json.dumps(record, indent=2).encode())

    def write_model(self, model: nn.Module) -> None:
        """Write the weights."""
        write_whole(self.path / MODEL, _pack(model.state_dict()))

    def write_sharded_model(self, model: nn.Module) -> None:
        """Write the weights of a model whose tables are sharded; every process must call it at the same time."""
        write_joined(self.path / MODEL, model.state_dict())

    def map_model(self, problem: Problem[Any, Any], schema: Any) -> nn.Module:
        """Return the model with all weights mapped from the file: they take no memory of this process."""
        with torch.device("meta"):
            model = problem.with_whole_tables().build_model(schema)
        model.load_state_dict(load_file(self.path / MODEL), assign=True)
        return model

    def update_record(self, **values: Any) -> None:
        """Add values to `run.json`."""
        write_whole(self.path / RECORD, json.dumps({**self.read_record(), **values}, indent=2).encode())

    def read_record(self) -> dict[str, Any]:
        """Return `run.json`, checked; a newer format is refused."""
        path = self.path / RECORD
        try:
            record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as problem:
            raise ValueError(f"{path}: expected the record of a run ({problem})") from None
        kinds = {"format": int, "recipe": dict, "seed": int, "data": dict}
        if not isinstance(record, dict) or any(not isinstance(record.get(key), kind) for key, kind in kinds.items()):
            raise ValueError(f"{path}: expected the record of a run, with {', '.join(kinds)}, got something else")
        if record["format"] > FORMAT:
            wrote = record.get("versions", {}).get("rankwise", "a newer version")
            raise ValueError(
                f"{self.path}: expected a run of format {FORMAT} or older, got format {record['format']}, written by "
                f"rankwise {wrote}; this is {__version__}"
            )
        return record

    def read_problem(self) -> Problem[Any, Any]:
        """Return the problem of the run."""
        return make_problem(self.read_record()["recipe"])

    def read_schema(self, problem: Problem[Any, Any]) -> Any:
        """Return the schema of the run."""
        path = self.path / f"{SCHEMA}.json"
        tensors = self.path / f"{SCHEMA}.safetensors"
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            if values.pop(TENSORS, []) and not tensors.is_file():
                raise FileNotFoundError(tensors.name)
            return problem.schema_type.from_saved(values, load_file(tensors) if tensors.is_file() else {})
        except FileNotFoundError:
            missing = tensors if path.is_file() else path
            raise ValueError(f"{self.path}: expected a complete run, got no {missing.name} in it") from None
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem_:
            said = " ".join(str(problem_).split())
            raise ValueError(f"{path}: expected the schema of a {problem.kind} run ({said})") from None

    def load_model(self, model: nn.Module) -> None:
        """Load the weights into a model that was built from the schema."""
        path, best = self.path / MODEL, None
        if not path.is_file():
            # A run that is not over has its best weights in a checkpoint.
            best = self.checkpoints().best
            if not best.is_file():
                raise ValueError(f"{self.path}: the run has no weights yet; go on with rankwise train ... --resume")
            # Checkpoints lack what comes after the training: a refit, closed forms.
            if self.finished or "settings" in self.read_record():
                raise ValueError(f"{self.path}: expected a complete run, got no {MODEL} in it")
        try:
            model.load_state_dict(load_file(path) if best is None else read_weights(best))
        except Exception as problem:  # safetensors raises an error class of its own
            said = " ".join(str(problem).split())
            raise ValueError(f"{path}: expected the weights of this run's model ({said})") from None

    def read_history(self) -> History | None:
        """Return the history so far; None before the first checkpoint."""
        state, _ = self.checkpoints().newest()
        if state is None:
            return None
        return History.from_state(state["history"])

    def write_results(self, test: Evaluation, history: History, scores: Mapping[str, Any] | None) -> None:
        """Write means and intervals, values per query, and a table of scores if there is one."""
        values = {name: column.tolist() for name, column in test.per_query.items()}
        write_table(self.path / QUERIES, {"query": test.query_ids.tolist(), **values})
        if scores is not None:
            write_table(self.path / SCORES, scores)
        summary: dict[str, Any] = {
            **test.to_dict(),
            "best_step": history.best_step,
            "steps": len(history.losses),
            "stopped_early": history.stopped_early,
            "seconds": round(history.seconds, 2),
        }
        # Last: a run is over when this file exists.
        write_whole(self.path / RESULT, json.dumps(summary, indent=2).encode())

    def read_queries(self) -> dict[str, list[Any]]:
        """Return the columns of the values per query of a finished run."""
        path = self.path / QUERIES
        if not path.is_file():
            raise ValueError(f"{self.path}: expected the folder of a finished run, got no {QUERIES} in it")
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        names = list(rows[0]) if rows else ["query"]
        return {name: [row[name] if name == "query" else float(row[name]) for row in rows] for name in names}


def make_record(problem: Problem[Any, Any], seed: int, data: Mapping[str, str]) -> dict[str, Any]:
    """Return recipe, seed, versions and fingerprints of the data, as plain values."""
    return {
        "format": FORMAT,
        "recipe": {"task": problem.kind, **problem.model_dump(mode="json")},
        "seed": seed,
        "data": dict(data),
        "versions": {
            "python": platform.python_version(),
            "rankwise": __version__,
            **{name: _version(name) for name in PACKAGES},
        },
        "machine": platform.platform(),
    }


def fingerprint(source: object) -> str:
    """Return the SHA-256 of a file or of all files of a folder; "in memory" for anything else."""
    if not isinstance(source, str | Path):
        return "in memory"
    path, whole = Path(source), hashlib.sha256()
    if path.is_dir():
        for file in sorted(entry for entry in path.rglob("*") if entry.is_file()):
            whole.update(f"{file.relative_to(path)} {fingerprint(file)}\n".encode())
        return whole.hexdigest()
    if path.exists() and not path.is_file():  # a device or a pipe may never end
        raise ValueError(f"{path}: expected a file, got something else")
    try:
        with open(path, "rb") as content:
            while block := content.read(1 << 20):
                whole.update(block)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file") from None
    except OSError as problem:
        raise ValueError(f"{path}: cannot be read ({problem.strerror})") from None
    return whole.hexdigest()


def _pack(tensors: Mapping[str, Tensor]) -> bytes:
    content: bytes = save({name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()})
    return content


def write_table(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write columns to a CSV file, whole."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    write_whole(path, text.getvalue().encode())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def score_columns(
    scores: Tensor, labels: Tensor | None, query_ids: Tensor | None, *, name: str = "score"
) -> dict[str, list[Any]]:
    """Return the columns of a file of scores: score, label and query where they are known."""
    # Nine digits: every float32 is read back as it was.
    columns: dict[str, list[Any]] = {name: [float(f"{score:.9g}") for score in scores.double().tolist()]}
    known: Mapping[str, Tensor | None] = {"label": labels, "query": query_ids}
    return columns | {title: values.tolist() for title, values in known.items() if values is not None}


def part_columns(scores: Tensor, part: Any) -> dict[str, list[Any]]:
    """Return the columns of a file of the scores of a part, with the row and the id of each in its source if known."""
    columns = score_columns(scores, part.targets, part.query_ids)
    if isinstance(rows := getattr(part, "rows", None), Tensor):
        columns["row"] = rows.tolist()
    return columns if (ids := getattr(part, "row_ids", None)) is None else columns | {"id": list(ids)}


def fingerprints(problem: Problem[Any, Any], given: Mapping[str, Any]) -> dict[str, str]:
    """Return the fingerprints of the files of a problem and of given sources, by path or name of the part."""
    options = getattr(problem, "data", None)
    local = options.local if isinstance(options, SourceOptions) else lambda path: path
    data = {address_of(path) or str(path): fingerprint(local(path)) for path in problem.files()}
    for name, source in given.items():
        if (address := address_of(source)) is not None:
            name, source = address, local(source)
        elif isinstance(source, str | Path):
            name, source = str(container(Path(source))), container(Path(source))
        data[name] = fingerprint(source)
    return data


def migrate(folder: RunFolder) -> None:
    """Migrate a run of 0.1 (format 1) to the present format.

    Version 0.1 saved no schema, so the training data are read once more. Without them the run cannot be used.
    """
    old = folder.path / OLD_RECORD
    try:
        record: dict[str, Any] = json.loads(old.read_text(encoding="utf-8"))
        # Version 0.1 had neither a refit nor models in closed form beside a network.
        recipe = {"refit": False, **record["recipe"]}
        beside = {"multilabel": "ridge", "tabular": "ensemble", "ltr": "ensemble", "image-retrieval": "whitening"}
        if recipe["task"] in beside:
            recipe["model"] = {beside[recipe["task"]]: None, **recipe["model"]}
        problem = make_problem(recipe)
        data, seed = dict(record["data"]), int(record["seed"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as fault:
        raise ValueError(f"{old}: expected the record of a run ({fault})") from None
    missing = [path for path in data if not Path(path).exists()]
    if missing:
        raise ValueError(
            f"{folder.path}: this run was written by rankwise 0.1, which saved no schema; it can be opened once where "
            f"its training data are, and needs {missing[0]}"
        )
    schema, split = problem.read({})
    if getattr(schema, "left_out", None):
        # Version 0.1 used every column.
        options: Any = getattr(problem, "data")  # noqa: B009 (of the kinds that read tables)
        used = [name for name in schema.columns if name not in (schema.label, schema.query, *options.drop)]
        problem = problem.changed(data={**dict(options), "features": tuple(used)})
        schema, split = problem.read({})
    model = problem.build_model(schema)
    best = folder.checkpoints().best
    if best.is_file():
        weights = read_checkpoint(best)["model"]
        problem.fit_model(model, problem.cut(split, seed).train)
        try:
            model.load_state_dict(weights, strict=False)
        except RuntimeError as fault:
            said = " ".join(str(fault).split())
            raise ValueError(f"{folder.path}: the run does not fit its training data ({said})") from None
    folder.write_start(problem, schema, seed, data)
    folder.update_record(migrated_from=1)
    if best.is_file():
        folder.write_model(model)
    warnings.warn(
        f"{folder.path}: brought from format 1 (rankwise 0.1) to format {FORMAT}", FutureWarning, stacklevel=2
    )
