"""A run with several seeds is trained, evaluated, compared and reported as one."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from rankwise.cli import main
from workers.rows import write_all, write_table


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Runs with two and with four seeds, of two losses, and what was printed."""
    folder = tmp_path_factory.mktemp("seeds")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_all(folder)
        for name, seeds, loss in (
            ("two", [0, 1], "soprc"),
            ("four", [0, 1, 2, 3], "soprc"),
            ("usual", [0, 1, 2, 3], "cross-entropy"),
        ):
            assert main(["train", "rows.yaml", f"seeds={seeds}", f"loss={loss}", "budget.steps=5", "--out", name]) == 0
    return folder


@pytest.fixture
def folder(trained, tmp_path, monkeypatch):
    shutil.copytree(trained, tmp_path / "runs")
    monkeypatch.chdir(tmp_path / "runs")
    return tmp_path / "runs"


def means(path):
    return json.loads((path / "test.json").read_text())["means"]["ap"]


def line(out, start):
    return next(each.split() for each in out.splitlines() if each.startswith(start))


def test_two_seeds_are_listed_as_what_they_are(folder, capsys):
    assert main(["train", "rows.yaml", "seeds=[0, 1]", "budget.steps=5", "--out", "again"]) == 0
    out = capsys.readouterr().out
    values = [means(folder / "again" / f"seed-{seed}") for seed in (0, 1)]
    assert line(out, "ap")[1:] == [f"{value:.4f}" for value in (sum(values) / 2, *values)]
    assert "interval" not in out
    assert "Report: again/report.html" in out


def test_the_interval_of_four_seeds_lies_within_the_range_of_the_metric(folder, capsys):
    for run in ("seed-0", "seed-1", "seed-2", "seed-3"):
        result = json.loads((folder / "four" / run / "test.json").read_text())
        assert 0 <= result["means"]["ap"] <= 1
    assert main(["evaluate", "four", "--metric", "ap"]) == 0
    out = capsys.readouterr().out
    assert "95 % interval over seeds" in " ".join(out.split())
    _, mean, low, _, high, *_ = line(out, "ap ")
    assert 0 <= float(low) <= float(mean) <= float(high) <= 1


def test_a_run_with_several_seeds_is_evaluated_as_one(folder, capsys):
    values = [means(folder / "two" / f"seed-{seed}") for seed in (0, 1)]
    assert main(["evaluate", "two", "--metric", "ap"]) == 0
    assert line(capsys.readouterr().out, "ap ")[1:] == [f"{value:.4f}" for value in (sum(values) / 2, *values)]
    write_table(folder / "new.csv", rows=100, seed=5)
    assert main(["evaluate", "two", "--data", "new.csv", "--metric", "ap", "--report", "new.html"]) == 0
    together = line(capsys.readouterr().out, "ap ")[2:]
    for seed in (0, 1):
        assert main(["evaluate", f"two/seed-{seed}", "--data", "new.csv", "--metric", "ap"]) == 0
        assert line(capsys.readouterr().out, "ap ")[1] == together[seed]
        assert together[seed] in (folder / "new.html").read_text()
    assert main(["evaluate", "two", "--scores-out", "scores.csv"]) == 2
    assert "two/seed-0" in capsys.readouterr().err


def test_the_numbers_of_several_seeds_are_there_for_programs(folder, capsys):
    assert main(["evaluate", "two", "--metric", "ap", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["seed"] for each in found["seeds"]] == [0, 1]
    assert [each["metrics"]["ap"]["mean"] for each in found["seeds"]] == [
        means(folder / "two" / f"seed-{seed}") for seed in (0, 1)
    ]


@pytest.mark.parametrize("first, second", [("usual", "four"), ("four", "usual")])
def test_runs_with_several_seeds_are_compared_as_one(folder, capsys, first, second):
    assert main(["compare", first, second, "--report", "both.html"]) == 0
    out = capsys.readouterr().out
    gaps = [means(folder / second / f"seed-{seed}") - means(folder / first / f"seed-{seed}") for seed in range(4)]
    shown = line(out, f"{second} ")
    assert float(shown[2]) == pytest.approx(sum(gaps) / 4, abs=1e-4)
    better = sum(gap > 0 for gap in gaps)
    assert re.search(rf"{better} / \d / \d$", " ".join(shown))
    assert "seeds" in out
    assert f"{second}, seed 3" in (folder / "both.html").read_text()


def test_the_differences_of_few_seeds_are_listed(folder, capsys):
    shutil.copytree(folder / "two", folder / "copy")
    assert main(["compare", "two", "copy"]) == 0
    out = capsys.readouterr().out
    assert line(out, "copy ")[2:] == ["+0.0000", "+0.0000", "+0.0000"]
    assert "interval" not in out


def test_runs_of_other_seeds_are_not_compared(folder, capsys):
    assert main(["compare", "two", "four"]) == 2
    assert "four: expected the seeds of two (0, 1), got 0, 1, 2, 3" in capsys.readouterr().err
    assert main(["compare", "two", "four/seed-0"]) == 2
    assert "four/seed-0: expected the seeds of two (0, 1), got one without seeds" in capsys.readouterr().err


def test_a_run_with_several_seeds_has_one_report(folder, capsys):
    for page in folder.glob("two/**/report.html"):
        page.unlink()
    assert main(["report", "two"]) == 0
    assert "Report: two/report.html" in capsys.readouterr().out
    text = (folder / "two" / "report.html").read_text()
    for seed in (0, 1):
        assert f"{means(folder / 'two' / f'seed-{seed}'):.4f}" in text
        assert f"seed-{seed}/report.html" in text
        assert (folder / "two" / f"seed-{seed}" / "report.html").is_file()
    assert main(["report", "two", "--out", "elsewhere.html"]) == 0
    assert (folder / "elsewhere.html").is_file()
