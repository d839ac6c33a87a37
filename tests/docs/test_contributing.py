"""What the project says twice, it says alike: layers, versions of Python, the version and its changelog."""

from __future__ import annotations

import re

import yaml

import rankwise
from workers.pages import ROOT
from workers.pyproject import PYPROJECT


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_layers_of_contributing_are_those_of_the_import_contract():
    contract = next(each for each in PYPROJECT["tool"]["importlinter"]["contracts"] if each["type"] == "layers")
    layers = [set(re.findall(r"\w+", layer)) for layer in contract["layers"]]
    section = read("CONTRIBUTING.md").partition("## Layers\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", section, re.MULTILINE)
    assert [set(re.findall(r"`(\w+)`", modules)) for _, modules in rows] == layers
    assert [int(number) for number, _ in rows] == list(range(len(layers)))[::-1]


def test_the_workflow_tests_every_python_that_is_claimed():
    claimed = re.findall(
        r"^Programming Language :: Python :: (3\.\d+)$", "\n".join(PYPROJECT["project"]["classifiers"]), re.M
    )
    tests = yaml.safe_load(read(".github/workflows/test.yml"))["jobs"]["test"]["strategy"]["matrix"]
    assert tests["python"] == claimed
    assert PYPROJECT["project"]["requires-python"] == f">={claimed[0]}"


def test_the_version_is_the_latest_of_the_changelog_and_of_the_citation():
    released = re.findall(r"^## \[(\d[\w.]*)\] - \d{4}-\d\d-\d\d$", read("CHANGELOG.md"), re.MULTILINE)
    assert released[0] == rankwise.__version__ == PYPROJECT["project"]["version"]
    assert f"\nversion: {rankwise.__version__}\n" in read("CITATION.cff")
    for version in released:
        assert f"\n[{version}]: https://" in read("CHANGELOG.md")
