"""The notebooks run as they are, train something better than chance, and show their outputs."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
run = runpy.run_path(str(ROOT / "scripts" / "notebooks.py"))["run"]
# A metric of the test part, and a value that no random order reaches.
BETTER_THAN_CHANCE = {
    "table": ("ap", 0.3),
    "search": ("ndcg@5", 0.4),
    "recommendation": ("hit@10", 0.15),
    "images": ("map", 0.5),
}


def test_there_is_a_notebook_for_each_kind_of_data():
    assert {path.stem for path in NOTEBOOKS} == set(BETTER_THAN_CHANCE)


@pytest.mark.filterwarnings("ignore::rankwise.data.DataNote")  # a reader sees these notes
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    written = [bool(cell.get("outputs")) for cell in notebook["cells"]]
    session = run(notebook)
    assert written == [bool(cell.get("outputs")) for cell in notebook["cells"]], "run scripts/notebooks.py"
    metric, value = BETTER_THAN_CHANCE[path.stem]
    result = session["run"].evaluate(session["new"]) if "new" in session else session["run"].test
    assert result.means[metric] > value


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_goes_from_data_to_predictions(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    heads = ["".join(cell["source"]).splitlines()[0] for cell in cells if cell["cell_type"] == "markdown"]
    assert heads[1:] == ["## Data", "## Train", "## Look", "## Predict"]
    assert len(cells) <= 12
