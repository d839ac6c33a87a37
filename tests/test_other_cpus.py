"""The runner of tests under settings of other CPUs: settings reach the tests, failures are counted and named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scripts import test_cpus as cpus

ROOT = Path(__file__).parents[1]

TESTS = """
import os, pytest
def test_setting(): assert os.environ["ATEN_CPU_CAPABILITY"] == "avx2"
def test_other(): assert "MKL_CBWR" not in os.environ
def test_wrong(): assert False
@pytest.mark.skip
def test_skipped(): pass
"""


def test_a_setting_alone_reaches_the_tests_and_failures_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    (tmp_path / "test_some.py").write_text(TESTS)
    found = cpus.run_tests(cpus.SETTINGS["AVX2"], [str(tmp_path), "--rootdir", str(tmp_path), "-c", "/dev/null"])
    assert (found.passed, found.failed, found.skipped) == (2, 1, 1)
    assert [each.partition("::")[2] for each in found.failures] == ["test_wrong"]


def test_a_run_without_tests_is_a_failure(tmp_path):
    found = cpus.run_tests({}, [str(tmp_path), "--rootdir", str(tmp_path), "-c", "/dev/null"])
    assert found.passed == 0
    assert found.failures


def test_numpy_knows_the_names_that_are_disabled_and_has_no_others_left():
    """Names that numpy was built with and this CPU has: of others it would warn."""
    found = set(np.show_config(mode="dicts")["SIMD Extensions"].get("found", []))
    assert set(cpus.SSE42["NPY_DISABLE_CPU_FEATURES"].split()) == found
    assert {name for name in found if "512" in name} <= set(cpus.AVX2["NPY_DISABLE_CPU_FEATURES"].split()) <= found


def test_every_path_exists():
    for path in (*cpus.NUMERIC, *cpus.FRAGILE):
        file, _, test = path.partition("::")
        assert (ROOT / file).exists(), path
        assert not test or f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), path
