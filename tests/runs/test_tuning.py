"""`rankwise.tune`: trials see the validation part only, survive every end, and the best meets the default."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rankwise
from rankwise.problems import Tabular, load_problem
from rankwise.problems.spaces import Range
from rankwise.runs import load_run
from rankwise.runs.study import Study, Trial
from rankwise.runs.training import Silent
from rankwise.runs.tuning import Tuned, tune
from rankwise.training import Step
from workers.patience import PATIENCE

PROBLEM = Tabular(
    budget={"steps": 4},
    evaluation={"every": 2},
    model={"ensemble": None, "hidden": [4]},
    batches={"size": 16},
    optimiser={"weight_decay": 0.0},
    refit=False,
)
SPACES = {"model.hidden": "choice:[[4], [8]]", "loss.update_rate": None}


def rows(seed: int, count: int = 120) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    X = random.normal(size=(count, 3))
    return X, (X[:, 0] + random.normal(size=count) > 0.8).astype(int)


def do(folder: Path, trials: int = 3, problem: Tabular = PROBLEM, **options: Any) -> Tuned:
    given = {"train": rows(0), "test": rows(1), "spaces": SPACES, **options}
    return tune(problem, out=folder, trials=trials, seeds=2, **given)


class Watching(Silent):
    """Notes the trials, and may end the process, as it were, in one of them."""

    def __init__(self, stop_in: int | None = None) -> None:
        self.stop_in, self.trial = stop_in, -1
        self.begun: list[dict[str, Any]] = []
        self.ended: list[Trial] = []

    def trial_begins(self, number: int, options: Mapping[str, Any]) -> None:
        self.trial = number
        self.begun.append(dict(options))

    def trial_ends(self, trial: Trial, best: Trial | None, done: int) -> None:
        self.ended.append(trial)
        assert best is not None
        assert done == len(self.ended)

    def step(self, step: Step) -> None:
        if self.trial == self.stop_in:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    return do(tmp_path_factory.mktemp("tuned"), trials=6)


def test_the_first_trial_is_the_recipe_as_it_is(tuned: Tuned) -> None:
    assert [trial.default for trial in tuned.trials] == [True, *[False] * 5]
    first = tuned.trials[0]
    assert first.options["model.hidden"] == [4]
    assert "optimiser.weight_decay" not in first.options  # 0 is not in a logarithmic range
    assert [step for step, _ in first.curve] == [0, 2, 4]


def test_options_stay_within_their_spaces(tuned: Tuned) -> None:
    for trial in tuned.trials[1:]:
        assert set(trial.options) == set(tuned.spaces)
        assert all(tuned.spaces[key].contains(value) for key, value in trial.options.items())
    assert len({str(trial.options) for trial in tuned.trials}) == 6


def test_the_best_is_the_best_on_validation(tuned: Tuned) -> None:
    complete = [trial for trial in tuned.trials if trial.state == "complete"]
    assert tuned.best.value == max(trial.value for trial in complete if trial.value is not None)
    assert tuned.default.value == tuned.default.curve[1 + int(np.argmax([v for _, v in tuned.default.curve[1:]]))][1]


def test_the_best_recipe_can_be_loaded_and_is_what_was_trained(tuned: Tuned) -> None:
    loaded = load_problem(tuned.folder / "best.yaml")
    assert loaded == tuned.problem
    below = "default" if tuned.best.default else f"trial-{tuned.best.number}"
    run = load_run(tuned.folder / below / "seed-1")
    assert run.problem.optimiser == loaded.optimiser
    assert run.problem.model == loaded.model


def test_all_runs_of_the_comparison_have_the_test_part_of_the_tuning(tmp_path: Path) -> None:
    X, y = rows(0)
    path = tmp_path / "table.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(
            [["a", "b", "c", "y"], *([*map(float, x), int(each)] for x, each in zip(X, y, strict=True))]
        )
    tuned = tune(PROBLEM.changed(data={"train": path}), out=tmp_path / "out", trials=1, seeds=2)
    parts = [run.part("test").features for run in tuned.runs["default"]]
    assert torch.equal(parts[0], parts[1])
    opened = [load_run(tmp_path / "out" / "default" / f"seed-{seed}") for seed in (0, 1)]
    assert torch.equal(opened[1].part("test").features, parts[0])
    first, second = (next(iter(run.model.parameters())) for run in opened)
    assert not torch.equal(first, second)


def test_the_comparison_is_of_the_means_over_seeds(tuned: Tuned) -> None:
    if tuned.best.default:
        pytest.fail("the fixture must have a better trial than the default to compare")
    comparison = tuned.comparison
    assert comparison is not None
    for name, mean in (("best", comparison.mean_a), ("default", comparison.mean_b)):
        values = [run.test.means["ap"] for run in tuned.runs[name] if run.test is not None]
        assert mean == pytest.approx(sum(values) / 2)
    low, high = comparison.interval
    assert low < comparison.difference < high


def test_the_page_and_the_table_have_every_trial(tuned: Tuned) -> None:
    page = (tuned.folder / "report.html").read_text(encoding="utf-8")
    for said in (
        "What mattered",
        "The options",
        "optimiser.learning_rate",
        "0 (default)",
        "The largest of many values",
    ):
        assert said in page
    with (tuned.folder / "trials.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [int(row["number"]) for row in table] == list(range(6))
    assert table[0]["model.hidden"] == "[4]"


def test_importance_is_of_the_searched_options(tuned: Tuned) -> None:
    assert set(tuned.importance) == set(tuned.spaces)
    assert sum(tuned.importance.values()) == pytest.approx(1)


def test_no_trial_sees_the_test_part(tuned: Tuned, tmp_path: Path) -> None:
    X, y = rows(1)
    watcher = Watching(stop_in=2)
    with pytest.raises(KeyboardInterrupt):
        do(tmp_path, 3, test=(X, 1 - y), watcher=watcher)
    for other, own in zip(watcher.ended, tuned.trials, strict=False):
        assert other.curve == own.curve
        assert other.value == own.value
    assert len(watcher.ended) == 2


def test_a_trial_that_was_interrupted_is_tried_again_and_the_others_are_kept(tmp_path: Path) -> None:
    first, second = Watching(stop_in=1), Watching()
    with pytest.raises(KeyboardInterrupt):
        do(tmp_path, 2, watcher=first)
    assert len(first.ended) == 1
    second.ended = list(first.ended)
    tuned = do(tmp_path, 2, watcher=second)
    assert second.begun == [first.begun[1]]
    assert [trial.number for trial in tuned.trials] == [0, 2]
    assert tuned.trials[0] == first.ended[0]


def test_another_recipe_data_or_spaces_are_refused(tuned: Tuned) -> None:
    for changes, said in (
        ({"problem": PROBLEM.changed(budget={"steps": 5})}, "recipe: budget changed"),
        ({"train": rows(5)}, "parts: train, validation changed"),
        ({"spaces": {**SPACES, "loss.tau": None}}, "spaces: loss.tau changed"),
    ):
        with pytest.raises(ValueError, match=f"cannot go on with the trials there; {said}"):
            do(tuned.folder, 6, **changes)


def test_a_trial_that_fails_is_noted_and_the_search_goes_on(tmp_path: Path) -> None:
    spaces = {**SPACES, "optimiser.learning_rate": "log:1e30:1e37"}
    watcher = Watching()
    tuned = do(tmp_path, 3, spaces=spaces, watcher=watcher)
    assert [trial.state for trial in tuned.trials] == ["complete", "failed", "failed"]
    assert "finite number" in tuned.trials[1].reason
    assert tuned.best.default
    assert tuned.problem == PROBLEM
    assert tuned.comparison is None
    assert list(tuned.runs) == ["default"]
    assert "No trial was better than the default" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_recipe_that_fails_ends_the_tuning(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"batches\.size: expected at most"):
        do(tmp_path, problem=PROBLEM.changed(batches={"size": 1000}))


@pytest.mark.parametrize(
    "options, said",
    [
        ({"trials": None}, "trials, minutes: expected one or both, got none"),
        ({"trials": 0}, "trials: expected"),
        ({"minutes": 0}, "minutes: expected"),
        ({"problem": PROBLEM.changed(device={"devices": 2})}, "device.devices: expected 1"),
        ({"label": "y"}, "label: expected with the path of data"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_written(options: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        do(tmp_path / "new", **options)
    assert not (tmp_path / "new").exists()


def test_the_time_ends_the_search_but_not_the_default(tmp_path: Path) -> None:
    tuned = do(tmp_path, trials=None, minutes=1e-9)
    assert [trial.state for trial in tuned.trials] == ["complete"]


class TestStudy:
    def study(self, folder: Path) -> Study:
        return Study(folder, {"x": Range(0.1, 10.0)}, {"x": 1.0}, warmup=1)

    def test_a_trial_far_below_the_others_is_pruned(self, tmp_path: Path) -> None:
        study = self.study(tmp_path)
        for value in (0.5, 0.5, 0.6, 0.6, 0.7):
            trial, _ = study.ask(None) or pytest.fail("no trial")
            for step in (0, 1, 2):
                trial.report(value, step)
                assert not trial.should_prune()
            study.end(trial, value, seconds=1)
        trial, _ = study.ask(None) or pytest.fail("no trial")
        trial.report(0.1, 0)
        assert not trial.should_prune()  # before its second evaluation
        trial.report(0.1, 1)
        assert trial.should_prune()
        ended = study.end(trial, None, seconds=1)
        assert (ended.state, ended.value) == ("pruned", 0.1)

    def test_a_process_that_is_gone_leaves_its_trial_to_the_others(self, tmp_path: Path) -> None:
        gone, other = self.study(tmp_path), self.study(tmp_path)
        _, options = gone.ask(None) or pytest.fail("no trial")
        with other.at_work():
            trial, again = other.ask(1) or pytest.fail("no trial")
            assert again == options == {"x": 1.0}
            assert "default" in trial.user_attrs
            other.end(trial, 0.5, seconds=1)
            assert other.ask(1) is None
        assert [each.number for each in other.trials()] == [1]

    def test_trials_of_processes_at_work_count(self, tmp_path: Path) -> None:
        one, other = self.study(tmp_path), self.study(tmp_path)
        with one.at_work():
            assert one.ask(2) is not None
            assert not other.alone
            second = other.ask(2)
            assert second is not None
            assert second[1] != {"x": 1.0}
            assert other.ask(1) is None
        assert other.alone

    def test_each_process_draws_other_options(self, tmp_path: Path) -> None:
        drawn = []
        for _ in range(3):
            study = self.study(tmp_path)
            trial, options = study.ask(None) or pytest.fail("no trial")
            study.end(trial, 0.5, seconds=1)
            drawn.append(options["x"])
        assert len(set(drawn)) == 3


@pytest.mark.slow
def test_two_processes_share_the_trials_and_compare_once(tmp_path: Path) -> None:
    X, y = rows(0)
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    program = f"""
import numpy as np, rankwise
from rankwise.problems import Tabular
saved = np.load({str(tmp_path / "rows.npz")!r})
problem = Tabular(budget={{"steps": 100}}, evaluation={{"every": 50}}, model={{"ensemble": None}}, refit=False)
tuned = rankwise.tune(problem, train=(saved["X"], saved["y"]), out={str(tmp_path / "out")!r}, trials=10, seeds=2)
print(len(tuned.trials), bool(tuned.runs))
"""
    processes = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=PATIENCE) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    told = sorted(output.split()[1] for output, _ in outputs)
    assert told.count("True") >= 1
    # Whoever comes later sees all of them, and the comparison of the others.
    tuned = rankwise.tune(
        Tabular(budget={"steps": 100}, evaluation={"every": 50}, model={"ensemble": None}, refit=False),
        train=(X, y),
        out=tmp_path / "out",
        trials=10,
        seeds=2,
    )
    assert len(tuned.trials) == 10
    assert sum(trial.default for trial in tuned.trials) == 1
    assert tuned.tested == (tuned.best.number,)
