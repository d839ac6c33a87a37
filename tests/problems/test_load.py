"""Recipes: what they may say, and what is said when they are wrong."""

from __future__ import annotations

import pytest

from rankwise.problems import BadRecipe, dump_problem, load_problem, make_problem
from rankwise.problems.load import KINDS, library

BASE = {"task": "tabular", "data": {"train": "cells.csv"}}

# A recipe's content or changes to BASE, and what is said.
WRONG = [
    ([], "recipe: expected keys and values, got a list"),
    ("text", "recipe: expected keys and values, got text"),
    ({}, "task: missing; expected one of tabular"),
    ({"task": "tabul"}, "task: unknown task 'tabul'; did you mean 'tabular'?"),
    (["los.prior=1"], "los: unknown key; did you mean 'loss'?"),
    (["data.lable=class"], "data.lable: unknown key; did you mean 'label'? (known: cache, categories, drop, features"),
    (["data.train=7"], "data.train: expected a file, got 7"),
    (["data.validation=1.5"], "data.validation: expected a file, or a share of the rows between 0 and 1, got 1.5"),
    (["data.missing=drop"], "data.missing: expected 'auto', 'error' or 'median', got 'drop'"),
    (["loss=soprcc"], "loss.name: unknown loss 'soprcc'; did you mean 'soprc'?"),
    (["loss.priorr=0.1"], "loss: auprc (soprc) has no option 'priorr'; did you mean 'prior'?"),
    (["loss.prior=2"], "loss: prior: expected a number in (0, 1), got 2"),
    (["loss.tau=wide"], "loss: tau: expected a number, got 'wide'"),
    (["loss.prior={start: 0.5, stop: 0.1}"], "loss: prior: unknown key 'stop'"),
    (["loss.add=[{name: semi-variance, positif: 3}]"], "loss.add.0: semi-variance has no option 'positif'"),
    (["model.hidden=[64, wide]"], "model.hidden.1: expected a whole number, got 'wide'"),
    (["model.hidden=64"], "model.hidden: expected a list, got 64"),
    (["batches.size=0"], "batches.size: expected a number of at least 1, got 0"),
    (["optimiser.name=adam"], "optimiser.name: expected 'adamw' or 'sgd', got 'adam'"),
    (["optimiser.learning_rate=-1"], "optimiser.learning_rate: expected a number of more than 0, got -1"),
    (["optimiser.nesterov=3"], "optimiser.nesterov: expected true or false, got 3"),
    (["schedule.name=linear"], "schedule.name: expected 'cosine', 'steps' or 'constant', got 'linear'"),
    (["budget.steps=many"], "budget.steps: expected a whole number, got 'many'"),
    (["budget.steps=true"], "budget.steps: expected a number or a name, got True"),
    (["data.label=no"], "data.label: expected a number or a name, got False; put yes, no, on, off in quotes"),
    (["seeds=[1, true]"], "seeds: expected a number or a name, got True"),
    (["optimiser.learning_rate=.inf"], "optimiser.learning_rate: expected a finite number, got inf"),
    (["budget={steps: 5, epochs: 5}"], "budget: expected steps or epochs, one of the two"),
    (["metrics=ap"], "metrics: expected a list, got 'ap'"),
    (["metrics=[]"], "metrics: expected at least one, got []"),
    (["metrics=[app]"], "metrics: unknown metric 'app'; did you mean 'ap'?"),
    (["evaluation.every=0"], "evaluation.every: expected a number of at least 1, got 0"),
    (["device.precision=fp16"], 'device: precision: expected "32", "64" or "bf16" on the CPU, got "fp16"'),
    (["seeds=[1, 1]"], "seeds: expected different numbers, got [1, 1]"),
    (["seeds=3"], "seeds: expected a list, got 3"),
    (["nonsense"], "change 'nonsense': expected key=value, such as loss.prior=0.05"),
    (["=3"], "change '=3': expected key=value"),
    (["task.name=3"], "change 'task.name=3': 'task' holds text, not further keys"),
    (["loss.prior=[1"], "change 'loss.prior=[1', line 1, column 3: "),
    (["budget.steps=0", "seeds=3"], "budget.steps: expected a number of at least 1, got 0 (and 1 more)"),
]


@pytest.mark.parametrize("given, message", WRONG, ids=lambda value: str(value)[:40])
def test_a_wrong_recipe_is_refused_with_the_key_and_what_was_expected(given, message):
    is_changes = isinstance(given, list) and given
    with pytest.raises(BadRecipe) as caught:
        make_problem(BASE, given) if is_changes else make_problem(given)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_changes_are_applied_to_what_the_file_says():
    problem = make_problem(BASE, ["loss.prior=0.3", "budget.epochs=2", "data.drop=[a, b]", "seeds=[4, 5]"])
    assert problem.loss.name == "soprc"
    assert problem.loss.options == {"prior": 0.3}
    assert problem.budget.in_steps(10) == 20
    assert problem.data.drop == ("a", "b")
    assert problem.seeds == (4, 5)


def test_names_that_yaml_takes_for_true_and_false_can_be_quoted():
    assert make_problem(BASE, ['data.label="no"', "refit=on"]).data.label == "no"


def test_a_loss_may_be_a_name_alone_or_a_sum():
    short = make_problem(BASE, ["loss=cross-entropy"])
    assert (short.loss.name, short.loss.options) == ("cross-entropy", {})
    both = make_problem(BASE, ["loss={name: soprc, prior: 0.2, add: [{name: semi-variance, positive: 3}]}"])
    assert both.loss.options == {"prior": 0.2}
    assert [(each.name, each.options) for each in both.loss.add] == [("semi-variance", {"positive": 3})]
    assert type(both.loss.create()).__name__ == "SumLoss"


@pytest.mark.parametrize("changes", [[], ["loss={name: soprc, prior: data}"], ["loss.prior={start: 0.5, end: 0.1}"]])
def test_a_written_recipe_reads_back_as_itself(changes, tmp_path):
    problem = make_problem(BASE, changes)
    path = tmp_path / "recipe.yaml"
    path.write_text(dump_problem(problem))
    assert load_problem(path) == problem


@pytest.mark.parametrize(
    "name, message",
    [
        ("nothing.yaml", "recipe: no file 'nothing.yaml'"),
        ("some/where", "recipe: no file 'some/where'"),
        ("mammografy", "did you mean 'mammography'?"),
        (".", "recipe: '.' is a folder; expected a YAML file or a name"),
    ],
)
def test_a_recipe_that_is_not_there(name, message):
    with pytest.raises(BadRecipe) as caught:
        load_problem(name)
    assert message in str(caught.value)


def test_broken_yaml_is_located(tmp_path):
    path = tmp_path / "broken.yaml"
    path.write_text("task: tabular\ndata: {train: x.csv\nloss: soprc\n")
    with pytest.raises(BadRecipe, match=r"broken\.yaml, line 3, column"):
        load_problem(path)


def test_yaml_cannot_run_code(tmp_path):
    path = tmp_path / "evil.yaml"
    path.write_text("task: !!python/object/apply:os.mkdir ['pwned']\n")
    with pytest.raises(BadRecipe, match="could not determine a constructor"):
        load_problem(path)


@pytest.mark.parametrize("name", library())
def test_every_recipe_of_the_library_is_valid_once_its_data_are_given(name):
    problem = load_problem(name)
    assert problem.kind in KINDS


def test_a_renamed_key_is_migrated_with_a_warning():
    with pytest.warns(FutureWarning, match="recipe: 'place' is now called 'device'"):
        problem = make_problem(BASE, ["place.precision=bf16"])
    assert problem.device.precision == "bf16"


def test_training_data_that_are_not_named_are_asked_for():
    with pytest.raises(ValueError, match=r"data\.train: missing; give it in the recipe or on the command line"):
        make_problem({"task": "tabular"}).read({})
