"""LETOR files: what is read is what was written, a bad line is named, nothing is parsed twice."""

from __future__ import annotations

import gzip
import lzma
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankwise.data import DataNote, letor, read_letor, read_letor_comments, read_table

GOOD = b"2 qid:7 1:0.5 3:1.5 # first\n0 qid:7 2:1\n1 qid:-3 1:2 # third\n"


def write(folder: Path, content: bytes, name: str = "train.txt") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def check_good(part):
    assert part.features.dtype == torch.float32
    assert part.features.tolist() == [[0.5, 0.0, 1.5], [0.0, 1.0, 0.0], [2.0, 0.0, 0.0]]
    assert part.labels.tolist() == [2, 0, 1]
    assert part.labels.dtype == torch.int64
    assert part.query_ids.tolist() == [7, 7, -3]


@pytest.mark.parametrize(
    "content",
    [
        GOOD,
        gzip.compress(GOOD),
        lzma.compress(GOOD),
        b"\xef\xbb\xbf" + GOOD,
        GOOD.replace(b"\n", b"\r\n"),
        GOOD.removesuffix(b"\n"),
        GOOD.replace(b"\n", b"\n\n# a comment\n"),
        GOOD.replace(b" ", b"\t"),
        gzip.compress(GOOD[:20]) + gzip.compress(GOOD[20:]),
    ],
    ids=["plain", "gzip", "xz", "byte order mark", "crlf", "no last newline", "comments", "tabs", "two gzip members"],
)
@pytest.mark.parametrize("block_bytes", [1, 30, 1 << 20])
def test_every_form_of_the_file_gives_the_same_data(tmp_path, content, block_bytes):
    check_good(read_letor(write(tmp_path, content), block_bytes=block_bytes))


def test_a_longer_list_of_features_can_be_asked_for(tmp_path):
    assert read_letor(write(tmp_path, GOOD), features=5).features.shape == (3, 5)
    with pytest.raises(ValueError, match=r"train.txt, line 1: .* index from 2 to 2, got '3:1.5'"):
        read_letor(write(tmp_path, GOOD), features=2)
    with pytest.raises(ValueError, match="features: expected a whole number of at least 1 or None, got 0"):
        read_letor(write(tmp_path, GOOD), features=0)


def test_blocks_that_grow_wider_are_joined(tmp_path, monkeypatch):
    monkeypatch.setattr(letor, "CHUNK_BYTES", 24)
    monkeypatch.setattr(letor, "PIECE_BYTES", 16)
    monkeypatch.setattr(letor, "SPARSE_LINES", 3)
    lines = [f"{row % 3} qid:{row // 4} {row % 7 + 1}:{row + 1}" for row in range(40)]
    expected = torch.zeros(40, 7)
    expected[torch.arange(40), torch.arange(40) % 7] = torch.arange(40.0) + 1
    for block_bytes in (20, 100, 1000):
        part = read_letor(write(tmp_path, "\n".join(lines).encode()), block_bytes=block_bytes)
        assert torch.equal(part.features, expected)
        assert part.query_ids.tolist() == [row // 4 for row in range(40)]
    with pytest.raises(ValueError, match=r"line 41: .* got '1:x'"):
        read_letor(write(tmp_path, "\n".join([*lines, "1 qid:1 1:x", *lines]).encode()))


def test_grades_that_are_not_whole_stay(tmp_path):
    assert read_letor(write(tmp_path, b"0.5 qid:1 1:1\n1 qid:1 1:2\n")).labels.tolist() == [0.5, 1.0]


def test_lines_without_queries_are_one_list(tmp_path):
    assert read_letor(write(tmp_path, b"1 1:1\n0 1:2\n")).query_ids is None


COMPLETE = b"2 qid:7 1:0.5 2:-1.5e-3\n0 qid:7 1:1 2:3.4e38\n1.5 qid:-3 1:.5 2:7 # third\n"


@pytest.mark.parametrize(
    "content",
    [
        COMPLETE,
        COMPLETE.replace(b"\n", b"\r\n"),
        COMPLETE.replace(b"\n", b" \n"),
        COMPLETE.replace(b"\n", b" #docid = 7:8 x:y\n"),
        COMPLETE.removesuffix(b"\n"),
    ],
    ids=["plain", "crlf", "last blank", "comments", "no last newline"],
)
def test_the_fast_way_is_the_slow_way(tmp_path, content, monkeypatch):
    fast = letor.parse_complete_lines(content)
    assert fast is not None
    monkeypatch.setattr(letor, "parse_complete_lines", lambda text: None)
    slow = read_letor(write(tmp_path, content))
    assert torch.equal(torch.from_numpy(fast[0]).float(), slow.features)
    assert fast[1].tolist() == slow.labels.tolist()
    assert fast[2].tolist() == slow.query_ids.tolist()


@pytest.mark.parametrize(
    "line",
    [
        b"1 qid:1 1:1",
        b"1 qid:1 2:1 1:1",
        b"1 qid:1 1:1 2:1 3:1",
        b"1 qid:1 1:x 2:1",
        b"1 qid:1 1:1 3:1",
        b"1 gid:1 1:1 2:1",
        b"1 qid:1.5 1:1 2:1",
        b"x qid:1 1:1 2:1",
        b"1:1 qid 1:1 2:1",
        b"1 qid:1  1:1 2:",
        b'1 qid:1 1:"1 2:1"',
        b"1 qid:1 1:1\n1 qid:1 1:1 2:1 3:1",
        b"1 qid:1 1:1 2:1 3:1\n1 qid:1 1:1",
        b"1 qid:1 1: 2:1",
        b"",
    ],
)
def test_the_fast_way_takes_nothing_but_complete_lines(line):
    assert letor.parse_complete_lines(COMPLETE + line + b"\n" + COMPLETE) is None


def test_comments_belong_to_rows(tmp_path):
    content = b"# head\n" + GOOD.replace(b"# third", b"#d\xe9")
    assert read_letor_comments(write(tmp_path, content)) == ["first", "", "d\ufffd"]


BAD_LINES = {
    "no grade": (b"qid:1 1:2", "a number as the grade, got 'qid:1'"),
    "grade is nan": (b"nan qid:1 1:2", "a number as the grade, got 'nan'"),
    "no query": (b"1 1:2", r"`qid:number` behind the grade, as in the lines before, got '1 1:2'"),
    "query is text": (b"1 qid:a 1:2", "`qid:` and a whole number, got 'qid:a'"),
    "query too large": (b"1 qid:99999999999999999999 1:2", "`qid:` and a whole number"),
    "query without colon": (b"1 qid 1:2", "`qid:` and a whole number"),
    "index 0": (b"1 qid:1 0:2", "an index from 1 to 100000, got '0:2'"),
    "index not increasing": (b"1 qid:1 2:2 2:3", "an index from 3 to 100000, got '2:3'"),
    "index is text": (b"1 qid:1 a:2", "an index from 1"),
    "index too large": (b"1 qid:1 100001:2", "an index from 1 to 100000, got '100001:2'"),
    "index beyond any integer": (b"1 qid:1 99999999999999999999:2", "an index from 1 to 100000"),
    "no value": (b"1 qid:1 1:", r"a finite number \(float32\) as feature 1, got '1:'"),
    "no colon": (b"1 qid:1 1", "an index from 1 to 100000, got '1'"),
    "value is text": (b"1 qid:1 1:x", "as feature 1, got '1:x'"),
    "value is nan": (b"1 qid:1 1:nan", "as feature 1, got '1:nan'"),
    "value is infinite": (b"1 qid:1 1:1e39", "as feature 1, got '1:1e39'"),
    "other bytes": (b"1 qid:1 1:\xff", r"as feature 1, got '1:\\\\xff'"),
}


@pytest.mark.parametrize("line, message", BAD_LINES.values(), ids=BAD_LINES)
@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
def test_a_bad_line_is_named(tmp_path, line, message, block_bytes):
    path = write(tmp_path, b"# a comment\n" + GOOD + line + b"\n" + GOOD)
    with pytest.raises(ValueError, match=rf"^{re.escape(str(path))}, line 5: .*{message}"):
        read_letor(path, block_bytes=block_bytes, cache=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_a_query_after_lines_without_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"line 2: expected no qid, as in the lines before"):
        read_letor(write(tmp_path, b"1 1:2\n" + GOOD), block_bytes=1)


def test_a_file_of_comments_only_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"train\.txt: expected lines .*, got none"):
        read_letor(write(tmp_path, b"# one\n# two\n"))


class TestCache:
    def test_the_second_reading_parses_nothing(self, tmp_path, monkeypatch):
        path = write(tmp_path, GOOD)
        check_good(read_letor(path, cache=tmp_path / "cache"))
        monkeypatch.setattr(letor, "_parse", _never)
        seen: list[float] = []
        check_good(read_letor(path, cache=tmp_path / "cache", on_progress=seen.append))
        assert seen == [1.0]
        assert len(list((tmp_path / "cache").iterdir())) == 1

    def test_a_changed_file_is_read_again_and_replaces_its_cache(self, tmp_path):
        path = write(tmp_path, GOOD)
        read_letor(path, cache=tmp_path / "cache")
        write(tmp_path, GOOD.replace(b"2 qid:7", b"4 qid:7"))
        os.utime(path, ns=(1, 1))
        assert read_letor(path, cache=tmp_path / "cache").labels.tolist() == [4, 0, 1]
        assert len(list((tmp_path / "cache").iterdir())) == 1

    def test_other_options_have_another_cache(self, tmp_path):
        path = write(tmp_path, GOOD)
        assert read_letor(path, cache=tmp_path).features.shape == (3, 3)
        assert read_letor(path, cache=tmp_path, features=4).features.shape == (3, 4)
        assert read_letor(path, cache=tmp_path).features.shape == (3, 3)

    def test_a_damaged_cache_is_written_anew(self, tmp_path):
        path = write(tmp_path, GOOD)
        read_letor(path, cache=tmp_path / "cache")
        (cached,) = (tmp_path / "cache").iterdir()
        for damaged in (b"", b"nonsense", cached.read_bytes()[:-40], _flip(cached.read_bytes())):
            cached.write_bytes(damaged)
            check_good(read_letor(path, cache=tmp_path / "cache"))

    def test_an_interrupted_write_leaves_nothing(self, tmp_path, monkeypatch):
        monkeypatch.setattr("rankwise.data.cache._write_aligned", _never)
        with pytest.raises(RuntimeError, match="must not be called"):
            read_letor(write(tmp_path, GOOD), cache=tmp_path / "cache")
        assert not (tmp_path / "cache").exists()


# Feature 1 is a time in seconds, feature 2 cannot be told apart in float32, feature 3 is ordinary.
TIMES = [(1_700_000_000 + 3 * row, 16_777_216 + row % 4, row / 7) for row in range(40)]


def write_times(folder, name="times.txt", left_out=()):
    lines = []
    for row, values in enumerate(TIMES):
        known = [f"{index}:{value!r}" for index, value in enumerate(values, 1) if (row, index) not in left_out]
        lines.append(" ".join([f"{row % 3} qid:{row // 10}", *known]))
    return write(folder, "\n".join(lines).encode(), name)


class TestOrigins:
    """Features whose differences float32 cannot hold are shifted before they are rounded."""

    @pytest.mark.parametrize("block_bytes", [1, 200, 1 << 20])
    def test_differences_are_those_of_the_file(self, tmp_path, monkeypatch, block_bytes):
        monkeypatch.setattr(letor, "BLOCK_BYTES", block_bytes)
        part, schema = read_table(write_times(tmp_path))
        expected = torch.tensor(TIMES, dtype=torch.float64)
        assert set(schema.encoding.origins) == {"1", "2"}
        shifted = part.features.double()
        differences = shifted[:, :2] - shifted[0, :2]
        assert torch.equal(differences, expected[:, :2] - expected[0, :2])
        assert torch.equal(part.features[:, 2], expected[:, 2].float())

    def test_other_files_have_the_same_origins(self, tmp_path):
        part, schema = read_table(write_times(tmp_path))
        assert torch.equal(schema.read(tmp_path / "times.txt").features, part.features)
        one = write(tmp_path, b"0 qid:1 1:1700000007 2:16777219 3:1\n", "one.txt")
        expected = [1_700_000_007 - schema.encoding.origins["1"], 16_777_219 - schema.encoding.origins["2"], 1.0]
        assert schema.read(one).features[0].tolist() == expected

    def test_a_feature_that_a_line_leaves_out_is_0_before_it_is_shifted(self, tmp_path):
        _, schema = read_table(write_times(tmp_path))
        part = schema.read(write(tmp_path, b"0 qid:1 3:1\n0 qid:1 1:1700000000\n", "short.txt"))
        absent = torch.tensor(
            [-schema.encoding.origins["1"], -schema.encoding.origins["2"]], dtype=torch.float64
        ).float()
        assert torch.equal(part.features[0, :2], absent)
        assert torch.equal(part.features[1, 1:], torch.tensor([absent[1], 0.0]))

    def test_the_spread_of_a_sparse_file_counts_its_zeros(self, tmp_path):
        """Beside zeros the differences of the times are too small to matter."""
        left_out = {(row, 1) for row in range(0, 40, 2)}
        _, schema = read_table(write_times(tmp_path, left_out=left_out))
        assert set(schema.encoding.origins) == {"2"}

    def test_reading_without_origins_warns(self, tmp_path):
        with pytest.warns(DataNote, match=r"float32 cannot hold the differences of 2 features, such as feature 1; "):
            part = read_letor(write_times(tmp_path))
        assert part.features[:, 0].unique().numel() < 40
        given = read_letor(tmp_path / "times.txt", origins={1: 1.7e9, 2: 16_777_216.0})
        assert given.features[:, 0].tolist() == [3.0 * row for row in range(40)]

    def test_the_cache_keeps_each_shift_apart(self, tmp_path, monkeypatch):
        path = write_times(tmp_path)
        part, schema = read_table(path, cache=tmp_path / "cache")
        monkeypatch.setattr(letor, "_parse", _never)
        again, same = read_table(path, cache=tmp_path / "cache")
        assert same == schema
        assert torch.equal(again.features[:], part.features[:])

    @given(
        st.lists(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3), min_size=1, max_size=30),
        st.integers(1, 300),
        st.booleans(),
    )
    def test_means_and_spreads_are_those_of_all_rows(self, values, size, sparse):
        from scipy.sparse import csr_matrix

        whole = np.array(values).round(3)
        spreads = letor._Spreads()
        for start in range(0, len(whole), size):
            block = whole[start : start + size]
            spreads.add(csr_matrix(block) if sparse else block)
        assert spreads._mean == pytest.approx(whole.mean(0), rel=1e-9, abs=1e-6)
        assert np.sqrt(spreads._squares / len(whole)) == pytest.approx(whole.std(0), rel=1e-6, abs=1e-6)
        assert spreads._error == pytest.approx(np.abs(whole - whole.astype(np.float32)).max(0))


def test_progress_goes_from_0_to_1(tmp_path):
    seen: list[float] = []
    read_letor(write(tmp_path, GOOD * 100), block_bytes=500, on_progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert len(seen) > 10


finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
rows = st.lists(
    st.tuples(
        st.integers(0, 4), st.integers(-(2**63), 2**63 - 1), st.dictionaries(st.integers(1, 12), finite, max_size=12)
    ),
    min_size=1,
    max_size=20,
)


@given(rows=rows, block_bytes=st.integers(1, 200), complete=st.booleans())
def test_what_was_written_is_read(tmp_path_factory, rows, block_bytes, complete):
    if complete:
        rows = [
            (grade, query, {index: items.get(index, 0.0) for index in range(1, 13)}) for grade, query, items in rows
        ]
    text = "".join(
        f"{grade} qid:{query} " + " ".join(f"{index}:{value!r}" for index, value in sorted(items.items())) + "\n"
        for grade, query, items in rows
    )
    part = read_letor(write(tmp_path_factory.mktemp("letor"), text.encode()), features=12, block_bytes=block_bytes)
    expected = torch.tensor([[items.get(index, 0.0) for index in range(1, 13)] for _, _, items in rows])
    assert torch.equal(part.features, expected)
    assert part.labels.tolist() == [grade for grade, _, _ in rows]
    assert part.query_ids.tolist() == [query for _, query, _ in rows]


@pytest.mark.realdata
def test_comments_of_mq2008_are_its_documents(real_data):
    path = real_data("letor-mq2008") / "S1.txt"
    comments = read_letor_comments(path)
    assert len(comments) == len(read_letor(path))
    assert comments[0].startswith("docid = GX008-86-4444840")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is measured on Linux only")
def test_a_file_as_long_as_mslr_needs_little_more_memory_than_its_features(tmp_path):
    worker = Path(__file__).parents[1] / "workers" / "read_long_letor.py"
    rows, features = 3_800_000, 136
    done = subprocess.run(
        [sys.executable, str(worker), str(tmp_path), str(rows), str(features)],
        capture_output=True,
        text=True,
        check=True,
    )
    figures = dict(line.split("=") for line in done.stdout.split())
    print(done.stdout)
    assert (int(figures["rows"]), int(figures["features"])) == (rows, features)
    needed = rows * features * 4 / 2**20
    extra = rows * 40 / 2**20 + 64 + 25 * 8  # the bound that the docstring states
    assert float(figures["peak_mib"]) <= needed + extra
    assert float(figures["seconds_cached"]) <= float(figures["seconds"]) / 5


def _never(*_, **__):
    raise RuntimeError("must not be called")


def _flip(content: bytes) -> bytes:
    changed = bytearray(content)
    changed[len(changed) // 2] ^= 0xFF
    return bytes(changed)
