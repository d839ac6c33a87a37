"""Train again on training and validation data together, as far as the validation part has chosen."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any

from lightning_fabric import Fabric
from torch import Tensor, nn

from rankwise.data import Split
from rankwise.problems.problem import Problem
from rankwise.runs.folder import RunFolder
from rankwise.runs.logs import Watcher, open_logs
from rankwise.training import History, Step, fit

__all__ = ["refit"]


def refit(
    problem: Problem[Any, Any],
    schema: Any,
    cut: Split[Any],
    history: History,
    steps: int,
    settings: Mapping[str, Any],
    *,
    seed: int,
    fabric: Fabric,
    folder: RunFolder | None,
    resume: bool,
    watcher: Watcher,
    weights: Mapping[str, Tensor] | None = None,
) -> tuple[nn.Module, dict[str, Any]]:
    """Train a problem from the same seed on training and validation data together, and complete the model.

    The share of the budget is the one at which the first training was best on validation (or ended, for
    `evaluation.weights: last`); a budget in epochs therefore takes more steps. Checkpoints are those of
    `folder.refit_checkpoints`.

    Args:
        problem, schema, seed, fabric, watcher, weights: as in the first training.
        cut: the parts of the first training; the test part is not used.
        history: of the first training; steps: how many its budget has.
        settings: chosen by `Problem.complete_model` in the first training.
        folder: of the run; None saves nothing.
        resume: go on from the checkpoints of an earlier call, if that one refitted to the same step and settings.

    Returns:
        The model, and a record for `run.json`: the chosen step, the settings, steps and seconds of the refit.
    """
    step = history.best_step if problem.evaluation.weights == "best" else len(history.losses)
    assert step is not None
    plan = {"chosen_step": step, "settings": dict(settings)}
    writer = folder if fabric.is_global_zero else None
    checkpoints, start = None, None
    if folder is not None:
        checkpoints = folder.refit_checkpoints(problem.checkpoints.keep)
        before = folder.read_record().get("refit", {})
        if resume and {key: before.get(key) for key in plan} == plan:
            start, damaged = checkpoints.newest()
            for each in damaged:
                watcher.says(f"skipped a damaged checkpoint: {each.reason}")
        fabric.barrier()
    if writer is not None and start is None:
        shutil.rmtree(writer.refit_checkpoints().folder, ignore_errors=True)
        writer.update_record(refit=plan)
    fabric.barrier()
    joined = Split(cut.train.join(cut.part("validation")))
    losses = None if start is None else start["history"]["losses"].tolist()
    logs = [] if writer is None else open_logs(problem, writer.path, losses, prefix="refit-")

    def on_start(in_all: int, done: int) -> None:
        watcher.says(f"refit on training and validation data: {in_all} steps")
        watcher.begins(seed, in_all, done)

    def on_step(step: Step) -> None:
        for log in logs:
            log.step(step)
        watcher.step(step)

    fitted = fit(
        problem.changed(
            evaluation={"every": None, "weights": "last"},
            checkpoints={
                "every": problem.checkpoints.every or problem.evaluation.every,
                "keep": problem.checkpoints.keep,
            },
        ),
        schema,
        joined,
        seed=seed,
        fabric=fabric,
        checkpoints=checkpoints,
        start=start,
        weights=weights,
        stop_after=step / steps,
        on_start=on_start,
        on_step=on_step,
    )
    problem.complete_model(fitted.model, joined, settings)
    record = {**plan, "steps": len(fitted.history.losses), "seconds": round(fitted.history.seconds, 2)}
    if writer is not None:
        writer.update_record(refit=record)
    return fitted.model, record
