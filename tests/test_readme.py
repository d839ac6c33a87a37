"""Every Python block of the README and the docs runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
]


@pytest.mark.parametrize("block", BLOCKS)
def test_python_block_runs(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a block may write files
    exec(compile(block, "block", "exec"), {})


def test_the_readme_names_every_loss_and_metric():
    from rankwise.losses import LOSSES
    from rankwise.metrics import METRICS

    text = PAGES[0].read_text(encoding="utf-8")
    missing = [record.name for record in (*LOSSES, *METRICS) if f"`{record.name}" not in text]
    assert not missing
