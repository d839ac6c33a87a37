"""Every wrong input of the table ends with exit code 2 and one line; the page that shows them is up to date."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("bad_inputs", ROOT / "scripts" / "bad_inputs.py")
bad_inputs = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(bad_inputs)


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
