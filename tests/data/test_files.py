"""Whatever is wrong with a file as such, every reader says so in the same words and with its path."""

from __future__ import annotations

import gzip
import lzma
import os
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankwise import extras
from rankwise.data import (
    complete_lines,
    read_arff,
    read_extreme,
    read_interaction_lists,
    read_interactions,
    read_letor,
    read_letor_comments,
    read_movielens,
    read_table,
)
from rankwise.data.columns import read_group_sizes
from rankwise.data.files import is_compressed, is_letor, read_line_blocks

LETOR = b"2 qid:7 1:0.5 2:1\n0 qid:7 1:1 2:3\n"
TABLE = b"a,y\n1,0\n2,1\n"
EXTREME = b"2 4 3\n0,2 1:0.5 3:2\n 0:1\n"
LISTS = b"0 10 30\n1 20\n"
ARFF = b"@relation r\n@attribute a numeric\n@attribute y {0,1}\n@data\n0.5,1\n"

READERS = {
    "letor": (read_letor, LETOR),
    "letor comments": (read_letor_comments, LETOR),
    "table": (read_table, TABLE),
    "letor as a table": (read_table, LETOR),
    "interactions": (read_interactions, TABLE),
    "interaction lists": (lambda path: read_interaction_lists([path]), LISTS),
    "extreme": (read_extreme, EXTREME),
    "arff": (lambda path: read_arff(path, labels=1), ARFF),
    "group sizes": (read_group_sizes, b"1\n2\n"),
}
readers = pytest.mark.parametrize("read, content", READERS.values(), ids=READERS)


@readers
@pytest.mark.parametrize(
    "change",
    [
        lambda content: content,
        gzip.compress,
        lzma.compress,
        lambda content: b"\xef\xbb\xbf" + content,
        lambda content: content.replace(b"\n", b"\r\n"),
        lambda content: content.removesuffix(b"\n"),
    ],
    ids=["plain", "gzip", "xz", "byte order mark", "crlf", "no last newline"],
)
def test_every_reader_takes_every_form_of_a_text_file(tmp_path, read, content, change):
    plain, changed = tmp_path / "plain.txt", tmp_path / "changed.txt"
    plain.write_bytes(content)
    changed.write_bytes(change(content))
    assert repr(read(changed)) == repr(read(plain))


@readers
def test_no_such_file(tmp_path, read, content):
    with pytest.raises(FileNotFoundError, match=re.escape(f"{tmp_path / 'none.txt'}: no such file")):
        read(tmp_path / "none.txt")


BAD_FILES = {
    "empty": (lambda content: b"", "expected data, got an empty file"),
    "truncated gzip": (lambda content: gzip.compress(content, mtime=0)[:-9], "one that ends too early"),
    "truncated xz": (lambda content: lzma.compress(content)[:-9], "one that ends too early"),
    "damaged gzip": (lambda content: b"\x1f\x8b" + b"\x00" * 30, "cannot be read"),
    "damaged xz": (lambda content: b"\xfd7zXZ\x00" + b"\x01" * 30, "cannot be read"),
    "wrong checksum": (lambda content: gzip.compress(content, mtime=0)[:-8] + b"\x00" * 8, "cannot be read"),
    "utf-16": (lambda content: content.decode().encode("utf-16"), "line 1: expected text in UTF-8, got UTF-16"),
    "random bytes": (lambda content: np.random.default_rng(1).bytes(500), ""),
    "zero bytes": (lambda content: b"\x00" * 100, ""),
}


@readers
@pytest.mark.parametrize("change, message", BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_is_refused_by_its_path(tmp_path, read, content, change, message):
    path = tmp_path / "bad.txt"
    path.write_bytes(change(content))
    if read is read_letor_comments and not message:
        return  # any bytes are lines with or without a comment
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))}.*{message}"):
        read(path)


pieces = st.sampled_from(
    b"\n|\r| |,|:|\"|'|\0|\xff|nan|1e400|-|#|qid:|{|}|@data|?|99999999999999999999|true|0x1".split(b"|")
)
edits = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 3), st.one_of(pieces, st.binary(max_size=3))), max_size=4)


@given(name=st.sampled_from(sorted(READERS)), edits=edits)
@settings(max_examples=300)
def test_any_damage_is_read_or_refused_by_path(tmp_path_factory, name, edits):
    read, content = READERS[name]
    damaged = bytearray(content)
    for place, removed, added in edits:
        damaged[place : place + removed] = added
    path = tmp_path_factory.mktemp("damaged") / "data.txt"
    path.write_bytes(bytes(damaged))
    problem = ""
    try:
        read(path)
    except ValueError as refused:
        problem = str(refused)
    assert not problem or str(path) in problem


@readers
def test_a_folder_is_refused(tmp_path, read, content):
    with pytest.raises(ValueError, match="expected a file, got a folder"):
        read(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="everything is readable for the administrator")
@readers
def test_a_file_without_permission_is_refused(tmp_path, read, content):
    path = tmp_path / "secret.txt"
    path.write_bytes(content)
    path.chmod(0)
    with pytest.raises(ValueError, match="cannot be read"):
        read(path)


@pytest.mark.parametrize("content", [b"a\nbb\n\nccc", b"\n\n", b"x" * 100, b"one\r\ntwo\r\n"])
@pytest.mark.parametrize("block_bytes", [1, 2, 3, 5, 1000])
def test_blocks_hold_every_line_once_with_its_number(tmp_path, content, block_bytes):
    path = tmp_path / "text"
    path.write_bytes(content)
    numbered = [pair for block in read_line_blocks(path, block_bytes=block_bytes) for pair in block.lines()]
    expected = list(enumerate(content.replace(b"\r\n", b"\n").removesuffix(b"\n").split(b"\n"), start=1))
    assert numbered == expected
    assert not is_compressed(path)


def test_sizes_beside_a_file_make_lists(tmp_path):
    path = tmp_path / "train.txt"
    path.write_bytes(b"2 1:1\n0 1:2\n1 1:3\n")
    (tmp_path / "train.txt.query").write_text("1\n2\n")
    assert read_letor(path).query_ids.tolist() == [0, 1, 1]
    (tmp_path / "train.txt.query").rename(tmp_path / "train.txt.group")
    assert read_letor(path).query_ids.tolist() == [0, 1, 1]
    (tmp_path / "train.txt.group").write_text("1\n1\n")
    with pytest.raises(ValueError, match=r"train.txt.group: expected sizes that add up to the 3 rows .* got 2"):
        read_letor(path)


def test_sizes_that_contradict_the_query_ids_are_refused(tmp_path):
    path = tmp_path / "train.txt"
    path.write_bytes(LETOR)
    (tmp_path / "train.txt.query").write_text("2\n")
    assert read_letor(path).query_ids.tolist() == [7, 7]
    (tmp_path / "train.txt.query").write_text("1\n1\n")
    with pytest.raises(ValueError, match=r"train.txt.query: expected the 1 lists that the query ids"):
        read_letor(path)


@pytest.mark.parametrize("line", ["0", "-1", "1.5", "two", "1 2", "9" * 30])
def test_a_size_that_is_none_is_refused(tmp_path, line):
    (tmp_path / "sizes").write_text(f"3\n{line}\n")
    with pytest.raises(ValueError, match=r"sizes, line 2: expected the number of rows of a list, at least 1, got"):
        read_group_sizes(tmp_path / "sizes")


@pytest.mark.parametrize(
    "content, expected",
    [
        (LETOR, True),
        (b"# comment\n\n" + LETOR, True),
        (b"-1 1:0.5 7:1\n", True),
        (gzip.compress(LETOR, mtime=0), True),
        (TABLE, False),
        (b"0.5,1\n", False),
        (b"user item\n", False),
        (b"10:30,1\n", False),
        (b"t\tx:y\n", False),
    ],
)
def test_the_form_of_a_file_is_seen_from_its_content(tmp_path, content, expected):
    path = tmp_path / "data.txt"
    path.write_bytes(content)
    assert is_letor(path) == expected


def test_a_letor_file_has_no_columns_to_name(tmp_path):
    path = tmp_path / "data.txt"
    path.write_bytes(LETOR)
    for options in ({"label": "y"}, {"query": "q"}, {"drop": ["a"]}, {"positive": "1"}):
        (name,) = options
        with pytest.raises(ValueError, match=f"^{name}: expected nothing, as .* is a LETOR file"):
            read_table(path, **options)


def test_a_folder_without_ratings_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"expected u\.data, ratings\.dat or ratings\.csv"):
        read_movielens(tmp_path)


@pytest.mark.parametrize(
    "name, module", [("table", "polars"), ("interactions", "polars"), ("letor", "sklearn"), ("extreme", "sklearn")]
)
def test_a_missing_package_is_named(tmp_path, monkeypatch, name, module):
    read, content = READERS[name]
    path = tmp_path / "data.txt"
    path.write_bytes(content.replace(b" 1:0.5", b""))
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=rf"needs {module}: pip install 'rankwise\[data\]'"):
        read(path)


def test_complete_letor_lines_are_read_without_polars_too(tmp_path, monkeypatch):
    path = tmp_path / "data.txt"
    path.write_bytes(LETOR)
    with_polars = read_letor(path)
    monkeypatch.setattr(complete_lines, "find_spec", lambda name: None)
    assert repr(read_letor(path)) == repr(with_polars)
