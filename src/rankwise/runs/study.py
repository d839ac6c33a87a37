"""The trials of a tuning: kept by Optuna in a file of its folder, shared by all processes that work on it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import optuna
from filelock import FileLock, Timeout
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from rankwise.problems.spaces import Choice, Space

__all__ = ["Study", "Trial"]

JOURNAL = "trials.journal"
_NAME = "rankwise"
# No trial is pruned before so many are complete, nor before its second evaluation.
_TRIALS_BEFORE_PRUNING = 5
_STATES: dict[TrialState, Literal["complete", "pruned", "failed"]] = {
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
}


@dataclass(frozen=True)
class Trial:
    """One trial that is over.

    Attributes:
        number: in the order of their starts.
        state: "complete", "pruned" (ended early, as its validation curve lay below the median) or "failed".
        value: the metric on the validation part; of a pruned trial at its last evaluation; None if it failed.
        options: what it tried, by key; those left out are as in the recipe.
        curve: steps and values of its evaluations.
        seconds: from start to end.
        default: whether it trained the recipe as it is.
        reason: why it failed.
    """

    number: int
    state: Literal["complete", "pruned", "failed"]
    value: float | None
    options: dict[str, Any]
    curve: tuple[tuple[int, float], ...]
    seconds: float
    default: bool = False
    reason: str = ""


class Study:
    """The trials in a folder, as one of the processes that work on it sees them.

    Every process holds a lock while it works, so that the others know which of the trials that have begun are still
    going. What a process left unfinished is tried again.
    """

    def __init__(self, folder: Path, spaces: Mapping[str, Space], default: Mapping[str, Any], *, warmup: int) -> None:
        """Open the study of a folder, or start one whose first trial is the default.

        Args:
            folder: exists.
            spaces: to search, by key.
            default: what the recipe says for these keys.
            warmup: steps before which no trial is pruned.
        """
        self._folder, self._spaces = folder, dict(spaces)
        self._lock = FileLock(folder / ".study.lock")
        storage = JournalStorage(JournalFileBackend(str(folder / JOURNAL)))
        with _quiet(), self._lock:
            self._study = optuna.create_study(
                storage=storage,
                study_name=_NAME,
                direction="maximize",
                load_if_exists=True,
                pruner=optuna.pruners.MedianPruner(n_startup_trials=_TRIALS_BEFORE_PRUNING, n_warmup_steps=warmup),
            )
            self.worker = int(self._study.user_attrs.get("workers", 0))
            self._study.set_user_attr("workers", self.worker + 1)
            # Another seed for each: the same would draw the same options.
            self._study.sampler = optuna.samplers.TPESampler(seed=self.worker, constant_liar=True)
            if not self._study.get_trials(deepcopy=False):
                within = [key for key, space in self._spaces.items() if space.contains(default[key])]
                known = {key: _encode(self._spaces[key], default[key]) for key in within}
                self._study.enqueue_trial(known, user_attrs={"default": within})

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Show the other processes, while entered, that this one is at work."""
        with self._lock_of(self.worker):
            yield

    @property
    def alone(self) -> bool:
        """Return whether no other process is at work."""
        workers = range(int(self._study.user_attrs["workers"]))
        return not any(map(self._is_at_work, workers))

    def trials(self) -> list[Trial]:
        """Return the trials that are over."""
        return [self._read(each) for each in self._study.get_trials(deepcopy=False) if _is_over(each)]

    def ask(self, most: int | None) -> tuple[optuna.Trial, dict[str, Any]] | None:
        """Return a new trial and the options that it is to try, by key; None if so many are over or going on.

        Of the default these are the options that the spaces contain.
        """
        with _quiet(), self._lock:
            counted = 0
            for each in self._study.get_trials(deepcopy=False):
                if each.state == TrialState.RUNNING and not self._is_at_work(each.user_attrs.get("worker")):
                    self._try_again(each)
                else:
                    counted += _is_over(each) or each.state == TrialState.RUNNING
            if most is not None and counted >= most:
                return None
            trial = self._study.ask()
            trial.set_user_attr("worker", self.worker)
            keys = trial.user_attrs.get("default", self._spaces)
            return trial, {key: _suggest(trial, key, self._spaces[key]) for key in keys}

    def end(self, trial: optuna.Trial, value: float | None, *, seconds: float, reason: str = "") -> Trial:
        """Note how a trial ended: with a value, pruned (None), or, with a reason, failed."""
        trial.set_user_attr("seconds", round(seconds, 2))  # a trial without it is not over
        if reason:
            trial.set_user_attr("reason", reason)
        state = TrialState.FAIL if reason else TrialState.PRUNED if value is None else TrialState.COMPLETE
        with _quiet():
            ended = self._study.tell(trial, value if state == TrialState.COMPLETE else None, state=state)
        return self._read(ended)

    def put_back(self, trial: optuna.Trial) -> None:
        """Leave a trial, which was interrupted, to be tried again."""
        with _quiet(), self._lock:
            self._try_again(self._study.get_trials(deepcopy=False)[trial.number])

    def importance(self) -> dict[str, float]:
        """Return the share of the variance of the values that each option explains (fANOVA), the largest first.

        Complete trials count only. Empty if there are fewer than four, or all have the same value.
        """
        keys = set(self._spaces)
        complete = [
            each
            for each in self._study.get_trials(deepcopy=False)
            if each.state == TrialState.COMPLETE and set(each.params) == keys
        ]
        if len(complete) < 4 or len({each.value for each in complete}) < 2:
            return {}
        with _quiet():
            alike = optuna.create_study(direction="maximize")
            alike.add_trials(complete)
            evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
            shares = optuna.importance.get_param_importances(alike, evaluator=evaluator)
        return {key: float(share) for key, share in shares.items()}

    def _try_again(self, trial: FrozenTrial) -> None:
        again = {key: value for key, value in trial.user_attrs.items() if key == "default"}
        self._study.tell(trial.number, state=TrialState.FAIL)
        self._study.enqueue_trial(trial.params, user_attrs=again)

    def _lock_of(self, worker: int) -> FileLock:
        return FileLock(self._folder / f".worker-{worker}.lock", timeout=0)

    def _is_at_work(self, worker: int | None) -> bool:
        """Return whether another process is at work."""
        if worker is None or worker == self.worker:
            return False
        lock = self._lock_of(worker)
        try:
            lock.acquire()
        except Timeout:
            return True
        lock.release()
        return False

    def _read(self, trial: FrozenTrial) -> Trial:
        state = _STATES[trial.state]
        curve = tuple(sorted(trial.intermediate_values.items()))
        options = {key: _decode(self._spaces[key], value) for key, value in trial.params.items()}
        last = curve[-1][1] if curve and state == "pruned" else None
        attributes = trial.user_attrs
        return Trial(
            trial.number,
            state,
            trial.value if state == "complete" else last,
            options,
            curve,
            attributes["seconds"],
            "default" in attributes,
            attributes.get("reason", ""),
        )


def _is_over(trial: FrozenTrial) -> bool:
    """Return whether a trial came to an end of its own; one that was interrupted did not."""
    return trial.state.is_finished() and "seconds" in trial.user_attrs


def _suggest(trial: optuna.Trial, key: str, space: Space) -> Any:
    if isinstance(space, Choice):
        texts = [_encode(space, value) for value in space.values]
        return _decode(space, trial.suggest_categorical(key, texts))
    if space.scale == "int":
        return trial.suggest_int(key, int(space.low), int(space.high))
    return trial.suggest_float(key, space.low, space.high, log=space.scale == "log")


def _encode(space: Space, value: Any) -> Any:
    """Return a value as Optuna keeps it: choices, which may be lists, as JSON."""
    return json.dumps(value) if isinstance(space, Choice) else value


def _decode(space: Space, value: Any) -> Any:
    return json.loads(value) if isinstance(space, Choice) else value


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Optuna's notes, which the progress shows already, from the terminal."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
