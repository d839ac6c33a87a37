"""Texts and judgements from files: BEIR's JSON lines and TSV, TREC qrels and run files, tables, lines of text."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rankwise.data.columns import read_numbers
from rankwise.data.files import bad_line, check_file, is_finite_number, read_line_blocks, read_text
from rankwise.data.table_files import JSON_LINES, RawTable, open_table

__all__ = [
    "CollectionFiles",
    "Judgements",
    "Texts",
    "TrecRun",
    "find_collection",
    "is_file_name",
    "is_texts",
    "is_trec_run",
    "read_judgements",
    "read_texts",
    "read_trec_run",
]

# What columns may be called; the first name wins over the others.
ID_NAMES = ("_id", "id", "doc_id", "docid", "docno", "document_id", "corpus-id", "query-id", "query_id", "qid")
TEXT_NAMES = ("text", "contents", "content", "body", "abstract", "document", "query", "question")
QUERY_NAMES = ("query-id", "query_id", "query", "qid", "topic", "question")
DOCUMENT_NAMES = ("corpus-id", "corpus_id", "document", "document_id", "doc_id", "docid", "docno", "doc")
GRADE_NAMES = ("score", "grade", "relevance", "rel", "label")
COMPRESSED = (".gz", ".xz")
TABLES = (".csv", ".tsv", ".parquet", ".arrow", ".feather", *JSON_LINES)
CORPUS_STEMS, QUERY_STEMS, JUDGEMENT_STEMS = ("corpus", "documents"), ("queries",), ("qrels", "judgements")


class Texts(NamedTuple):
    """Texts with a name each.

    Attributes:
        names: N different names.
        texts: N texts; of a document with a title, the title and then the text.
    """

    names: tuple[str, ...]
    texts: tuple[str, ...]


class Judgements(NamedTuple):
    """Graded pairs of a query and a document.

    Attributes:
        queries: names (or texts) of the queries, in the order of their first pair.
        rows: (P,) the query of each pair.
        documents: P names of documents.
        grades: (P,) 0 or more; None if the source has none.
    """

    queries: tuple[str, ...]
    rows: Tensor
    documents: tuple[str, ...]
    grades: Tensor | None

    def by_query(self) -> dict[str, dict[str, float]]:
        """Return grades by document by query; pairs without a grade have 1."""
        grades = [1.0] * len(self.documents) if self.grades is None else self.grades.tolist()
        return _by_query(self.queries, self.rows, self.documents, grades)


class CollectionFiles(NamedTuple):
    """Files of a text collection in one folder; judgements by the name of their part, "train" at least."""

    corpus: Path
    queries: Path | None
    judgements: dict[str, Path]


def find_collection(folder: str | Path) -> CollectionFiles | None:
    """Return the files of a text collection in a folder; None if it holds none of them.

    The folder holds `corpus` or `documents`, `queries` (not needed where judgements hold the queries' texts), and
    `qrels` or `judgements`, each a .jsonl, .csv, .tsv or .parquet file; or the judgements by part in a folder `qrels`
    (train.tsv, dev.tsv, test.tsv). Judgements of the test part alone are cut into three.
    """
    folder = Path(folder)
    corpus, queries = _find_file(folder, CORPUS_STEMS), _find_file(folder, QUERY_STEMS)
    judged = {
        part: path
        for part, stems in {"train": ("train",), "validation": ("dev", "validation"), "test": ("test",)}.items()
        if (path := _find_file(folder / "qrels", stems)) is not None
    }
    alone = _find_file(folder, JUDGEMENT_STEMS)
    if alone is not None and "train" not in judged:
        judged["train"] = alone
    if "train" not in judged and judged:
        judged = {"train": judged.get("test", judged.get("validation", folder))}
    if corpus is not None and judged:
        return CollectionFiles(corpus, queries, judged)
    present = [path.name for path in (corpus, queries, *judged.values()) if path is not None]
    if present:
        missing = (
            "documents: corpus or documents" if corpus is None else "judgements: qrels/train.tsv, qrels or judgements"
        )
        raise ValueError(f"{folder}: expected a file of {missing} (.jsonl, .csv, .tsv, .parquet), got {present} alone")
    return None


def read_texts(source: Any) -> Texts:
    """Read named texts: documents or queries.

    Args:
        source: a mapping from names to texts; a list of texts (named 1, 2, ...); a .txt file with a text per line; JSON
            lines (`_id`, `title`, `text`, as BEIR has them) or a table with a column of texts, and perhaps of names and
            titles.

    Example:
        >>> read_texts({"d1": "a cat", "d2": "a dog"}).names
        ('d1', 'd2')
        >>> read_texts(["a cat", "a dog"]).names
        ('1', '2')
    """
    if isinstance(source, Texts):
        return source
    if isinstance(source, Mapping):
        return _checked("texts", tuple(map(str, source)), tuple(source.values()))
    if isinstance(source, Sequence) and not isinstance(source, str):
        return _checked("texts", _numbers(len(source)), tuple(source))
    if isinstance(source, str | Path) and _suffix(Path(source)) == ".txt":
        lines = tuple(line.strip() for line in read_text(check_file(source)).split("\n") if line.strip())
        return _checked(str(source), _numbers(len(lines)), lines)
    if isinstance(source, str | Path) and _suffix(Path(source)) in JSON_LINES:
        return _read_json_texts(check_file(source))
    raw = open_table(source, header="yes")
    text = _find(raw, TEXT_NAMES) or (raw.columns[0] if len(raw.columns) == 1 else None)
    if text is None:
        raise ValueError(f"{raw.name}: expected a column of texts, called {_words(TEXT_NAMES)}, got {raw.columns[:6]}")
    name, title = _find(raw, tuple(each for each in ID_NAMES if each != text)), _find(raw, ("title",))
    names = _numbers(len(raw.frame)) if name is None else tuple(_strings(raw, name))
    texts = _strings(raw, text, missing="")
    if title is not None and title != text:
        texts = [_joined(*both) for both in zip(_strings(raw, title, missing=""), texts, strict=True)]
    return _checked(raw.name, names, tuple(texts))


def read_judgements(source: Any) -> Judgements:
    """Read graded pairs of queries and documents.

    Args:
        source: TREC qrels (`query 0 document grade`), or a table with columns for the query, the document and perhaps
            the grade, such as BEIR's TSV (`query-id`, `corpus-id`, `score`). Grades below 0 count as 0.

    Example:
        >>> import polars as pl
        >>> pairs = pl.DataFrame({"query": ["a", "b", "a"], "document": [7, 8, 9], "grade": [2, 1, -1]})
        >>> found = read_judgements(pairs)
        >>> found.queries, found.documents, found.grades.tolist()
        (('a', 'b'), ('7', '8', '9'), [2.0, 1.0, 0.0])
    """
    if isinstance(source, Judgements):
        return source
    if isinstance(source, str | Path) and _is_trec(check_file(source), fields=4):
        rows = list(_trec_fields(Path(source), 4, number=3, form="query 0 document grade"))
        return _judgements([row[0] for row in rows], [row[2] for row in rows], [float(row[3]) for row in rows])
    raw = open_table(source, header="yes")
    query, document, grade = (_find(raw, names) for names in (QUERY_NAMES, DOCUMENT_NAMES, GRADE_NAMES))
    for column, names, what in ((query, QUERY_NAMES, "queries"), (document, DOCUMENT_NAMES, "documents")):
        if column is None:
            raise ValueError(f"{raw.name}: expected a column of {what}, called {_words(names)}, got {raw.columns[:6]}")
    assert query is not None
    assert document is not None
    grades = None
    if grade is not None:
        grades = read_numbers(raw.name, raw.frame, grade).tolist()
        if wrong := [row for row, value in enumerate(grades) if not abs(value) < float("inf")]:
            raise ValueError(f"{raw.name}, column {grade!r}: expected a grade in every row, got none in {wrong[0] + 1}")
    return _judgements(_strings(raw, query), _strings(raw, document), grades)


def is_file_name(text: str) -> bool:
    """Return whether a text names a file rather than being a query: it exists, or is one word with a known ending."""
    return os.path.exists(text) or (len(text.split()) == 1 and _suffix(Path(text)) in (*TABLES, ".txt"))


def is_texts(source: Any) -> bool:
    """Return whether a file or table holds texts alone, and no pairs of queries and documents."""
    if isinstance(source, str | Path):
        if _suffix(Path(source)) in (".txt", *JSON_LINES):
            return not _is_trec(check_file(source), fields=4)
        if _is_trec(check_file(source), fields=4):
            return False
    return _find(open_table(source, header="yes"), DOCUMENT_NAMES) is None


class TrecRun(NamedTuple):
    """Ranked documents of queries, as a TREC run file holds them; the order of the lines says nothing.

    Attributes:
        queries, rows, documents: see `Judgements`.
        scores: (P,) float64.
    """

    queries: tuple[str, ...]
    rows: Tensor
    documents: tuple[str, ...]
    scores: Tensor

    def by_query(self) -> dict[str, dict[str, float]]:
        """Return scores by document by query."""
        return _by_query(self.queries, self.rows, self.documents, self.scores.tolist())


def read_trec_run(path: str | Path) -> TrecRun:
    """Read a TREC run file: lines `query Q0 document rank score tag`."""
    rows = list(_trec_fields(check_file(path), 6, number=4, form="query Q0 document rank score tag"))
    judged = _judgements([row[0] for row in rows], [row[2] for row in rows], None)
    return TrecRun(*judged[:3], torch.tensor([float(row[4]) for row in rows], dtype=torch.float64))


def is_trec_run(path: str | Path) -> bool:
    """Return whether a file is a TREC run file: six fields in the first line, the fourth and fifth of them numbers."""
    path = check_file(path)
    if _suffix(path) in (".parquet", ".npz", ".arrow", ".feather"):
        return False
    block = next(read_line_blocks(path, block_bytes=1 << 16), None)
    first = next((line for line in (b"" if block is None else block.text).split(b"\n") if line.strip()), b"").split()
    return len(first) == 6 and first[3].isdigit() and is_finite_number(first[4])


def _by_query(
    queries: Sequence[str], rows: Tensor, documents: Sequence[str], values: Sequence[float]
) -> dict[str, dict[str, float]]:
    """Return values by document by query; of a repeated pair the highest."""
    by_query: dict[str, dict[str, float]] = {query: {} for query in queries}
    for row, document, value in zip(rows.tolist(), documents, values, strict=True):
        own = by_query[queries[row]]
        own[document] = max(value, own.get(document, value))
    return by_query


def _is_trec(path: Path, fields: int) -> bool:
    """Return whether the first line of a text file has so many fields, the last of them a whole number."""
    if _suffix(path) in (".parquet", ".arrow", ".feather", ".csv", *JSON_LINES):
        return False
    first = next((line for line in read_text(path).split("\n") if line.strip()), "").split()
    return len(first) == fields and first[-1].lstrip("-").isdecimal()


def _trec_fields(path: Path, count: int, *, number: int, form: str) -> Iterator[list[str]]:
    rows = 0
    for line, text in enumerate(read_text(path).split("\n"), start=1):
        fields = text.split()
        if not fields:
            continue
        if len(fields) != count or not is_finite_number(fields[number]):
            bad_line(path, line, f"`{form}`", repr(text[:60]))
        rows += 1
        yield fields
    if not rows:
        raise ValueError(f"{path}: expected lines `{form}`, got none")


def _judgements(queries: Sequence[str], documents: Sequence[str], grades: Sequence[float] | None) -> Judgements:
    numbers = {name: number for number, name in enumerate(dict.fromkeys(queries))}
    rows = torch.tensor([numbers[name] for name in queries], dtype=torch.int64)
    values = None if grades is None else torch.tensor(grades, dtype=torch.float32).clamp_min(0)
    return Judgements(tuple(numbers), rows, tuple(documents), values)


def _read_json_texts(path: Path) -> Texts:
    names: list[str] = []
    texts: list[str] = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            entry = None
        if not isinstance(entry, dict):
            bad_line(path, number, "a JSON object", repr(line[:60]))
        text = next((entry[key] for key in TEXT_NAMES if isinstance(entry.get(key), str)), None)
        if text is None:
            bad_line(path, number, f"a text, called {_words(TEXT_NAMES)}", repr(line[:60]))
        name = next((entry[key] for key in ID_NAMES if entry.get(key) is not None), len(names) + 1)
        title = entry.get("title")
        names.append(str(name))
        texts.append(_joined(title if isinstance(title, str) else "", text))
    return _checked(str(path), tuple(names), tuple(texts))


def _checked(source: str, names: tuple[str, ...], texts: tuple[Any, ...]) -> Texts:
    if not texts:
        raise ValueError(f"{source}: expected texts, got none")
    if wrong := [each for each in texts if not isinstance(each, str)]:
        raise ValueError(f"{source}: expected texts, got {wrong[0]!r}")
    if len(set(names)) < len(names):
        seen: set[str] = set()
        twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"{source}: expected a different name for every text, got {twice!r} twice")
    return Texts(names, texts)


def _find(raw: RawTable, names: Sequence[str]) -> str | None:
    """Return the column with the first of these names, upper and lower case alike."""
    columns = {column.lower(): column for column in reversed(raw.columns)}
    return next((columns[name] for name in names if name in columns), None)


def _strings(raw: RawTable, column: str, *, missing: str | None = None) -> list[str]:
    values = raw.frame[column].to_list()
    for row, value in enumerate(values):
        if value is None and missing is None:
            raise ValueError(f"{raw.name}, column {column!r}: expected a value in every row, got none in {row + 1}")
    return [missing if value is None else str(value) for value in values]  # type: ignore[misc]


def _find_file(folder: Path, stems: Sequence[str]) -> Path | None:
    endings = ("", *COMPRESSED)
    tried = (folder / f"{stem}{suffix}{end}" for stem in stems for suffix in (*TABLES, ".txt", "") for end in endings)
    return next((path for path in tried if path.is_file()), None)


def _suffix(path: Path) -> str:
    """Return the ending of a path, in lower case, without that of a compressed file."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def _joined(title: str, text: str) -> str:
    """Return the title and the text; texts that begin with their title are as they were."""
    title, text = title.strip(), text.strip()
    return text if not title or text.startswith(title) else f"{title} {text}".strip()


def _numbers(count: int) -> tuple[str, ...]:
    return tuple(str(number) for number in range(1, count + 1))


def _words(names: Sequence[str]) -> str:
    return " or ".join(map(repr, names[:4]))
