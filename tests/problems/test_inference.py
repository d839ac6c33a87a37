"""What is inferred from data alone, and where one option is asked for instead of guessing."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from rankwise.problems import BadRecipe, infer_problem
from workers.rows import write_queries, write_table


def write(folder, name="data.csv", **columns):
    rng = np.random.default_rng(0)
    rows = len(next(iter(columns.values())))
    pl.DataFrame({"x": rng.normal(size=rows), **columns}).write_csv(folder / name)
    return folder / name


def facts(inferred):
    return {fact.what: fact.value for fact in inferred.facts}


def test_a_label_by_its_name_and_the_rarer_class(tmp_path):
    path = write(tmp_path, flag=[row % 2 for row in range(60)], target=["no"] * 50 + ["yes"] * 10)
    inferred = infer_problem(path)
    assert inferred.problem.kind == "tabular"
    assert inferred.problem.data.label == "target"
    assert facts(inferred)["positive"].startswith("yes (the rarer class): 10 of 60 rows, 16.7 %")


def test_the_only_column_of_two_values(tmp_path):
    path = write(tmp_path, sick=[0] * 50 + [1] * 10)
    assert facts(infer_problem(path))["label"] == "sick (the only column of two values)"


def test_two_candidates_ask_for_the_label(tmp_path):
    path = write(tmp_path, sick=[0] * 50 + [1] * 10, old=[row % 2 for row in range(60)])
    with pytest.raises(BadRecipe, match=r"--label: expected the column to predict, .* candidates: sick, old"):
        infer_problem(path)
    assert infer_problem(path, label="old").problem.data.label == "old"


def test_three_classes_ask_for_the_positive_one(tmp_path):
    path = write(tmp_path, label=["a"] * 30 + ["b"] * 20 + ["c"] * 10)
    with pytest.raises(BadRecipe, match=r"--positive: .* 'label' has 3: a \(30 rows\), b \(20 rows\), c \(10 rows\)"):
        infer_problem(path)
    assert infer_problem(path, positive="c").problem.data.positive == "c"


def test_a_measurement_is_no_label(tmp_path):
    path = write(tmp_path, label=np.linspace(0, 1, 60))
    with pytest.raises(BadRecipe, match="got 'label' with 60 different numbers from 0 to 1; make it 0 and 1 first"):
        infer_problem(path)


def test_a_column_of_queries_makes_lists(tmp_path):
    path = write(tmp_path, qid=[row // 6 for row in range(60)], grade=[row % 3 for row in range(60)])
    inferred = infer_problem(path)
    assert inferred.problem.kind == "ltr"
    assert facts(inferred)["query"] == "qid: 10 lists"


@pytest.mark.parametrize("names", [("user_id", "movie_id", "timestamp"), ("customer", "product", "date")])
def test_users_and_items_are_ratings(tmp_path, names):
    user, item, time = names
    values = {user: [row % 8 for row in range(60)], item: [row * 7 % 20 for row in range(60)], time: range(60)}
    pl.DataFrame(values).write_csv(tmp_path / "clicks.csv")
    problem = infer_problem(tmp_path / "clicks.csv").problem
    assert (problem.kind, problem.data.leave_one_out, problem.data.time) == ("recsys", "time", time)


def test_ratings_without_names(tmp_path):
    lines = [f"{row % 8}\t{row * 7 % 20}\t{row % 5 + 1}\t{880000000 + row}" for row in range(60)]
    (tmp_path / "u.data").write_text("\n".join(lines))
    problem = infer_problem(tmp_path / "u.data").problem
    assert (problem.kind, problem.data.time) == ("recsys", 3)
    schema, _ = problem.read({})
    assert (len(schema.users), len(schema.items)) == (8, 20)


def test_changes_are_those_of_a_recipe(tmp_path):
    write_table(tmp_path / "rows.csv")
    assert infer_problem(tmp_path / "rows.csv", ["budget.steps=7", "loss=focal"]).problem.budget.steps == 7


def test_options_of_a_table_are_refused_elsewhere(tmp_path):
    write_queries(tmp_path / "queries.txt")
    with pytest.raises(BadRecipe, match="--label: expected for a table only"):
        infer_problem(tmp_path / "queries.txt", label="y")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadRecipe, match="expected a folder of ratings"):
        infer_problem(tmp_path / "empty")
