"""Every wrong input of the table ends with exit code 2 and one line; the page that shows them is up to date."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("bad_inputs", ROOT / "scripts" / "bad_inputs.py")
bad_inputs = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(bad_inputs)


HINTS = {
    "budget.epochs=3": "'budget={epochs: 3}'",
    "rows.yaml learning_rate=0.1": "did you mean 'optimiser.learning_rate'?",
    "rows.yaml lr=0.1": "did you mean 'optimiser.learning_rate'?",
    "rows.yaml batch_size=64": "did you mean 'batches.size'?",
    "rows.yaml epochs=5": "did you mean 'budget.epochs'?",
    "users.yaml batch_size=64": "did you mean 'batches.users'?",
    "users.yaml batches.batch_size=64": "did you mean 'batches.users'?",
    "loss=AUPRC": "did you mean 'auprc'?",
    "measured.csv": "make a column of two kinds of them",
    "colours.csv": "data.positive=green",
    "commas.csv": "decimal comma",
    "header.csv": "a line break in a name",
    "huge.csv": "divide the column",
}


@pytest.mark.parametrize("end", HINTS)
def test_the_page_shows_hints(end):
    shown = (ROOT / "docs" / "messages.md").read_text(encoding="utf-8").split("$ ")
    (said,) = (each for each in shown if each.partition("    [")[0].endswith(end))
    assert HINTS[end] in said


@pytest.mark.parametrize("case", bad_inputs.CASES)
def test_wrong_input_gives_code_2_one_line_and_leaves_nothing(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bad_inputs.write_files(tmp_path)
    code, out, err = bad_inputs.run_case(case)
    assert code == 2, err
    assert out == ""
    assert err.startswith("rankwise: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert {path.name for path in tmp_path.iterdir()} == set(bad_inputs.FILES)
    shown = (ROOT / "docs" / "messages.md").read_text(encoding="utf-8")
    assert f"$ {case}    [2]\n{err.strip()}\n" in shown
