"""Real data are found by name, and a missing set is answered with its source and where to put it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.find import find_data


def test_data_are_found_in_the_folder_that_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("RANKWISE_DATA", str(tmp_path))
    (tmp_path / "bibtex").mkdir()
    assert find_data("bibtex") == tmp_path / "bibtex"
    with pytest.raises(FileNotFoundError, match=r"letor-mq2008: no such data; .*LETOR 4.0.* set RANKWISE_DATA"):
        find_data("letor-mq2008")
    with pytest.raises(FileNotFoundError, match="set RANKWISE_DATA"):
        find_data("other")


def test_without_a_named_folder_data_are_looked_for_beside_the_checkout(monkeypatch):
    monkeypatch.delenv("RANKWISE_DATA", raising=False)
    beside = Path(__file__).resolve().parents[3] / "shared" / "data" / "no such data"
    with pytest.raises(FileNotFoundError, match=re.escape(str(beside))):
        find_data("no such data")
