"""`rankwise evaluate` and `compare`: files of scores and runs, by hand-checked figures."""

from __future__ import annotations

import numpy as np
import pytest

from rankwise.cli import main
from workers.rows import write_all, write_table


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path, columns):
    rows = zip(*columns.values(), strict=True)
    path.write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n")


def many_queries(folder, name, noise, seed=0):
    random = np.random.default_rng(seed)
    labels = (random.random((60, 12)) < 0.3).astype(int)
    labels[:, 0] = 1
    scores = labels + noise * np.random.default_rng(seed + 1).normal(size=labels.shape)
    queries = np.repeat([f"q{i}" for i in range(60)], 12)
    groups = np.repeat(["web", "mail"], 360)
    write(folder / name, {"score": scores.ravel(), "label": labels.ravel(), "query": queries, "group": groups})


def test_a_file_of_scores_is_measured(folder, capsys):
    write(folder / "s.csv", {"score": [0.9, 0.8, 0.7, 0.6], "label": [1, 0, 1, 0]})
    assert main(["evaluate", "s.csv", "--metric", "ap", "--metric", "recall@1"]) == 0
    out = capsys.readouterr().out
    assert "ap         0.8333" in out
    assert "recall@1   0.5000" in out
    assert "tied items are one threshold" in out


def test_groups_get_a_table_of_their_own(folder, capsys):
    many_queries(folder, "s.csv", noise=0.5)
    assert main(["evaluate", "s.csv"]) == 0
    out = capsys.readouterr().out
    assert "By group" in out
    assert all(any(line.startswith(name) and " 30 " in line for line in out.splitlines()) for name in ("web", "mail"))


def test_grades_are_measured_by_ndcg_and_as_relevant_or_not(folder, capsys):
    write(folder / "s.csv", {"score": [0.9, 0.5, 0.1], "grade": [2, 0, 1]})
    assert main(["evaluate", "s.csv", "--metric", "ndcg", "--metric", "ap"]) == 0
    out = capsys.readouterr().out
    assert _mean(out, "ndcg") == "0.9639"
    assert _mean(out, "ap") == "0.8333"


def test_compare_tells_a_better_model_from_luck(folder, capsys):
    many_queries(folder, "good.csv", noise=0.4)
    many_queries(folder, "bad.csv", noise=1.5)
    many_queries(folder, "same.csv", noise=0.4)
    assert main(["compare", "bad.csv", "good.csv", "--metric", "ap"]) == 0
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if line.startswith("good.csv"))
    difference, p = float(row.split()[2]), float(row.split()[6])
    assert difference > 0.1
    assert p < 0.001
    assert out.count("group") == 2
    assert main(["compare", "good.csv", "same.csv", "--metric", "ap"]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("same.csv"))
    assert "+0.0000" in row
    assert "0 / 60 / 0" in row


def test_rows_are_matched_by_id(folder, capsys):
    random = np.random.default_rng(0)
    labels = (random.random(300) < 0.2).astype(int)
    scores = labels + random.normal(size=300)
    order = random.permutation(300)
    write(folder / "a.csv", {"id": range(300), "score": scores, "label": labels})
    write(folder / "b.csv", {"id": order, "score": scores[order], "label": labels[order]})
    assert main(["compare", "a.csv", "b.csv", "--metric", "ap"]) == 0
    assert "+0.0000" in capsys.readouterr().out
    write(folder / "c.csv", {"score": scores[order], "label": labels[order]})
    assert main(["compare", "a.csv", "c.csv"]) == 2
    assert "c.csv: expected the labels of the first, got another in row" in capsys.readouterr().err


def test_a_run_is_measured_on_its_test_part_and_on_other_data(folder, capsys):
    write_all(folder)
    assert main(["train", "rows.yaml", "budget.steps=20"]) == 0
    said = _mean(capsys.readouterr().out, "ap")
    assert main(["evaluate", "runs/rows"]) == 0
    assert _mean(capsys.readouterr().out, "ap") == said
    write_table(folder / "new.csv", rows=100, seed=5)
    (folder / "rows.csv").unlink()  # the training data are not needed
    assert main(["evaluate", "runs/rows", "--data", "new.csv", "--scores-out", "new-scores.csv"]) == 0
    on_new = _mean(capsys.readouterr().out, "ap")
    assert main(["evaluate", "new-scores.csv"]) == 0
    assert _mean(capsys.readouterr().out, "ap") == on_new
    assert len((folder / "new-scores.csv").read_text().splitlines()) == 101


def test_runs_are_compared(folder, capsys):
    write_all(folder)
    for loss in ("song", "squared-error"):
        assert main(["train", "queries.yaml", f"loss={loss}", "warm_up=", "--out", loss]) == 0
    capsys.readouterr()
    assert main(["compare", "squared-error", "song", "--metric", "ndcg@5"]) == 0
    out = capsys.readouterr().out
    assert "paired permutation test" in out
    assert any(line.startswith("song ") and " / " in line for line in out.splitlines())


def test_runs_of_retrieval_are_compared_by_query(folder, capsys):
    random = np.random.default_rng(0)
    classes = np.repeat(np.arange(12), 15)
    features = random.normal(size=(12, 6))[classes] + random.normal(size=(180, 6))
    write(folder / "r.csv", {**{f"x{i}": features[:, i] for i in range(6)}, "class": [f"c{c}" for c in classes]})
    (folder / "r.yaml").write_text(
        "task: retrieval\ndata: {train: r.csv}\nbatches: {classes: 6}\nbudget: {steps: 20}\nevaluation: {every: 20}\n"
    )
    for rate in (0.01, 0.0001):
        assert main(["train", "r.yaml", f"optimiser.learning_rate={rate}", "--out", f"r{rate}"]) == 0
    capsys.readouterr()
    assert main(["compare", "r0.0001", "r0.01"]) == 0
    assert "on how many lists it is better, equal, worse" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["evaluate", "nothing.csv"], "nothing.csv"),
        (["evaluate", "s.csv", "--metric", "app"], "did you mean 'ap'?"),
        (["evaluate", "s.csv", "--score", "scor"], "did you mean 'score'?"),
        (["evaluate", "."], "got no run.json in it"),
        (["evaluate", "s.csv", "--data", "s.csv"], "expected the folder of a run"),
        (["compare", "s.csv"], "expected two or more"),
        (["compare", "s.csv", "short.csv"], "expected the 4 items of the first, got 3"),
        (["compare", "s.csv", "."], "got no test-scores.csv"),
        (["evaluate", "text.csv"], "text.csv"),
    ],
)
def test_wrong_input_gives_exit_code_2_and_one_line(folder, capsys, arguments, message):
    write(folder / "s.csv", {"score": [0.9, 0.8, 0.7, 0.6], "label": [1, 0, 1, 0]})
    write(folder / "short.csv", {"score": [0.9, 0.8, 0.7], "label": [1, 0, 1]})
    write(folder / "text.csv", {"score": ["high", "low"], "label": [1, 0]})
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("rankwise: ")
    assert err.count("\n") == 1
    assert message in err


def _mean(out, metric):
    return next(line.split()[1] for line in out.splitlines() if line.split()[:1] == [metric])
