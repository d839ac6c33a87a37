"""The words of src are those of the glossary."""

from __future__ import annotations

import re
import runpy

import pytest

from workers.pages import PAGES, ROOT, name_of

WORDS = runpy.run_path(str(ROOT / "scripts" / "words.py"))
SOURCE = ROOT / "src" / "rankwise"
# What a loss or metric call enters: every function there says in its first word what it does.
CORE = (
    "checks.py", "distributed.py", "estimators", "lists.py", "losses", "metrics", "pairs", "ranks.py", "registry.py",
    "samplers", "sorting.py", "surrogates.py",
)  # fmt: skip
TERMS = (
    "index", "slot", "padding", "mask", "tie group", "permutation", "rank", "running quantile", "moving average",
    "device", "positive", "negative", "anchor", "sampler", "worker", "checkpoint",
)  # fmt: skip


def test_few_docstrings_begin_like_a_question():
    asked, count = WORDS["questions"]([SOURCE]), sum(1 for _ in WORDS["docstrings"]([SOURCE]))
    assert count > 1000
    assert len(asked) <= 0.02 * count, asked


def test_docstrings_of_functions_in_the_core_begin_with_a_verb():
    assert WORDS["without_verb"]([SOURCE / name for name in CORE]) == []


def test_no_name_or_sentence_has_a_word_to_avoid():
    assert [f"{use.path.relative_to(SOURCE)}:{use.line}: {use.text}" for use in WORDS["avoided"]([SOURCE])] == []


@pytest.mark.parametrize(
    "line, words",
    [
        ("place = 3", 1),
        ("# the place of an item", 1),
        ("# it stands for a row", 1),
        ("# an item of weight 0 is as good as absent", 1),
        ("# it takes note of a batch", 1),
        ("# sorted in place", 0),
        ("# this takes place later", 0),
        ("replace = found.get(1)", 1),
    ],
)
def test_words_to_avoid_are_seen(line, words, tmp_path):
    (tmp_path / "file.py").write_text(line + "\n")
    assert len(WORDS["avoided"]([tmp_path])) == words


@pytest.mark.parametrize(
    "text, without",
    [
        ("Return a row.", 0),
        ("Yield, for each row, its index.", 0),
        ("The row.", 1),
        ("(Q,) rows.", 1),
        ("Returns a row.", 1),
    ],
)
def test_docstrings_of_functions_without_a_verb_are_seen(text, without, tmp_path):
    (tmp_path / "file.py").write_text(f'"""Rows."""\n\n\ndef row():\n    """{text}"""\n')
    assert len(WORDS["without_verb"]([tmp_path])) == without


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_page_has_a_phrase_to_avoid(page):
    assert not WORDS["PHRASES"].findall(page.read_text(encoding="utf-8"))


def test_the_glossary_explains_every_term():
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = {word.strip() for row in re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE) for word in row.split(",")}
    assert set(TERMS) <= words
