"""Train a problem with each of its seeds, refit it with validation data, and write everything to a folder."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric
from torch import Tensor, nn

from rankwise.data import Split
from rankwise.data.files import report_reading
from rankwise.models.tables import has_sharded_tables
from rankwise.problems.inference import infer_problem
from rankwise.problems.load import is_data, load_problem, make_problem
from rankwise.problems.problem import Problem
from rankwise.runs.folder import (
    IMPORTANCE,
    MODEL,
    RunFolder,
    fingerprint,
    fingerprints,
    make_record,
    part_columns,
    write_table,
)
from rankwise.runs.run import Run, load_run
from rankwise.training import Checkpoints, History, Profile, Step, fit, make_fabric, read_checkpoint
from rankwise.training.history import Log, Watcher, open_logs

__all__ = ["Watcher", "continue_run", "refit", "train", "train_seeds"]


class Silent:
    """A watcher that shows nothing."""

    def reads(self, path: Path, share: float) -> None: ...

    def begins(self, seed: int, steps: int, done: int) -> None: ...

    def step(self, step: Step) -> None: ...

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def says(self, text: str) -> None: ...


def train(
    problem: Problem[Any, Any] | str | Path,
    *,
    train: Any = None,
    validation: Any = None,
    test: Any = None,
    label: str | None = None,
    query: str | None = None,
    positive: str | None = None,
    task: str | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    watcher: Watcher | None = None,
) -> Run:
    """Train a problem with its one seed and evaluate it on the test part.

    Args:
        problem: what to train; or the path of a recipe; or the path of data, from which the problem is inferred.
        train, validation, test: data by part, see `train_seeds`.
        label, query, positive, task: for the path of data, see `infer_problem`.
        out, resume, watcher: see `train_seeds`.

    Example:
        >>> import numpy as np
        >>> from rankwise.problems import Tabular
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(200, 3))
        >>> y = (X[:, 0] + rng.normal(size=200) > 1).astype(int)
        >>> run = train(Tabular(budget={"steps": 20}, evaluation={"every": 10}), train=(X, y))
        >>> run.predict(X[:5]).outputs.shape
        torch.Size([5])
    """
    options = {"label": label, "query": query, "positive": positive, "task": task}
    loaded = resolve_problem(problem, {name: value for name, value in options.items() if value is not None})
    if len(loaded.seeds) > 1:
        raise ValueError(f"seeds: expected one, got {len(loaded.seeds)}; rankwise.train_seeds trains several")
    sources = {"train": train, "validation": validation, "test": test}
    return train_seeds(loaded, sources=sources, out=out, resume=resume, watcher=watcher)[0]


def resolve_problem(problem: Problem[Any, Any] | str | Path, options: dict[str, str]) -> Problem[Any, Any]:
    """Return the problem itself, the one of a recipe, or the one inferred from data."""
    if isinstance(problem, str | Path) and is_data(problem):
        return infer_problem(problem, **options).problem
    if options:
        raise ValueError(f"{next(iter(options))}: expected with the path of data, got it with a problem or a recipe")
    return load_problem(problem) if isinstance(problem, str | Path) else problem


def train_seeds(
    problem: Problem[Any, Any],
    *,
    sources: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    watcher: Watcher | None = None,
    begin: Run | None = None,
    cut_seed: int | None = None,
    profile: bool = False,
) -> list[Run]:
    """Train a problem with each of its seeds, evaluate the chosen weights on the test part, write everything down.

    The data are read once for all seeds.

    Args:
        problem: what to train.
        sources: data by the name of their part ("train", "validation", "test"): files, frames or arrays; by default the
            files of the problem.
        out: the folder to write to; with several seeds, each gets a folder `seed-N` below. None keeps the runs in
            memory.
        resume: go on from the newest good checkpoints; a seed that has none starts. Without it a folder that holds a
            run is refused.
        watcher: receives the progress.
        begin: a run to go on from, see `continue_run`.
        cut_seed: cut the parts of the data with this seed in all runs; by default each is cut with its own.
        profile: also record some steps of each seed, see `rankwise.training.Profile`; needs `out`.

    Returns:
        One `Run` per seed.
    """
    watcher = watcher or Silent()
    given = {name: source for name, source in (sources or {}).items() if source is not None}
    folders: dict[int, RunFolder | None] = dict.fromkeys(problem.seeds)
    if out is not None:
        several = len(problem.seeds) > 1
        folders = {seed: RunFolder(Path(out) / f"seed-{seed}" if several else out) for seed in problem.seeds}
        if not resume and (taken := [each.path for each in folders.values() if each is not None and each.exists]):
            raise FileExistsError(f"{taken[0]} holds a run; go on with --resume, or write elsewhere with --out")
    elif profile:
        raise ValueError("profile: expected the folder of the run as out to write the profile to, got None")
    if problem.device.tables == "sharded" and out is None:
        raise ValueError("out: expected a folder with device.tables=sharded, in which the tables are put together")
    data = fingerprints(problem, given)
    fabric = make_fabric(problem.device)
    if begin is None and resume:
        begin = _begun_from(next(iter(folders.values())))
    with report_reading(watcher.reads):
        if begin is None:
            schema, split = problem.read(given)
        else:
            schema, split = begin.schema, problem.read_with(begin.schema, given)
    runs = []
    for seed, folder in folders.items():
        with ExitStack() as lock:
            run = _train_seed(
                problem, schema, split, seed, folder, data, resume=resume, fabric=fabric, watcher=watcher, lock=lock,
                begin=begin, cut_seed=cut_seed, profile=profile,
            )  # fmt: skip
            runs.append(run)
    return runs


def continue_run(
    run: Run | str | Path,
    *,
    changes: Sequence[str] = (),
    train: Any = None,
    validation: Any = None,
    test: Any = None,
    out: str | Path | None = None,
    watcher: Watcher | None = None,
) -> Run:
    """Go on from the weights of a run: with more steps, or with new data of the same form.

    The new run begins with the model of the old one, its scaling included, and with a new optimiser. The schema is that
    of the old run: columns are matched by name, unknown categories count as none of the known ones.

    Args:
        run: the run, or its folder.
        changes: to its recipe, such as "budget.steps=500".
        train, validation, test: new data by part; by default those of the run, cut by its seed as before.
        out, watcher: see `train_seeds`.
    """
    begin = load_run(run) if isinstance(run, str | Path) else run
    recipe = {"task": begin.problem.kind, **begin.problem.model_dump(mode="json"), "seeds": [begin.record["seed"]]}
    problem = make_problem(recipe, changes)
    sources = {"train": train, "validation": validation, "test": test}
    cut_seed = begin.record.get("cut_seed")
    return train_seeds(problem, sources=sources, out=out, watcher=watcher, begin=begin, cut_seed=cut_seed)[0]


def _begun_from(folder: RunFolder | None) -> Run | None:
    """Return the run that a stopped one went on from; None if it began with new weights."""
    if folder is None or not folder.exists:
        return None
    record = folder.read_record()
    before = record.get("begun_from")
    if before is None:
        return None
    if not before:
        raise ValueError(f"{folder.path}: cannot go on; it began with the weights of a run in memory, which is gone")
    begin = load_run(before)
    if record.get("begun_from_weights", "") not in ("", _origin_of(begin)["begun_from_weights"]):
        raise ValueError(f"{folder.path}: cannot go on; the weights of {before}, from which it began, changed since")
    return begin


def _origin_of(begin: Run) -> dict[str, str]:
    """Return where the weights that a run begins with are, and their fingerprint; nothing for a run in memory."""
    if begin.folder is None:
        return {"begun_from": "", "begun_from_weights": ""}
    weights = begin.folder / MODEL  # a run that is not over has none yet
    return {"begun_from": str(begin.folder), "begun_from_weights": fingerprint(weights) if weights.exists() else ""}


def _train_seed(
    problem: Problem[Any, Any],
    schema: Any,
    split: Split[Any],
    seed: int,
    folder: RunFolder | None,
    data: dict[str, str],
    *,
    resume: bool,
    fabric: Fabric,
    watcher: Watcher,
    lock: ExitStack,
    begin: Run | None,
    cut_seed: int | None,
    profile: bool,
) -> Run:
    weights = None if begin is None else begin.model.state_dict()
    if folder is not None and folder.exists and resume:
        cut_seed = folder.read_record().get("cut_seed", cut_seed)
    cut = problem.cut(split, seed if cut_seed is None else cut_seed)
    # Whoever opens the run later cuts the data alike.
    own_cut: dict[str, Any] = {} if cut_seed is None else {"cut_seed": cut_seed}
    if cut.cross_validated:
        own_cut["cross_validated"] = True
    writer = folder if fabric.is_global_zero else None
    checkpoints = None if folder is None else folder.checkpoints(problem.checkpoints.keep)
    start: dict[str, Any] | None = None
    existed = folder is not None and folder.exists
    if folder is not None and checkpoints is not None and resume and existed:
        if writer is not None:
            lock.enter_context(writer.locked())
        start = _find_start(problem, folder, data, checkpoints, watcher)
    logs: list[Log] = []
    steps_in_all = 0

    def on_start(steps: int, done: int) -> None:
        # Model, loss and batches are built by now: what is refused until here leaves no folder.
        nonlocal steps_in_all
        steps_in_all = steps
        if writer is not None:
            if not (resume and existed):
                lock.enter_context(writer.locked())
                if writer.exists:
                    raise FileExistsError(f"{writer.path}: expected no run, got one that another training wrote since")
            if start is None:
                begun_from = {} if begin is None else _origin_of(begin)
                writer.write_start(problem, schema, seed, data, **begun_from, **own_cut)
            writer.update_record(steps=steps)
            losses = None if start is None else start["history"]["losses"].tolist()
            logs.extend(open_logs(problem.logs, writer.path, problem.measured, losses))
        fabric.barrier()
        watcher.begins(seed, steps, done)

    def on_step(step: Step) -> None:
        for log in logs:
            log.step(step)
        watcher.step(step)

    def on_evaluation(step: int, metrics: dict[str, float]) -> None:
        for log in logs:
            log.evaluation(step, {name: metrics[name] for name in problem.measured})
        watcher.evaluation(step, metrics)

    recorded = Profile(writer.path) if profile and writer is not None else None
    fitted = fit(
        problem,
        schema,
        cut,
        seed=seed,
        fabric=fabric,
        checkpoints=checkpoints,
        start=start,
        weights=weights,
        check_memory=True,
        on_start=on_start,
        on_step=on_step,
        on_evaluation=on_evaluation,
        profile=recorded,
    )
    model, record = fitted.model, make_record(problem, seed, data) | own_cut
    settings = problem.complete_model(model, cut)
    # A model that is refitted has seen the validation part; what is learned there is learned before.
    calibration = problem.calibrate(model, cut.part("validation"))
    record |= {"steps": steps_in_all, "settings": settings, "calibration": calibration}
    # Members of folds have learned from the validation part.
    if problem.refit and not cut.cross_validated:
        model, record["refit"] = refit(
            problem,
            schema,
            cut,
            fitted.history,
            steps_in_all,
            settings,
            seed=seed,
            fabric=fabric,
            folder=folder,
            resume=resume and existed,
            watcher=watcher,
            weights=weights,
        )
    if problem.device.tables == "sharded" and has_sharded_tables(model):
        assert folder is not None
        folder.write_sharded_model(model)
        model = folder.map_model(problem, schema)
    parts = {name: cut.part(name) for name in ("train", "validation", "test")}
    shown = problem.inspect(model, parts["test"], bootstrap=1000, calibration=calibration)
    baselines = {name: each.means for name, each in problem.baselines(model, parts["test"], settings).items()}
    record["baselines"] = baselines
    path = None if folder is None else folder.path
    run = Run(problem, schema, model.eval(), fitted.history, record, path, shown.evaluation, parts)
    importance = None if folder is None else run.quick_importance()
    if writer is not None:
        if problem.device.tables == "whole" or fabric.world_size == 1:
            writer.write_model(model)
        writer.update_record(settings=settings, calibration=calibration, baselines=baselines)
        run.record = writer.read_record()
        if importance is not None:
            write_table(writer.path / IMPORTANCE, importance.table())
        scores = None if shown.scores is None else part_columns(shown.scores, parts["test"])
        writer.write_results(shown.evaluation, fitted.history, scores)
        if find_spec("jinja2") is None:
            watcher.says("no report.html, which needs jinja2: pip install 'rankwise[report]'")
        else:
            run.report(inspection=shown, importance=importance)
    fabric.barrier()
    return run


def _find_start(
    problem: Problem[Any, Any],
    folder: RunFolder,
    data: dict[str, str],
    checkpoints: Checkpoints,
    watcher: Watcher,
) -> dict[str, Any] | None:
    recorded = folder.read_record()
    before, now = recorded["recipe"], problem.model_dump(mode="json")
    # The device and the number of checkpoints change nothing in the result.
    different = [key for key in now if key not in ("device", "checkpoints", "logs") and now[key] != before.get(key)]
    if before.get("task") != problem.kind:
        different.insert(0, "task")
    if different:
        raise ValueError(
            f"{folder.path}: cannot go on with another recipe; {', '.join(different)} changed since the run began"
        )
    changed = [path for path, value in data.items() if recorded["data"].get(path) != value]
    if changed:
        raise ValueError(f"{folder.path}: cannot go on with other data; {changed[0]} changed since the run began")
    state, damaged = checkpoints.newest()
    for each in damaged:
        watcher.says(f"skipped a damaged checkpoint: {each.reason}")
    if state is not None and state["history"]["best_step"] is not None:
        try:
            read_checkpoint(checkpoints.best)
        except (ValueError, FileNotFoundError) as fault:
            # Only training again can tell which weights were best.
            watcher.says(f"the best checkpoint cannot be used: {fault}")
            state = None
    if state is None:
        watcher.says(f"{folder.path}: no usable checkpoint; starting from the beginning")
    return state


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
    logs = [] if writer is None else open_logs(problem.logs, writer.path, problem.measured, losses, prefix="refit-")

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
                "background": problem.checkpoints.background,
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
