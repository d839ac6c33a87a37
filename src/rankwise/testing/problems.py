"""Contract of every kind of problem, executable."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch
from torch import Tensor

if TYPE_CHECKING:
    from rankwise.problems import Problem
    from rankwise.runs import Run

__all__ = ["check_problem"]

TOLERANCE = 1e-6
TRAINING_METHODS = ("train_loader", "build_loss", "training_step", "fit_model")


def check_problem(
    problem: Problem[Any, Any],
    sources: Mapping[str, Any],
    new: Any,
    *,
    same: Mapping[str, Any] | None = None,
    refused: Mapping[str, Any] | None = None,
    ignoring: Sequence[type[Warning]] = (),
) -> None:
    """Check a problem against the contract of its kind; raise AssertionError at the first breach.

    The contract: the same seed gives the same weights; a saved run gives the scores of the run in memory, every time,
    from any folder, without the training data, and without building a loader, a loss or an optimiser; a source that
    says the same in another form (`same`) gets the same scores; a source that lacks something (`refused`) raises a
    ValueError in one line and changes nothing; so does a run folder that is incomplete, damaged or of a newer format.

    Args:
        problem: short, of seconds.
        sources: data to train on by the name of their part.
        new: data to score.
        same: sources that must get the scores of `new`, by a name for the message: columns in another order, further
            columns, without labels.
        refused: sources that must be refused, by a name for the message: a column missing, doubled or of another type.
        ignoring: warnings that `same` sources may raise.

    Example:
        >>> import numpy as np
        >>> from rankwise.problems import Tabular
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(120, 3))
        >>> y = (X[:, 0] > 0.8).astype(int)
        >>> problem = Tabular(budget={"steps": 4}, evaluation={"every": 2})
        >>> check_problem(problem, {"train": (X, y)}, X, same={"labelled": (X, y)}, refused={"narrow": X[:, :2]})
    """
    from rankwise.runs import load_run, train_seeds

    with tempfile.TemporaryDirectory() as folder:
        first, second = (Path(folder, name) for name in ("first", "second"))
        run = train_seeds(problem, sources=sources, out=first)[0]
        again = train_seeds(problem, sources=sources, out=second)[0]
        _check_same_weights(run, again)
        expected = _scores(run, new)
        moved = Path(folder, "elsewhere", "moved")
        moved.parent.mkdir()
        shutil.move(first, moved)
        with _no_training(problem):
            opened = load_run(moved)
            for attempt in ("the saved run", "the saved run, asked again"):
                _require_close(_scores(opened, new), expected, attempt)
            _check_forms(opened, expected, same or {}, ignoring)
            for name, source in (refused or {}).items():
                _require_refused(partial(opened.predict, source), f"a source that is {name}")
            _require_close(_scores(opened, new), expected, "the saved run after refused sources")
        _check_damage(moved, Path(folder, "damaged"), load_run)


def _check_same_weights(run: Run, again: Run) -> None:
    left, right = run.model.state_dict(), again.model.state_dict()
    _require(left.keys() == right.keys(), "the same seed gave models of other weights")
    for name in left:
        _require(torch.equal(left[name], right[name]), f"the same seed gave other weights: {name}")


def _check_forms(run: Run, expected: Tensor, same: Mapping[str, Any], ignoring: Sequence[type[Warning]]) -> None:
    import warnings

    for name, source in same.items():
        with warnings.catch_warnings():
            for category in ignoring:
                warnings.simplefilter("ignore", category)
            _require_close(_scores(run, source), expected, f"the source {name!r}")


def _check_damage(run: Path, damaged: Path, load_run: Callable[[Path], Run]) -> None:
    for name in ("run.json", "schema.json"):
        with _copy(run, damaged):
            (damaged / name).unlink()
            _require_refused(lambda: load_run(damaged), f"a run without {name}")
        with _copy(run, damaged):
            (damaged / name).write_bytes((damaged / name).read_bytes()[:20])
            _require_refused(lambda: load_run(damaged), f"a run with half of {name}")
    with _copy(run, damaged):
        shutil.rmtree(damaged / "checkpoints")
        (damaged / "model.safetensors").unlink()
        _require_refused(lambda: load_run(damaged), "a run without weights")
    with _copy(run, damaged):
        (damaged / "model.safetensors").write_bytes((damaged / "model.safetensors").read_bytes()[:-8])
        _require_refused(lambda: load_run(damaged), "a run with damaged weights")
    with _copy(run, damaged):
        record = json.loads((damaged / "run.json").read_text())
        (damaged / "run.json").write_text(json.dumps({**record, "format": record["format"] + 1}))
        _require_refused(lambda: load_run(damaged), "a run of a newer format")


@contextmanager
def _copy(run: Path, damaged: Path) -> Iterator[None]:
    shutil.copytree(run, damaged)
    yield
    shutil.rmtree(damaged)


@contextmanager
def _no_training(problem: Problem[Any, Any]) -> Iterator[None]:
    """Raise an error inside the context if anything that only training needs is called."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("using a run called a method that only training needs")

    with ExitStack() as patches:
        for name in TRAINING_METHODS:
            patches.enter_context(patch.object(type(problem), name, refuse))
        yield


def _scores(run: Run, source: Any) -> Tensor:
    if run.problem.outputs != "boxes":
        return run.predict(source).outputs.double()
    boxes: Any = run.detect(source).boxes
    # All numbers of the boxes in one table.
    columns = [boxes.image, boxes.label, *boxes.corners.unbind(1), boxes.score]
    return torch.stack([column.double() for column in columns], 1)


def _require_close(scores: Tensor, expected: Tensor, what: str) -> None:
    _require(scores.shape == expected.shape, f"{what} gave {tuple(scores.shape)} scores, not {tuple(expected.shape)}")
    worst = float((scores - expected).abs().max()) if scores.numel() else 0.0
    _require(worst <= TOLERANCE, f"{what} gave other scores, by up to {worst:.3g}")


def _require_refused(call: Callable[[], object], what: str) -> None:
    try:
        call()
    except (ValueError, FileNotFoundError) as problem:
        _require("\n" not in str(problem) and str(problem) != "", f"{what} was refused in several lines: {problem}")
        return
    raise AssertionError(f"{what} was accepted")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)
