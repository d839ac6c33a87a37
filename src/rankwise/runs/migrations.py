"""Runs of older formats, brought to the present one when they are opened."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

from rankwise.problems.load import make_problem
from rankwise.runs.folder import FORMAT, RunFolder
from rankwise.training import read_checkpoint

__all__ = ["migrate"]


def migrate(folder: RunFolder) -> None:
    """Migrate a run of 0.1 (format 1) to the present format; do nothing to a present one.

    Version 0.1 saved no schema, so the training data are read once more. Without them the run cannot be used.
    """
    old = folder.path / "record.json"
    if (folder.path / "run.json").is_file() or not old.is_file():
        return
    try:
        record: dict[str, Any] = json.loads(old.read_text(encoding="utf-8"))
        # Version 0.1 had neither a refit nor regressions beside a network.
        recipe = {"refit": False, **record["recipe"]}
        beside = {"multilabel": "ridge", "tabular": "regressions"}.get(recipe["task"])
        if beside is not None:
            recipe["model"] = {beside: None, **recipe["model"]}
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
