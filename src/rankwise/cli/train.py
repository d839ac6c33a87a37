"""`rankwise train`: run a recipe, show how it goes, say what came out."""

from __future__ import annotations

import errno
import logging
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from rich.progress import Progress, TaskID

from rankwise.cli.console import print_paragraph, print_table, progress_bar, say, shows_progress, sparkline
from rankwise.cli.machine import record_each
from rankwise.cli.scores import facts
from rankwise.cli.stop import INTERRUPTED, Stop, is_first_process, lost_a_process, sigterm_like_ctrl_c
from rankwise.extras import require

if TYPE_CHECKING:
    from rankwise.training import Step

__all__ = ["default_folder", "train"]


def default_folder(recipe: str) -> Path:
    """Where a run goes if nobody says where."""
    return Path("runs") / Path(recipe).stem


def train(recipe: str, changes: Sequence[str], out: Path, *, resume: bool) -> None:
    """Train, evaluate on the test part, print and write the results to `out`."""
    require("training", ("lightning_fabric", "pydantic", "yaml"), extra="train")
    from rankwise.problems import load_problem
    from rankwise.problems.trials import summarise
    from rankwise.runs import train_seeds
    from rankwise.training import Interrupted

    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # it would announce every process
    problem = load_problem(recipe, changes)
    how = f"go on with: {shlex.join(['rankwise', 'train', recipe, *changes, '--out', str(out), '--resume'])}"
    try:
        # While training goes on it takes signals itself; this is for what comes before and after.
        with (
            sigterm_like_ctrl_c(),
            progress_bar("loss {task.fields[loss]}  {task.fields[found]}  {task.fields[speed]}") as progress,
        ):
            runs = train_seeds(problem, out=out, resume=resume, watcher=_Shown(progress, problem.metric))
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
        rows = [(name, f"{mean:.4f}", _interval(test.intervals.get(name))) for name, mean in test.means.items()]
        print_table("Test part", ("metric", "mean", "95 % interval"), rows, numbers=True)
        best, again = runs[0].history.best_step, runs[0].record.get("refit")
        print_paragraph(
            f"Weights of step {best}, the best on validation by {problem.metric}."
            if again is None
            else f"Refitted to training and validation data for {again['steps']} steps; on validation step "
            f"{again['chosen_step']} of {runs[0].steps} was chosen by {problem.metric}."
        )
    else:
        rows = []
        for name in tests[0].means:
            summary = summarise([test.means[name] for test in tests])
            rows.append((name, f"{summary.mean:.4f}", _interval((summary.low, summary.high))))
        title = f"Test part, mean over {len(runs)} seeds"
        print_table(title, ("metric", "mean", "95 % interval over seeds"), rows, numbers=True)
    for run in runs:
        curve = run.history.curve(problem.metric)
        name = "Validation" if len(runs) == 1 else f"Seed {run.record['seed']}"
        print_paragraph(f"{name}: {problem.metric} {curve[0]:.3f} {sparkline(curve)} {curve[-1]:.3f}")
    print_paragraph(f"Run: {out}")
    if (out / "report.html").is_file():
        print_paragraph(f"Report: {out / 'report.html'}")


class _Shown:
    """A progress bar with loss, metric, items per second and time left."""

    def __init__(self, progress: Progress, metric: str) -> None:
        self._progress, self._metric = progress, metric
        self._bar: TaskID | None = None
        self._since, self._rows, self._loss = monotonic(), 0, float("nan")

    def begins(self, seed: int, steps: int, done: int) -> None:
        if self._bar is not None:
            self._progress.remove_task(self._bar)
        if done and is_first_process():
            say(f"seed {seed}: going on after step {done} of {steps}")
        self._bar = self._progress.add_task(
            f"seed {seed}", total=steps, completed=done, loss="-", found="", speed="", start=True
        )
        self._since, self._rows = monotonic(), 0

    def step(self, step: Step) -> None:
        assert self._bar is not None
        self._rows, self._loss = self._rows + step.rows, step.loss
        speed = self._rows / max(monotonic() - self._since, 1e-9)
        self._progress.update(self._bar, completed=step.number, loss=f"{step.loss:.4g}", speed=f"{speed:,.0f} items/s")

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        assert self._bar is not None
        found = f"{self._metric} {metrics[self._metric]:.4f}"
        self._progress.update(self._bar, found=found)
        if not shows_progress():
            loss = f"loss {self._loss:.4g}, " if self._loss == self._loss else ""
            self.says(f"step {step}: {loss}validation {found}")

    def says(self, text: str) -> None:
        if is_first_process():
            say(text)


def _first_line(problem: Exception) -> str:
    return str(problem).strip().partition("\n")[0].rstrip(". ")


def _interval(bounds: tuple[float, float] | None) -> str:
    return "-" if bounds is None or bounds[0] != bounds[0] else f"{bounds[0]:.4f} to {bounds[1]:.4f}"
