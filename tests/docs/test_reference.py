"""The reference shows every public name, and the site builds without a warning."""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import runpy
import shutil
import subprocess
import sys
from importlib.util import find_spec

import pytest
import yaml

import rankwise
from workers.pages import ROOT

# The program itself, and old names that warn.
HIDDEN = ("__main__", "tasks")
# Every direct submodule, and the subpackages that are imported by their own name.
MODULES = [
    "rankwise",
    "rankwise.losses.baselines",
    *(f"rankwise.{module.name}" for module in pkgutil.iter_modules(rankwise.__path__) if module.name not in HIDDEN),
]


def named_on_pages() -> set[str]:
    text = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.md"))
    return set(re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE))


@pytest.mark.parametrize("module", MODULES)
def test_a_page_shows_the_module(module):
    assert module in named_on_pages()
    assert importlib.import_module(module).__all__, "what a module offers is what it lists"


def test_the_generated_pages_are_current():
    pages = runpy.run_path(str(ROOT / "scripts" / "reference_pages.py"))["pages"]()
    assert set(pages) == {"cli.md", "recipes.md"}
    for name, text in pages.items():
        committed = (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
        assert committed == text, f"{name}: write it with python scripts/reference_pages.py"


def pages_of(entry: object) -> list[str]:
    """Return the pages below an entry of the navigation, with a line for each heading in between."""
    if isinstance(entry, str):
        return [entry]
    ((title, inner),) = entry.items()  # type: ignore[attr-defined]
    return [inner] if isinstance(inner, str) else [title, *(page for each in inner for page in pages_of(each))]


def test_a_side_bar_has_at_most_25_entries_and_every_page_is_in_one():
    tabs = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    listed = [pages_of(tab)[1:] for tab in tabs]
    assert len(listed) <= 6
    assert max(map(len, listed)) <= 25
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert {page for tab in listed for page in tab if page.endswith(".md")} == pages


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The pages as built, and what the builder said."""
    if find_spec("zensical") is None or find_spec("mkdocstrings") is None:
        pytest.skip("the site needs rankwise[docs]")
    copy = tmp_path_factory.mktemp("site")
    for name in ("mkdocs.yml", "README.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "docs", copy / "docs")  # the builder takes no link for it
    for name in ("src", "scripts", "benchmarks", "examples"):
        (copy / name).symlink_to(ROOT / name)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    runpy.run_path(str(ROOT / "scripts" / "docs_tables.py"), run_name="__main__")
    (copy / "build").symlink_to(ROOT / "build")
    command = [sys.executable, "-c", "from zensical.main import cli; cli()", "build", "--clean", "--strict"]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    return copy / "site", done


def test_the_site_builds_without_a_warning(site):
    _, done = site
    assert done.returncode == 0, done.stdout + done.stderr
    said = [line for line in (done.stdout + done.stderr).splitlines() if "griffe" in line or "arning" in line]
    assert not said


def test_every_public_name_is_on_a_page(site):
    folder, _ = site
    shown: set[str] = set()
    for page in (folder / "reference").rglob("*.html"):
        shown |= set(re.findall(r'id="([\w.]+)"', page.read_text(encoding="utf-8")))
    missing = [
        f"{module}.{name}"
        for module in MODULES
        for name in importlib.import_module(module).__all__
        if not shown & {f"{module}.{name}", where_defined(getattr(importlib.import_module(module), name))}
    ]
    assert not missing


def where_defined(thing: object) -> str:
    """Where a name lives: a function that is called like the file it is in is shown under its whole path."""
    return f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', '')}"
