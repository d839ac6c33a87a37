"""Refit: the chosen step, all training and validation data, and the same weights however often it was stopped."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch

import rankwise as rw
from rankwise.cli import main
from rankwise.data import Part, Split
from rankwise.problems import KINDS, Tabular, load_problem
from rankwise.runs import train_seeds
from rankwise.training import Interrupted, fit
from workers.kinds import write_kinds


def rows(count=300, seed=0):
    random = np.random.default_rng(seed)
    X = random.normal(size=(count, 4))
    return X, (X[:, 0] + 0.5 * random.normal(size=count) > 1).astype(int)


PROBLEM = Tabular(
    model={"ensemble": None},
    refit=True,
    batches={"size": 32, "positives": "random"},
    budget={"steps": 24},
    evaluation={"every": 4},
    checkpoints={"every": 3},
    optimiser={"learning_rate": 0.03},
)


def weights(run):
    return {name: value.clone() for name, value in run.model.state_dict().items()}


def assert_equal(left, right):
    assert left.keys() == right.keys()
    for name in left:
        assert torch.equal(left[name], right[name]), name


class Counter:
    """A watcher that sends Ctrl-C at a step of a phase (1 or 2)."""

    def __init__(self, phase=None, step=None):
        self.at, self.phase, self.begun = (phase, step), 0, []

    def begins(self, seed, steps, done):
        self.phase += 1
        self.begun.append((steps, done))

    def step(self, step):
        if (self.phase, step.number) == self.at:
            os.kill(os.getpid(), signal.SIGINT)

    def evaluation(self, step, metrics): ...

    def says(self, text): ...

    def reads(self, path, share): ...


@pytest.mark.parametrize("budget", [{"steps": 24}, {"epochs": 4}])
@pytest.mark.parametrize("kept", ["best", "last"])
def test_the_refit_is_the_training_on_both_parts_up_to_the_chosen_step(budget, kept):
    problem = PROBLEM.changed(budget=budget, evaluation={"every": 4, "weights": kept})
    run = rw.train(problem, train=rows())
    schema, split = problem.read({"train": rows()})
    cut = problem.cut(split, 0)
    both = cut.train.join(cut.validation)
    plain = problem.changed(refit=False, evaluation={"every": None, "weights": "last"})
    before = rw.train(problem.changed(refit=False), train=rows())
    chosen = before.history.best_step if kept == "best" else before.steps
    expected = fit(plain, schema, Split(both), seed=0, stop_after=chosen / before.steps)
    assert_equal(weights(run), expected.model.state_dict())
    assert run.history.metrics == before.history.metrics
    assert run.record["refit"]["chosen_step"] == chosen
    batches = len(both) // 32
    in_all = 24 if "steps" in budget else 4 * batches
    assert run.record["refit"]["steps"] == len(expected.history.losses) == round(chosen / before.steps * in_all)
    assert run.test.means == problem.evaluate(run.model, cut.test).means


def test_the_schedule_is_that_of_the_whole_budget():
    schema, split = PROBLEM.read({"train": rows()})
    cut, rates = PROBLEM.cut(split, 0), {}
    for share in (0.5, 1.0):
        steps = []
        fit(PROBLEM, schema, cut, stop_after=share, on_step=steps.append)
        rates[share] = [step.learning_rate for step in steps]
    assert rates[0.5] == rates[1.0][:12]


def test_the_test_part_changes_nothing():
    X, y = rows(seed=2)
    runs = [rw.train(PROBLEM, train=rows(), test=(X, labels)) for labels in (y, 1 - y)]
    assert_equal(weights(runs[0]), weights(runs[1]))
    assert runs[0].test.means != runs[1].test.means


@pytest.mark.parametrize("phase, step", [(1, 5), (2, 2), (2, 7)])
def test_a_run_that_was_stopped_goes_on_to_the_same_weights(phase, step, tmp_path):
    expected = rw.train(PROBLEM, train=rows(), out=tmp_path / "whole")
    assert expected.record["refit"]["steps"] > 7
    with pytest.raises(Interrupted, match=f"stopped after step {step}"):
        rw.train(PROBLEM, train=rows(), out=tmp_path / "run", watcher=Counter(phase, step))
    stopped = rw.load_run(tmp_path / "run")
    assert not stopped.finished
    again = Counter()
    run = rw.train(PROBLEM, train=rows(), out=tmp_path / "run", resume=True, watcher=again)
    assert again.begun[phase - 1][1] == step
    assert_equal(weights(run), weights(expected))
    assert rw.load_run(tmp_path / "run").finished
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert {**record["refit"], "seconds": 0} == {**expected.record["refit"], "seconds": 0}
    logs = [(tmp_path / name / "refit-log.csv").read_text() for name in ("whole", "run")]
    assert logs[0] == logs[1]


def test_until_the_refit_is_over_a_run_has_the_weights_chosen_on_validation(tmp_path):
    before = rw.train(PROBLEM.changed(refit=False), train=rows())
    with pytest.raises(Interrupted):
        rw.train(PROBLEM, train=rows(), out=tmp_path / "run", watcher=Counter(2, 7))
    stopped = rw.load_run(tmp_path / "run")
    assert_equal(weights(stopped), weights(before))
    assert stopped.history.metrics == before.history.metrics
    assert (
        sorted(path.name for path in (tmp_path / "run" / "checkpoints" / "refit").iterdir())[-1] == "step-00000007.pt"
    )


def test_a_refit_to_another_step_does_not_go_on_from_old_checkpoints(tmp_path):
    with pytest.raises(Interrupted):
        rw.train(PROBLEM, train=rows(), out=tmp_path / "run", watcher=Counter(2, 7))
    path = tmp_path / "run" / "run.json"
    record = json.loads(path.read_text())
    record["refit"]["chosen_step"] += 1
    path.write_text(json.dumps(record))
    again = Counter()
    run = rw.train(PROBLEM, train=rows(), out=tmp_path / "run", resume=True, watcher=again)
    assert again.begun[1][1] == 0
    assert_equal(weights(run), weights(rw.train(PROBLEM, train=rows())))


def test_a_refit_of_no_steps_has_the_weights_of_the_start():
    schema, split = PROBLEM.read({"train": rows()})
    cut = PROBLEM.cut(split, 0)
    plain = PROBLEM.changed(evaluation={"every": None, "weights": "last"})
    fitted = fit(plain, schema, cut, stop_after=0.0)
    assert fitted.history.losses == []
    torch.manual_seed(0)
    model = PROBLEM.build_model(schema)
    PROBLEM.fit_model(model, cut.train)
    assert_equal(fitted.model.state_dict(), model.state_dict())


def test_a_saved_run_remembers_its_refit(tmp_path):
    run = rw.train(PROBLEM, train=rows())
    run.save(tmp_path / "run")
    opened = rw.load_run(tmp_path / "run")
    assert opened.record["refit"] == run.record["refit"]
    assert opened.finished
    assert_equal(weights(opened), weights(run))


def test_seeds_are_refitted_each_by_its_own_choice():
    both = train_seeds(PROBLEM.changed(seeds=(0, 1)), sources={"train": rows()})
    for seed, run in enumerate(both):
        assert_equal(weights(run), weights(rw.train(PROBLEM.changed(seeds=(seed,)), train=rows())))


def test_the_program_says_what_was_refitted(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_kinds(tmp_path)
    assert main(["train", "tabular.yaml", "refit=true", "model.ensemble=null", "--out", "run"]) == 0
    record = json.loads((tmp_path / "run" / "run.json").read_text())["refit"]
    said = " ".join(capsys.readouterr().out.split())
    assert f"Refitted to training and validation data for {record['steps']} steps" in said
    assert f"step {record['chosen_step']} of 12 was chosen" in said
    page = (tmp_path / "run" / "report.html").read_text()
    assert "trained again from the same seed on training and validation data together" in page


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kinds")
    write_kinds(folder)
    return folder


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_kind_is_refitted_to_all_data_but_the_test_part(kind, kinds, monkeypatch):
    monkeypatch.chdir(kinds)
    # An ensemble of folds learns from the validation part at once.
    alone = ["model.ensemble=null"] if kind == "tabular" else []
    problem = load_problem(f"{kind}.yaml", ["refit=true", "budget={steps: 4}", "evaluation.every=2", *alone])
    _, split = problem.read({})
    cut = problem.cut(split, 0)
    train, validation, both = cut.train, cut.part("validation"), cut.train.join(cut.part("validation"))
    if kind == "recsys":
        assert torch.equal(both.known.dense(), validation.known.dense() + validation.labels.dense())
        assert torch.equal(both.known.dense(), both.labels.dense())
    else:
        assert len(both) == len(train) + len(validation)
        for number in (0, len(train) - 1, len(train), len(both) - 1):
            part, row = (train, number) if number < len(train) else (validation, number - len(train))
            assert torch.equal(both[number].features, part[row].features)
            assert torch.equal(both[number].labels, part[row].labels)
    run = train_seeds(problem)[0]
    assert run.record["refit"]["chosen_step"] in (0, 2, 4)
    assert run.test.means.keys() >= set(problem.measured)


def test_images_of_two_sources_are_joined():
    from rankwise.data import ArrayImages, ImagePart

    first, second = (ArrayImages(torch.full((3, 1, 4, 4), value, dtype=torch.uint8)) for value in (1, 2))
    parts = [ImagePart(source, torch.tensor([2, 0]), torch.tensor([0, 1]), ("a", "b")) for source in (first, second)]
    both = parts[0].join(parts[1])
    assert [int(both.picture(row).max()) for row in range(4)] == [1, 1, 2, 2]
    assert both.labels.tolist() == [0, 1, 0, 1]
    assert both.source.name(5) is None


@pytest.mark.parametrize(
    "first, second, ids, names",
    [
        ((None, [5, 5]), (None, [6, 7]), [5, 5, 6, 7], None),
        ((None, [5, 9]), (None, [9, 6]), [5, 9, 13, 10], None),
        ((("x", "y"), [0, 1]), (("x", "y"), [1, 1]), [0, 1, 1, 1], ("x", "y")),
        ((("x", "y"), [0, 1]), (("z",), [0, 0]), [0, 1, 2, 2], ("x", "y", "z")),
    ],
)
def test_lists_of_two_parts_stay_apart(first, second, ids, names):
    parts = [Part(torch.rand(2, 1), torch.ones(2), torch.tensor(own), called) for called, own in (first, second)]
    both = parts[0].join(parts[1])
    assert both.query_ids.tolist() == ids
    assert both.query_names == names
    assert replace(parts[0], query_ids=None).join(parts[1]).query_ids is None
