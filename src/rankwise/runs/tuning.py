"""Tune a problem: search its options on the validation part, compare the best with the default on the test part."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import torch
from filelock import FileLock, Timeout
from torch import Tensor

from rankwise.checks import check_count, check_positive
from rankwise.data import Split
from rankwise.data.files import report_reading
from rankwise.extras import require
from rankwise.files import write_whole
from rankwise.metrics import Comparison, compare, compare_items
from rankwise.problems.load import change_problem, dump_problem
from rankwise.problems.problem import Problem
from rankwise.problems.spaces import Space, make_spaces, option_of
from rankwise.runs.folder import fingerprints, write_table
from rankwise.runs.run import Run
from rankwise.runs.training import Silent, resolve_problem, train_seeds
from rankwise.training import Step, fit, make_fabric
from rankwise.training.history import Watcher

require("tuning", ("optuna", "sklearn"), extra="tune")

import optuna  # noqa: E402

from rankwise.runs.study import Study, Trial  # noqa: E402

__all__ = ["TuneWatcher", "Tuned", "tune"]

# Seconds between two looks whether another process is done with the default.
POLL = 0.2
RECORD, BEST, TRIALS, REPORT = "tune.json", "best.yaml", "trials.csv", "report.html"
# They change nothing in the results.
_IRRELEVANT = ("device", "checkpoints", "logs")
# What a training raises if its options do not work: a loss that is not finite, a batch larger than memory.
_FAULTS = (ValueError, ArithmeticError, RuntimeError)


class TuneWatcher(Watcher, Protocol):
    """Receives the progress of a tuning: that of each training, and the trials."""

    def trial_begins(self, number: int, options: Mapping[str, Any]) -> None:
        """Show the start of a trial."""

    def trial_ends(self, trial: Trial, best: Trial | None, done: int) -> None:
        """Show the end of a trial; `best` is the best so far and `done` the number of all that are over."""


class _Silent(Silent):
    def trial_begins(self, number: int, options: Mapping[str, Any]) -> None: ...

    def trial_ends(self, trial: Trial, best: Trial | None, done: int) -> None: ...


@dataclass(frozen=True)
class Tuned:
    """The outcome of a tuning.

    Attributes:
        problem: with the best options on the validation part; those of the recipe if no trial was better.
        trials: those that are over; best, default: two of them.
        spaces: what was searched, by key.
        importance: share of the variance of the values that each option explains, the largest first; empty with few
            trials.
        folder: of the tuning.
        comparison: of the best (a) with the default (b) on the test part, over queries or items, of the mean over
            seeds; None if the default is the best, the metric has no values to pair, or another process is at work.
        runs: by "default" and "best", one per seed; empty if another process is at work.
        tested: numbers of all trials that were ever judged on the test part.
    """

    problem: Problem[Any, Any]
    trials: tuple[Trial, ...]
    best: Trial
    default: Trial
    spaces: dict[str, Space]
    importance: dict[str, float]
    folder: Path
    comparison: Comparison | None = None
    runs: dict[str, list[Run]] = field(default_factory=dict, repr=False)
    tested: tuple[int, ...] = ()


def tune(
    problem: Problem[Any, Any] | str | Path,
    *,
    out: str | Path,
    train: Any = None,
    validation: Any = None,
    test: Any = None,
    label: str | None = None,
    query: str | None = None,
    positive: str | None = None,
    task: str | None = None,
    trials: int | None = None,
    minutes: float | None = None,
    spaces: Mapping[str, Space | str | None] | None = None,
    seeds: int = 5,
    watcher: TuneWatcher | None = None,
) -> Tuned:
    """Search the options of a problem by Optuna, and train the best beside the default.

    Every trial trains with the first seed of the problem on the same training part and is judged by the first metric on
    the validation part, which also prunes it (median rule). The first trial is the problem as it is. The test part is
    used once, at the end: the best and the default are trained with several seeds, on the same cut of the data, and
    compared there.

    All trials are kept in the folder. The same call goes on with them, after Ctrl-C as after a crash, and several
    processes may make it at the same time; the last to end compares.

    Args:
        problem: what to tune; or the path of a recipe; or the path of data, from which the problem is inferred.
        out: the folder: `trials.csv`, `best.yaml` (a recipe), `report.html`, and the runs of the comparison.
        train, validation, test: data by part, see `train_seeds`.
        label, query, positive, task: for the path of data, see `infer_problem`.
        trials: how many the folder is to hold in the end.
        minutes: how long this call starts and continues trials; the comparison comes after that. This or `trials` or
            both must be given.
        spaces: by key, a space or its text such as "log:1e-4:1e-1" (see `parse_space`), besides or instead of the
            default ones; None leaves an option as it is.
        seeds: with how many to train in the end, if the problem has one only.
        watcher: receives the progress.

    Example:
        >>> import numpy as np, tempfile
        >>> from rankwise.problems import Tabular
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(120, 2))
        >>> y = (X[:, 0] + rng.normal(size=120) > 1).astype(int)
        >>> short = Tabular(budget={"steps": 4}, evaluation={"every": 2}, model={"ensemble": None})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     tuned = tune(short, train=(X, y), out=folder, trials=2, seeds=2)
        >>> len(tuned.trials), tuned.trials[0].default
        (2, True)
    """
    options = {"label": label, "query": query, "positive": positive, "task": task}
    problem = resolve_problem(problem, {name: value for name, value in options.items() if value is not None})
    if trials is None and minutes is None:
        raise ValueError("trials, minutes: expected one or both, got none")
    if trials is not None:
        check_count("trials", trials)
    if minutes is not None:
        check_positive("minutes", minutes)
    check_count("seeds", seeds, least=2)
    if problem.device.devices > 1:
        raise ValueError(
            f"device.devices: expected 1 in each of the processes that tune, got {problem.device.devices}; start "
            "several with the same folder instead"
        )
    watcher = watcher or _Silent()
    search = make_spaces(problem, spaces or {})
    sources = {"train": train, "validation": validation, "test": test}
    given = {name: source for name, source in sources.items() if source is not None}
    folder = Path(out)
    data = fingerprints(problem, given)
    with report_reading(watcher.reads):
        schema, split = problem.read(given)
    seed = problem.seeds[0]
    cut = problem.cut(split, seed)
    _begin(folder, _make_record(problem, search, data, cut))
    # The trials never see the test part.
    known = Split(cut.train, cut.part("validation"))
    warmup = problem.evaluation.every or 0
    study = Study(folder, search, {key: option_of(problem, key) for key in search}, warmup=warmup)
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    with study.at_work():
        _Search(problem, schema, known, study, deadline, watcher).run(trials)
    while _default_of(study.trials()) is None:
        if study.alone:
            raise RuntimeError(f"{folder}: the process that tried the default has ended; the same call tries it again")
        time.sleep(POLL)
    return _conclude(problem, study, search, folder, given, seeds, seed, watcher)


class _OutOfTime(Exception):
    """The time is up while a trial goes on."""


class _Search:
    """The trials that one process runs."""

    def __init__(
        self,
        problem: Problem[Any, Any],
        schema: Any,
        split: Split[Any],
        study: Study,
        deadline: float | None,
        watcher: TuneWatcher,
    ) -> None:
        self._problem, self._schema, self._split, self._study = problem, schema, split, study
        self._deadline, self._watcher = deadline, watcher
        self._fabric = make_fabric(problem.device)

    def run(self, most: int | None) -> None:
        """Run trials until the folder holds so many, or the time is up."""
        # At least one: the first process begins with the default, without which there is nothing to compare with.
        first = True
        while (first or not self._time_is_up()) and (asked := self._study.ask(most)) is not None:
            first = False
            trial, options = asked
            try:
                ended = self._try(trial, options)
            except BaseException:
                self._study.put_back(trial)
                raise
            over = self._study.trials()
            self._watcher.trial_ends(ended, _best_of(over), len(over))

    def _try(self, trial: optuna.Trial, options: dict[str, Any]) -> Trial:
        started, value, reason = time.monotonic(), None, ""
        default = "default" in trial.user_attrs
        self._watcher.trial_begins(trial.number, options)
        try:
            value = self._measure(trial, self._problem if default else change_problem(self._problem, options))
        except (optuna.TrialPruned, _OutOfTime):
            pass
        except _FAULTS as fault:
            if default:  # the recipe itself does not work
                raise
            reason = " ".join(str(fault).split())
        return self._study.end(trial, value, seconds=time.monotonic() - started, reason=reason)

    def _measure(self, trial: optuna.Trial, problem: Problem[Any, Any]) -> float:
        """Train, and return the metric on the validation part."""
        default, metric, seed = "default" in trial.user_attrs, problem.metric, problem.seeds[0]

        def on_step(step: Step) -> None:
            self._watcher.step(step)
            if not default and self._time_is_up():
                raise _OutOfTime

        def on_evaluation(step: int, metrics: dict[str, float]) -> None:
            self._watcher.evaluation(step, metrics)
            trial.report(metrics[metric], step)
            if not default and trial.should_prune():
                raise optuna.TrialPruned

        fitted = fit(
            problem,
            self._schema,
            self._split,
            seed=seed,
            fabric=self._fabric,
            on_start=lambda steps, done: self._watcher.begins(seed, steps, done),
            on_step=on_step,
            on_evaluation=on_evaluation,
        )
        problem.complete_model(fitted.model, self._split)
        value = problem.evaluate(fitted.model.eval(), self._split.part("validation")).means[metric]
        if value != value:
            raise ValueError(
                f"data: expected a validation part in which {metric} is defined, got one in which it is not"
            )
        return value

    def _time_is_up(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline


def _conclude(
    problem: Problem[Any, Any],
    study: Study,
    spaces: dict[str, Space],
    folder: Path,
    given: Mapping[str, Any],
    seeds: int,
    seed: int,
    watcher: TuneWatcher,
) -> Tuned:
    """Write the best options; unless another process is at work, train and compare them, and write the page."""
    over = study.trials()
    best, default = _best_of(over), _default_of(over)
    # The default is complete: it is never pruned, and raises if it fails.
    assert best is not None
    assert default is not None
    chosen = problem if best.default else change_problem(problem, best.options)
    tuned = Tuned(chosen, tuple(over), best, default, spaces, study.importance(), folder)
    write_whole(folder / BEST, dump_problem(chosen).encode())
    write_table(folder / TRIALS, _columns(over, list(spaces)))
    last = FileLock(folder / ".comparison.lock", timeout=0)
    try:
        if not study.alone:
            raise Timeout(str(folder))
        last.acquire()
    except Timeout:
        watcher.says(f"{folder}: another process is at work there; the last to end compares the best with the default")
        return tuned
    with last:
        names = problem.seeds if len(problem.seeds) > 1 else tuple(range(seed, seed + seeds))
        contenders = {"default": (problem, "default")}
        if not best.default:
            contenders["best"] = (chosen, f"trial-{best.number}")
        runs = {}
        for name, (each, below) in contenders.items():
            watcher.says(f"{name}: training with {len(names)} seeds")
            runs[name] = train_seeds(
                each.changed(seeds=names),
                sources=given,
                out=folder / below,
                resume=True,
                watcher=watcher,
                cut_seed=seed,
            )
        comparison = None if best.default else _compare(problem.metric, runs["best"], runs["default"])
        tested = _note_tested(folder, best.number)
        tuned = Tuned(chosen, tuple(over), best, default, spaces, tuned.importance, folder, comparison, runs, tested)
        if find_spec("jinja2") is None:
            watcher.says("no report.html, which needs jinja2: pip install 'rankwise[report]'")
        else:
            from rankwise.report import write_report
            from rankwise.report.tuning import tuning_report

            write_report(folder / REPORT, tuning_report(tuned, problem))
    return tuned


def _compare(metric: str, best: Sequence[Run], default: Sequence[Run]) -> Comparison | None:
    """Compare runs on the same test part: the mean over seeds of each query, or of each draw of the items."""
    shown = [[run.inspect(bootstrap=0) for run in runs] for runs in (best, default)]
    first = shown[0][0]
    if len(first.evaluation.query_ids) > 1 and metric in first.evaluation.per_query:
        a, b = (torch.stack([each.evaluation.per_query[metric] for each in runs]).mean(0) for runs in shown)
        return compare(a, b, metric=metric)
    if first.scores is None or first.scores.ndim != 1:
        return None
    scores = [torch.stack([each.scores for each in runs if each.scores is not None]) for runs in shown]
    return compare_items(scores[0], scores[1], best[0].part("test").labels, metric)


def _best_of(trials: Sequence[Trial]) -> Trial | None:
    """Return the complete trial with the largest value; of equal ones the first, so that the default stays."""
    complete = [each for each in trials if each.state == "complete" and each.value is not None]
    return max(complete, key=lambda each: (each.value, each.default, -each.number), default=None)


def _default_of(trials: Sequence[Trial]) -> Trial | None:
    return next((each for each in trials if each.default), None)


def _columns(trials: Sequence[Trial], keys: Sequence[str]) -> dict[str, list[Any]]:
    """Return the trials as columns of a table."""
    columns: dict[str, list[Any]] = {
        name: [getattr(each, name) for each in trials] for name in ("number", "state", "value", "seconds", "reason")
    }
    for key in keys:
        columns[key] = [each.options.get(key, "") for each in trials]
    return columns


def _make_record(
    problem: Problem[Any, Any], spaces: Mapping[str, Space], data: Mapping[str, str], cut: Split[Any]
) -> dict[str, Any]:
    """Return what the trials of a folder have in common; data in memory are known by their sizes and labels."""
    recipe = {"task": problem.kind, **problem.model_dump(mode="json", exclude=set(_IRRELEVANT))}
    parts = {name: _describe(cut.part(name)) for name in ("train", "validation", "test")}
    searched = {key: str(space) for key, space in spaces.items()}
    return {"recipe": recipe, "spaces": searched, "data": dict(data), "parts": parts}


def _describe(part: Any) -> str:
    labels = getattr(part, "labels", None)
    digest = hashlib.sha256(labels.cpu().numpy().tobytes()).hexdigest()[:12] if isinstance(labels, Tensor) else ""
    return f"{len(part)} rows {digest}".strip()


def _begin(folder: Path, record: dict[str, Any]) -> None:
    """Write what is tuned to a new folder; refuse one of another tuning."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / RECORD
    with FileLock(folder / ".study.lock"):
        if not path.is_file():
            write_whole(path, json.dumps(record, indent=2).encode())
            return
    before = json.loads(path.read_text(encoding="utf-8"))
    for name, now in record.items():
        changed = sorted(key for key in {*now, *before[name]} if now.get(key) != before[name].get(key))
        if changed:
            raise ValueError(
                f"{folder}: cannot go on with the trials there; {name}: {', '.join(changed)} changed since; "
                "write to another folder"
            )


def _note_tested(folder: Path, number: int) -> tuple[int, ...]:
    """Add a trial to those that were judged on the test part; return all of them."""
    record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    tested = [*record.get("tested", ()), *([] if number in record.get("tested", ()) else [number])]
    write_whole(folder / RECORD, json.dumps({**record, "tested": tested}, indent=2).encode())
    return tuple(tested)
