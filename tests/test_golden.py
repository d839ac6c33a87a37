"""The golden runs: the same data every time, and a comparison that sees every change."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def golden():
    pytest.importorskip("PIL")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "scripts")
        import golden

        yield golden
        for name in ("golden", "golden_data"):
            del sys.modules[name]


@pytest.fixture(scope="module")
def runs(golden, tmp_path_factory):
    """Two folders, each with the same two recipes trained."""
    folders = [tmp_path_factory.mktemp("golden") / name for name in ("before", "after")]
    for folder in folders:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder.parent)
            assert golden.main(["run", str(folder), "--only", "ltr-letor", "tabular-seeds"]) == 0
    return folders


@pytest.fixture
def changed(runs, tmp_path):
    """A copy of the second folder, to be changed."""
    shutil.copytree(runs[1], tmp_path / "changed")
    return tmp_path / "changed"


def change_best(folder, change):
    path = folder / "runs" / "ltr-letor" / "checkpoints" / "best.pt"
    state = torch.load(path, weights_only=True)
    state["model"] = change(state["model"])
    torch.save(state, path)


def test_data_are_the_same_every_time(golden, tmp_path):
    written = []
    for name in ("first", "second"):
        golden.write_data(tmp_path / name)
        files = sorted(path for path in (tmp_path / name).rglob("*") if path.is_file())
        written.append({str(path.relative_to(tmp_path / name)): path.read_bytes() for path in files})
    assert written[0] == written[1]
    named = {part for part in json.dumps(golden.RECIPES).split('"') if part.startswith("data/")}
    assert all((tmp_path / "first" / name.removeprefix("data/")).exists() for name in named)


def test_features_are_exact_in_float32(golden, tmp_path):
    golden.write_data(tmp_path / "data")
    for line in (tmp_path / "data" / "rows.csv").read_text().splitlines()[1:]:
        numbers = torch.tensor([float(cell) for cell in line.split(",")], dtype=torch.float64)
        assert torch.equal(numbers, numbers.float().double())


def test_every_kind_of_problem_has_a_golden_run(golden):
    from rankwise.problems import KINDS

    assert {recipe["task"] for recipe in golden.RECIPES.values()} == set(KINDS)


def test_two_runs_of_one_commit_are_equal(golden, runs, capsys):
    assert golden.main(["compare", *map(str, runs)]) == 0
    out = capsys.readouterr().out
    assert out.count(" equal\n") == 3
    assert "3 runs, 0 differ" in out
    recipes = [(folder / "tabular-seeds.yaml").read_text() for folder in runs]
    assert recipes[0] == recipes[1]


def test_a_run_that_is_absent_is_a_difference(golden, runs, changed, capsys):
    shutil.rmtree(changed / "runs" / "tabular-seeds" / "seed-1")
    assert golden.main(["compare", str(runs[0]), str(changed)]) == 1
    assert f"no finished run in {changed}" in capsys.readouterr().out


def test_a_recipe_that_failed_in_both_folders_is_a_difference(golden, runs, tmp_path, capsys):
    for number, folder in enumerate(runs):
        shutil.copytree(folder, tmp_path / str(number))
        shutil.rmtree(tmp_path / str(number) / "runs" / "tabular-seeds")
    assert golden.main(["compare", str(tmp_path / "0"), str(tmp_path / "1")]) == 1
    assert f"    no finished run in {tmp_path / '0'}" in capsys.readouterr().out


def test_a_run_without_checkpoints_is_a_difference(golden, runs, changed, capsys):
    shutil.rmtree(changed / "runs" / "ltr-letor" / "checkpoints")
    assert golden.main(["compare", str(runs[0]), str(changed)]) == 1
    assert "    cannot be compared: " in capsys.readouterr().out


def test_a_changed_weight_is_a_difference(golden, runs, changed, capsys):
    def change(weights):
        name = next(iter(weights))
        return {**weights, name: weights[name].nextafter(torch.tensor(9.0))}

    change_best(changed, change)
    assert golden.main(["compare", str(runs[0]), str(changed)]) == 1
    out = capsys.readouterr().out
    assert "best weights: " in out
    assert "last weights: " not in out
    assert "by at most" in out
    assert "3 runs, 1 differ" in out


def test_other_names_of_weights_are_no_difference_and_new_buffers_a_note(golden, runs, changed, capsys):
    def change(weights):
        renamed = {f"network.{name}": weights[name] for name in reversed(list(weights))}
        return {**renamed, "added": torch.full((5,), 2.5)}

    change_best(changed, change)
    assert golden.main(["compare", str(runs[0]), str(changed)]) == 0
    assert "note: best weights: added (5,) is new" in capsys.readouterr().out


def test_weights_that_are_gone_are_a_difference(golden, runs, changed, capsys):
    change_best(changed, lambda weights: dict(list(weights.items())[1:]))
    assert golden.main(["compare", str(runs[0]), str(changed)]) == 1
    assert "is gone" in capsys.readouterr().out


@pytest.mark.parametrize(
    "file, what", [("test-queries.csv", "test per query"), ("test-scores.csv", "test scores"), ("test.json", "test")]
)
def test_a_changed_result_is_a_difference(golden, runs, changed, capsys, file, what):
    path = changed / "runs" / "ltr-letor" / file
    if file == "test.json":
        result = json.loads(path.read_text())
        result["means"]["map"] += 1e-12
        path.write_text(json.dumps(result))
    else:
        lines = path.read_text().splitlines()
        cells = lines[3].split(",")
        column = 1 if file == "test-queries.csv" else 0
        cells[column] = repr(float(cells[column]) + 1e-9)
        path.write_text("\n".join([*lines[:3], ",".join(cells), *lines[4:]]) + "\n")
    assert golden.main(["compare", str(runs[0]), str(changed)]) == 1
    out = capsys.readouterr().out
    assert f"    {what}: 1 of " in out


def test_a_changed_history_is_a_difference(golden, runs, changed, capsys):
    path = max((changed / "runs" / "ltr-letor" / "checkpoints").glob("step-*.pt"))
    state = torch.load(path, weights_only=True)
    state["history"]["losses"][4] += 1e-3
    state["history"]["metrics"][1]["map"] += 1e-9
    torch.save(state, path)
    assert golden.main(["compare", str(runs[0]), str(changed)]) == 1
    out = capsys.readouterr().out
    assert "    losses: 1 of " in out
    assert "    validation: 1 of " in out


def test_folders_without_runs_are_refused(golden, tmp_path):
    with pytest.raises(SystemExit, match="expected golden runs, got none"):
        golden.main(["compare", str(tmp_path), str(tmp_path)])
