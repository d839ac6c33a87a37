"""`rankwise train`: run a recipe, show how it goes, say what came out."""

from __future__ import annotations

import errno
import json
import logging
import shlex
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from rich.progress import Progress, TaskID

from rankwise.cli.console import (
    facts,
    print_paragraph,
    print_table,
    progress_bar,
    record,
    record_each,
    say,
    shows_progress,
    sparkline,
)
from rankwise.cli.main import INTERRUPTED, Stop, is_first_process, lost_a_process, sigterm_like_ctrl_c
from rankwise.extras import require

if TYPE_CHECKING:
    from rankwise.problems import Problem
    from rankwise.problems.inference import Inferred
    from rankwise.runs import Run
    from rankwise.training import Step

__all__ = ["Shown", "default_folder", "go_on", "load_or_infer", "train"]

# Seconds between two lines on how far reading is, where there is no terminal.
READING_SAID_EVERY = 10.0


def default_folder(what: str) -> Path:
    """Return the folder of a run if nobody says where: named after the recipe or the data."""
    return Path("runs") / (Path(what).resolve().name.split(".")[0] or "run")


def train(
    what: str,
    changes: Sequence[str],
    out: Path,
    *,
    resume: bool,
    profile: bool = False,
    options: Mapping[str, str | None] | None = None,
) -> None:
    """Train, evaluate on the test part, print and write the results to `out`.

    Args:
        what: data, or a recipe by path or name.
        changes: `key=value` each.
        out: the folder of the run.
        resume: go on from the newest good checkpoint.
        profile: also record some steps, see `rankwise.training.Profile`.
        options: of `infer_problem`, for data only.
    """
    require("training", ("lightning_fabric", "pydantic", "yaml"), extra="train")
    from rankwise.runs import train_seeds

    problem, from_data = load_or_infer(what, changes, options or {})
    same = [str(out / "recipe.yaml")] if from_data else [what, *changes]
    _train_and_show(
        problem,
        out,
        same,
        lambda watcher: train_seeds(problem, out=out, resume=resume, watcher=watcher, profile=profile),
        inferred=from_data,
    )


def load_or_infer(
    what: str, changes: Sequence[str], options: Mapping[str, str | None]
) -> tuple[Problem[Any, Any], bool]:
    """Return the problem of a recipe, or of data, and whether it was inferred, which is shown; see `train`."""
    from rankwise.problems.load import is_data, load_problem

    given = {name: value for name, value in options.items() if value is not None}
    if is_data(what):
        from rankwise.problems.inference import infer_problem

        inferred = infer_problem(what, changes, **given)
        _show_inferred(inferred)
        return inferred.problem, True
    if given:
        name = next(iter(given))
        raise ValueError(f"--{name}: expected with data, got it with the recipe {what}, which says such things itself")
    return load_problem(what, changes), False


def go_on(begin: Path, data: str | None, changes: Sequence[str], out: Path) -> None:
    """Go on from a run: with more steps, or with new data of the same form; results go to another folder."""
    require("training", ("lightning_fabric", "pydantic", "yaml"), extra="train")
    from rankwise.runs import continue_run, load_run

    if data is not None:
        if not Path(data).exists():
            raise FileNotFoundError(f"{data}: no such file or folder")
        changes = [f"data.train={json.dumps(data)}", *changes]
    run = load_run(begin)
    _train_and_show(
        run.problem,
        out,
        [str(out / "recipe.yaml")],
        lambda watcher: [continue_run(run, changes=changes, out=out, watcher=watcher)],
    )


def _train_and_show(
    problem: Problem[Any, Any],
    out: Path,
    same: Sequence[str],
    train: Callable[[Shown], list[Run]],
    *,
    inferred: bool = False,
) -> None:
    """Train with progress on the terminal, and print the results.

    Args:
        problem: what is trained.
        out: the folder of the runs.
        same: arguments of `rankwise train` that go on with a run that was stopped.
        train: calls the training with a watcher.
        inferred: whether what was inferred from the data was shown before.
    """
    from rankwise.problems.trials import tabulate_seeds
    from rankwise.training import Interrupted

    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # it would announce every process
    how = f"go on with: {shlex.join(['rankwise', 'train', *same, '--out', str(out), '--resume'])}"
    try:
        # While training goes on it takes signals itself; this is for what comes before and after.
        with (
            sigterm_like_ctrl_c(),
            progress_bar("loss {task.fields[loss]}  {task.fields[value]}  {task.fields[speed]}") as progress,
        ):
            runs = train(Shown(progress, problem.metric))
    except Interrupted as stopped:
        raise Stop(f"{stopped}; {how}", INTERRUPTED) from None
    except KeyboardInterrupt:
        raise Stop(f"stopped; the checkpoints saved before are intact; {how}", INTERRUPTED) from None
    except OSError as fault:
        if fault.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise Stop(f"the disk is full; the checkpoints saved before are intact; make room and {how}") from fault
        raise
    except RuntimeError as fault:
        if lost_a_process(fault):
            raise Stop(f"another process of this run has ended or hangs; {how}") from fault
        if "DataLoader worker" in str(fault):
            raise Stop(f"a worker process that reads the data has ended ({_first_line(fault)}); {how}") from fault
        raise
    if not is_first_process():
        return
    tests = [run.test for run in runs if run.test is not None]
    for run, test in zip(runs, tests, strict=True):
        result = {"seed": run.record["seed"], "history": run.history, "test": facts(test)}
        record_each("runs", {"folder": run.folder, **result})
    if len(runs) == 1:
        test = tests[0]
        baselines = runs[0].record.get("baselines", {})
        rows = [
            (
                name,
                f"{mean:.4f}",
                _interval(test.intervals.get(name)),
                *(f"{each[name]:.4f}" for each in baselines.values()),
            )
            for name, mean in test.means.items()
        ]
        print_table("Test part", ("metric", "mean", "95 % interval", *baselines), rows, numbers=True)
        print_paragraph(_weights_taken(runs[0]))
    else:
        means = {name: [test.means[name] for test in tests] for name in tests[0].means}
        columns, over_seeds = tabulate_seeds([run.record["seed"] for run in runs], means)
        print_table(f"Test part, mean over {len(runs)} seeds", ("metric", *columns), over_seeds, numbers=True)
        if find_spec("jinja2") is not None:
            from rankwise.report.seeds import write_seeds_report

            write_seeds_report(out / "report.html", str(out), runs, tests)
    for run in runs:
        name = "Validation" if len(runs) == 1 else f"Seed {run.record['seed']}"
        if curve := run.history.curve(problem.metric):
            print_paragraph(f"{name}: {problem.metric} {curve[0]:.3f} {sparkline(curve)} {curve[-1]:.3f}")
    if (left_out := getattr(runs[0].schema, "left_out", None)) and not inferred:
        reasons = "; ".join(f"{name} ({reason})" for name, reason in left_out.items())
        print_paragraph(f"Columns that are no features: {reasons}")
    print_paragraph(f"Run: {out}")
    if (out / "report.html").is_file():
        print_paragraph(f"Report: {out / 'report.html'}")
    print_paragraph(f"Use it: {_next_command(problem, runs[0].folder or out)}")


def _weights_taken(run: Run) -> str:
    """Say which weights the run ended with."""
    again, evaluation, metric = run.record.get("refit"), run.problem.evaluation, run.problem.metric
    if again is not None:
        said = f"Refitted to training and validation data for {again['steps']} steps"
        if evaluation.weights == "last":
            return f"{said}."
        return f"{said}; on validation step {again['chosen_step']} of {run.steps} was chosen by {metric}."
    if evaluation.weights == "last":
        return f"Weights of the last step, {len(run.history.losses)}."
    judged = "out of fold" if run.record.get("cross_validated") else "on validation"
    return f"Weights of step {run.history.best_step}, the best {judged} by {metric}."


def _next_command(problem: Problem[Any, Any], folder: Path) -> str:
    """Return the command that uses the run on new data."""
    quoted = shlex.quote(str(folder))
    commands = {
        "text-search": f"rankwise search {quoted} --queries queries.txt -k 10 --out found.csv",
        "recsys": f"rankwise recommend {quoted} --users users.csv -k 10 --out recommended.csv",
        "vectors": f"rankwise search {quoted} --queries new --gallery all -k 10 --out nearest.csv",
        "boxes": f"rankwise detect {quoted} --images folder --out boxes.json",
    }
    usual = f"rankwise predict {quoted} --data new.csv --out scores.csv"
    return commands.get(problem.kind) or commands.get(problem.outputs) or usual


def _show_inferred(inferred: Inferred) -> None:
    if not is_first_process():
        return
    record(inferred=[fact._asdict() for fact in inferred.facts])
    print_table("What was inferred", ("", "", "to change"), inferred.facts, numbers=False)


class Shown:
    """A progress bar with loss, metric, items per second and time left."""

    def __init__(self, progress: Progress, metric: str) -> None:
        self._progress, self._metric = progress, metric
        self._bar: TaskID | None = None
        self._since, self._rows, self._loss = monotonic(), 0, float("nan")

    def title(self, seed: int) -> str:
        """Return what the bar of a training is called."""
        return f"seed {seed}"

    def reads(self, path: Path, share: float) -> None:
        if self._bar is None:
            self._bar = self._progress.add_task(f"read {path.name}", total=1.0, loss="", value="", speed="")
        self._progress.update(self._bar, description=f"read {path.name}", completed=share)
        if not shows_progress() and monotonic() - self._since > READING_SAID_EVERY:
            self._since = monotonic()
            self.says(f"{path}: {share:.0%} read")

    def begins(self, seed: int, steps: int, done: int) -> None:
        if self._bar is not None:
            self._progress.remove_task(self._bar)
        if done and is_first_process():
            say(f"seed {seed}: going on after step {done} of {steps}")
        self._bar = self._progress.add_task(
            self.title(seed), total=steps, completed=done, loss="-", value="", speed="", start=True
        )
        self._since, self._rows = monotonic(), 0

    def step(self, step: Step) -> None:
        assert self._bar is not None
        self._rows, self._loss = self._rows + step.rows, step.loss
        speed = self._rows / max(monotonic() - self._since, 1e-9)
        self._progress.update(self._bar, completed=step.number, loss=f"{step.loss:.4g}", speed=f"{speed:,.0f} items/s")

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        assert self._bar is not None
        value = f"{self._metric} {metrics[self._metric]:.4f}"
        self._progress.update(self._bar, value=value)
        if not shows_progress():
            loss = f"loss {self._loss:.4g}, " if self._loss == self._loss else ""
            self.says(f"step {step}: {loss}validation {value}")

    def says(self, text: str) -> None:
        if is_first_process():
            say(text)


def _first_line(problem: Exception) -> str:
    return str(problem).strip().partition("\n")[0].rstrip(". ")


def _interval(bounds: tuple[float, float] | None) -> str:
    return "-" if bounds is None or bounds[0] != bounds[0] else f"{bounds[0]:.4f} to {bounds[1]:.4f}"
