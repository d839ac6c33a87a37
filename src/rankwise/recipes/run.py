"""Running a recipe: one folder per run, with everything that came out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from lightning_fabric import Fabric
from torch import Tensor, nn

from rankwise.data import Part
from rankwise.files import write_whole
from rankwise.metrics import Evaluation
from rankwise.recipes.load import dump_recipe, make_recipe
from rankwise.recipes.record import changed_files, fingerprints, read_record, write_record
from rankwise.recipes.results import write_results
from rankwise.recipes.schema import Recipe
from rankwise.tasks import InspectableTask, Inspection, ScoringTask, Task
from rankwise.training import Checkpoints, History, Run, Step, fit, make_fabric, read_checkpoint
from rankwise.training.logs import CSVLog, Log, TensorBoardLog

__all__ = ["Finished", "RunFolder", "Watcher", "history_of_run", "open_run", "run_recipe"]


@dataclass(frozen=True)
class Finished:
    """A run that has come to its end: its folder, seed, weights, history, and what the test part gave."""

    folder: Path
    seed: int
    run: Run
    test: Evaluation


class Watcher(Protocol):
    """Told what a run does."""

    def begins(self, seed: int, steps: int, done: int) -> None:
        """Training begins, with `done` of `steps` steps done before."""

    def step(self, step: Step) -> None:
        """A step was taken."""

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """The validation part was evaluated."""

    def says(self, text: str) -> None:
        """Something a person should know."""


class RunFolder:
    """The folder of one run (one seed).

    It holds `recipe.yaml` (complete), `record.json` (versions, fingerprints of the data), `log.csv`, `checkpoints/`,
    and, when the run is over, `test.json`, `test-queries.csv`, for tasks that score items `test-scores.csv`, and
    `report.html`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def recipe(self) -> Path:
        return self.path / "recipe.yaml"

    @property
    def record(self) -> Path:
        return self.path / "record.json"

    @property
    def exists(self) -> bool:
        return self.record.is_file()

    def checkpoints(self, keep: int = 3) -> Checkpoints:
        return Checkpoints(self.path / "checkpoints", keep=keep)


def run_recipe(
    recipe: Recipe,
    folder: Path,
    *,
    watcher: Watcher,
    resume: bool = False,
) -> list[Finished]:
    """Train a recipe with each of its seeds, evaluate the best weights on the test part, write everything down.

    Args:
        recipe: what to do.
        folder: where to write; with several seeds, each gets a folder `seed-N` below.
        watcher: told what happens.
        resume: go on from the newest good checkpoints; what has not begun begins. Without it a folder that holds a run
            is refused.

    Returns:
        One `Finished` per seed.
    """
    folders = {seed: RunFolder(folder / f"seed-{seed}" if len(recipe.seeds) > 1 else folder) for seed in recipe.seeds}
    if not resume and (taken := [each.path for each in folders.values() if each.exists]):
        raise FileExistsError(f"{taken[0]} holds a run; go on with --resume, or write elsewhere with --out")
    data = fingerprints(recipe)
    recipe = recipe.settled()
    fabric = make_fabric(recipe.place.make())
    return [
        _run(recipe, seed, each, data, resume=resume, fabric=fabric, watcher=watcher, task=recipe.build_task(seed))
        for seed, each in folders.items()
    ]


def _run(
    recipe: Recipe,
    seed: int,
    folder: RunFolder,
    data: dict[str, str],
    *,
    resume: bool,
    fabric: Fabric,
    watcher: Watcher,
    task: Task,
) -> Finished:
    checkpoints = folder.checkpoints(recipe.checkpoints.keep)
    start = _find_start(recipe, folder, data, checkpoints, watcher) if resume and folder.exists else None
    done = 0 if start is None else int(start["step"])
    steps = recipe.budget.in_steps(len(task.train_loader(seed)) // recipe.gradient.accumulate)
    logs: list[Log] = []
    if fabric.is_global_zero:
        folder.path.mkdir(parents=True, exist_ok=True)
        if start is None:
            write_whole(folder.recipe, dump_recipe(recipe).encode())
            write_record(folder.record, recipe, seed, data)
        logs = _open_logs(recipe, folder, None if start is None else start["history"]["losses"].tolist())
    fabric.barrier()
    watcher.begins(seed, steps, done)

    def on_step(step: Step) -> None:
        for log in logs:
            log.step(step)
        watcher.step(step)

    def on_evaluation(step: int, metrics: dict[str, float]) -> None:
        for log in logs:
            log.evaluation(step, metrics)
        watcher.evaluation(step, metrics)

    run = fit(
        task,
        steps=steps,
        optimiser=recipe.optimiser.make(),
        schedule=recipe.schedule.make(),
        eval_every=recipe.evaluation.every,
        patience=recipe.evaluation.patience,
        take_best=True,
        clip_norm=recipe.gradient.clip,
        accumulate=recipe.gradient.accumulate,
        rows_at_once=recipe.gradient.rows_at_once,
        previous_weights=recipe.gradient.previous_weights,
        average=None if recipe.average is None else recipe.average.make(),
        seed=seed,
        fabric=fabric,
        checkpoints=checkpoints,
        save_every=recipe.checkpoints.every,
        start=start,
        notes={"features": task.features},
        check_memory=True,
        on_step=on_step,
        on_evaluation=on_evaluation,
    )
    shown = task.inspect(run.model, "test", bootstrap=1000) if isinstance(task, InspectableTask) else None
    test = task.judge(run.model, "test", bootstrap=1000) if shown is None else shown.evaluation
    scores = _score(task, run.model)
    if fabric.is_global_zero:
        write_results(folder.path, test, run.history, scores)
        if shown is not None:
            _write_page(recipe, folder, shown, run.history, steps, watcher)
    fabric.barrier()
    return Finished(folder.path, seed, run, test)


def _write_page(
    recipe: Recipe, folder: RunFolder, shown: Inspection, history: History, steps: int, watcher: Watcher
) -> None:
    if find_spec("jinja2") is None:
        watcher.says("no report.html, which needs jinja2: pip install 'rankwise[report]'")
        return
    from rankwise.recipes.pages import REPORT, page_of
    from rankwise.report import write_report

    record = read_record(folder.record)
    page = page_of(folder.path.name, recipe, record, shown, history, steps=steps, part="test")
    write_report(folder.path / REPORT, page)


def _find_start(
    recipe: Recipe, folder: RunFolder, data: dict[str, str], checkpoints: Checkpoints, watcher: Watcher
) -> dict[str, Any] | None:
    recorded = read_record(folder.record)
    before, now = recorded["recipe"], recipe.model_dump(mode="json")
    # Where a run takes place and how many checkpoints it keeps changes nothing in what comes out.
    different = [key for key in now if key not in ("place", "checkpoints", "logs") and now[key] != before.get(key)]
    if different:
        raise ValueError(
            f"{folder.path}: cannot go on with another recipe; {', '.join(different)} changed since the run began"
        )
    if changed := changed_files(recorded["data"], data):
        raise ValueError(f"{folder.path}: cannot go on with other data; {changed[0]} changed since the run began")
    state, damaged = checkpoints.newest()
    for each in damaged:
        watcher.says(f"skipped a damaged checkpoint: {each.reason}")
    if state is not None and state["history"]["best_step"] is not None:
        try:
            read_checkpoint(checkpoints.best)
        except (ValueError, FileNotFoundError) as problem:
            # What was best can only be found again by training again.
            watcher.says(f"the best checkpoint cannot be used: {problem}")
            state = None
    if state is None:
        watcher.says(f"{folder.path}: no usable checkpoint; starting from the beginning")
    return state


def _open_logs(recipe: Recipe, folder: RunFolder, losses: list[float] | None) -> list[Log]:
    logs: list[Log] = []
    if "csv" in recipe.logs:
        logs.append(CSVLog(folder.path / "log.csv", recipe.measured, losses=losses))
    if "tensorboard" in recipe.logs:
        logs.append(TensorBoardLog(folder.path / "tensorboard", start=len(losses or ())))
    return logs


@dataclass(frozen=True)
class OpenRun:
    """A trained run, ready to be used: its recipe, its task on the data in question, and the best weights."""

    recipe: Recipe
    task: Task
    model: nn.Module
    record: dict[str, Any]
    history: History

    @property
    def steps(self) -> int:
        """How many the run is to take in all."""
        batches = len(self.task.train_loader(int(self.record["seed"])))
        return self.recipe.budget.in_steps(batches // self.recipe.gradient.accumulate)

    @property
    def over(self) -> bool:
        """Whether the training has come to its end."""
        return self.history.stopped_early or len(self.history.losses) >= self.steps

    def scores(self) -> tuple[Tensor, Part] | None:
        """The scores of the test part and the part, if the task scores items."""
        return _score(self.task, self.model)


def open_run(folder: Path, data: Path | None = None, metrics: Sequence[str] = ()) -> OpenRun:
    """Open a run.

    Args:
        folder: of the run.
        data: a file to be judged on instead of the test part; the training data are not needed then.
        metrics: instead of the recipe's.
    """
    where = RunFolder(folder)
    if not where.exists:
        raise ValueError(f"{folder}: expected the folder of a run, found no {where.record.name} in it")
    best = where.checkpoints().best
    if not best.is_file():
        raise ValueError(f"{folder}: the run has no best checkpoint yet; go on with rankwise train ... --resume")
    record, state = read_record(where.record), read_checkpoint(best)
    changes = [f"metrics=[{', '.join(metrics)}]"] if metrics else []
    recipe = make_recipe(record["recipe"], changes)
    if data is not None:
        recipe = recipe.for_scoring(data, state["notes"]["features"]).with_usual_batches()
    task = recipe.build_task(int(record["seed"]))
    model = task.build_model()
    try:
        model.load_state_dict(state["model"])
    except RuntimeError as problem:
        said = " ".join(str(problem).split())
        raise ValueError(f"{data or folder}: the data do not fit the model of {folder} ({said})") from None
    newest, _ = where.checkpoints().newest()
    return OpenRun(recipe, task, model, record, _history(newest or state))


def history_of_run(folder: Path) -> tuple[str, History] | None:
    """The metric by which a run makes its choices, and its history so far; None if it has no checkpoint."""
    state, _ = RunFolder(folder).checkpoints().newest()
    if state is None:
        return None
    return make_recipe(read_record(RunFolder(folder).record)["recipe"]).measured[0], _history(state)


def _history(state: Mapping[str, Any]) -> History:
    kept = dict(state["history"])
    return History(**{**kept, "losses": kept["losses"].tolist()})


def _score(task: Task, model: nn.Module) -> tuple[Tensor, Part] | None:
    return (task.predict(model, "test"), task.data.test) if isinstance(task, ScoringTask) else None
