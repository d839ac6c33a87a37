"""`rankwise tune`: search options, show the trials, say whether the best are better than the default."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import Progress

from rankwise.cli.console import print_paragraph, print_table, progress_bar, record, say, shows_progress
from rankwise.cli.main import INTERRUPTED, Stop, sigterm_like_ctrl_c
from rankwise.cli.train import Shown, default_folder, load_or_infer
from rankwise.extras import require

if TYPE_CHECKING:
    from rankwise.problems import Problem
    from rankwise.runs.study import Trial
    from rankwise.runs.tuning import Tuned

__all__ = ["tune"]


def tune(
    what: str,
    changes: Sequence[str],
    out: Path | None,
    *,
    trials: int | None,
    minutes: float | None,
    spaces: Sequence[str],
    seeds: int,
    options: Mapping[str, str | None],
) -> None:
    """Run a tuning and print the results, which are in the folder `out`.

    Args:
        what, changes, options: see `rankwise.cli.train.train`.
        out: the folder; by default runs/NAME-tuned.
        trials, minutes, seeds: see `rankwise.runs.tuning.tune`.
        spaces: `key=space` each, or `key=fixed`.
    """
    require("tuning", ("lightning_fabric", "pydantic", "yaml", "optuna", "sklearn"), extra="train,tune")
    from rankwise.runs.tuning import tune
    from rankwise.training import Interrupted

    searched = dict(_parse(each) for each in spaces)
    problem, _ = load_or_infer(what, changes, options)
    usual = default_folder(what)
    folder = usual.with_name(f"{usual.name}-tuned") if out is None else out
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # it would announce every training
    try:
        with (
            sigterm_like_ctrl_c(),
            progress_bar("loss {task.fields[loss]}  {task.fields[value]}  {task.fields[speed]}") as progress,
        ):
            watcher = _Trials(progress, problem.metric, trials)
            tuned = tune(
                problem, out=folder, trials=trials, minutes=minutes, spaces=searched, seeds=seeds, watcher=watcher
            )
    except (KeyboardInterrupt, Interrupted):
        raise Stop(f"stopped; {folder} keeps the trials; the same command goes on", INTERRUPTED) from None
    _show(tuned, problem)


def _parse(given: str) -> tuple[str, str | None]:
    key, sign, text = given.partition("=")
    if not sign or not key.strip():
        raise ValueError(f"--space: expected key=space, such as optimiser.learning_rate=log:1e-4:1e-1, got {given!r}")
    return key.strip(), None if text.strip() == "fixed" else text


def _show(tuned: Tuned, problem: Problem[Any, Any]) -> None:
    from rankwise.problems.spaces import option_of
    from rankwise.report.tuning import verdict

    metric, best, default = problem.metric, tuned.best, tuned.default
    record(
        folder=tuned.folder,
        trials=[vars(each) for each in tuned.trials],
        best=best.number,
        importance=tuned.importance,
        comparison=None if tuned.comparison is None else tuned.comparison.to_dict(),
    )
    rows = [
        (
            key,
            _shown(option_of(problem, key)),
            _shown(option_of(tuned.problem, key)),
            str(space),
            f"{tuned.importance[key]:.0%}" if key in tuned.importance else "-",
        )
        for key, space in tuned.spaces.items()
    ]
    print_table("Options", ("", "default", "best", "searched", "share"), rows, numbers=False)
    print_paragraph("share: of the variance of the trials' values that an option explains; -: not known.\n")
    counts = ", ".join(
        f"{sum(each.state == state for each in tuned.trials)} {state}" for state in ("complete", "pruned", "failed")
    )
    print_paragraph(
        f"Validation, {len(tuned.trials)} trials ({counts}): {metric} {default.value:.4f} by default, "
        f"{best.value:.4f} at best (trial {best.number}), which is too good by luck: the largest of many."
    )
    if tuned.runs:
        if tuned.comparison is not None:
            each = tuned.comparison
            low, high = each.interval
            cells = (f"{each.difference:+.4f}", f"{low:+.4f} to {high:+.4f}", f"{each.p_value:.3g}")
            table = [("default", f"{each.mean_b:.4f}", "", "", ""), ("best", f"{each.mean_a:.4f}", *cells)]
            title = f"Test part: {metric}, mean over {len(tuned.runs['best'])} seeds"
            print_table(title, ("", "mean", "difference", "95 % interval", "p"), table, numbers=True)
        print_paragraph(verdict(tuned, metric))
    print_paragraph(f"Best recipe: {tuned.folder / 'best.yaml'}")
    if tuned.runs and (tuned.folder / "report.html").is_file():
        print_paragraph(f"Report: {tuned.folder / 'report.html'}")
    print_paragraph(f"Use it: rankwise train {tuned.folder / 'best.yaml'}")


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


class _Trials(Shown):
    """Bars of the trials and of the training that goes on; a line per trial where there is no terminal."""

    def __init__(self, progress: Progress, metric: str, trials: int | None) -> None:
        super().__init__(progress, metric)
        self._trial: int | None = None
        self._all = progress.add_task("trials", total=trials, loss="", value="", speed="")

    def title(self, seed: int) -> str:
        return super().title(seed) if self._trial is None else f"trial {self._trial}"

    def trial_begins(self, number: int, options: Mapping[str, Any]) -> None:
        self._trial = number

    def trial_ends(self, trial: Trial, best: Trial | None, done: int) -> None:
        self._trial = None
        told = "" if best is None else f"best {self._metric} {best.value:.4f} (trial {best.number})"
        self._progress.update(self._all, completed=done, value=told)
        if trial.state == "failed":
            say(f"trial {trial.number} failed: {trial.reason}")
        elif not shows_progress():
            say(f"trial {trial.number}: {trial.state}, {self._metric} {trial.value:.4f}; {told}")

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        if self._trial is None or shows_progress():
            super().evaluation(step, metrics)
