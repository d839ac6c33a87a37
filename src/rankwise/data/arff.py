"""Multi-label ARFF files, dense or sparse, as Mulan and MEKA write them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from rankwise.data.files import LARGEST, bad_line, check_file, is_finite_number, read_line_blocks, read_text
from rankwise.data.multilabel import SparsePart, sparse_rows

__all__ = ["ATTRIBUTE", "is_multilabel_arff", "read_arff"]

ATTRIBUTE = re.compile(r"@attribute\s+('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\s{]+)\s*(.+)", re.IGNORECASE)
_LAST_LABELS = re.compile(r"-C\s+(-?\d+)")
_NUMERIC = ("numeric", "real", "integer")


LabelChoice = int | str | Path | tuple[str, ...] | None


def read_arff(path: str | Path, *, labels: LabelChoice = None) -> SparsePart:
    """Read a multi-label ARFF file; all attributes must be numbers, those that are labels 0 or 1.

    Args:
        path: the file.
        labels: the attributes that are labels: the last so many (a number), those named in an XML file as Mulan has it
            (a path), or those of these names, as far as the file has them (a tuple). By default the XML file beside it
            (`bibtex.xml` for `bibtex.arff`, `bibtex-train.arff`, `bibtex-test.arff`), else MEKA's `-C` in the name of
            the relation.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "songs.arff")
        ...     _ = path.write_text(
        ...         "@relation songs\\n@attribute loud numeric\\n@attribute sad {0,1}\\n@attribute fast {0,1}\\n"
        ...         "@data\\n{0 0.5, 2 1}\\n{1 1}\\n"
        ...     )
        ...     songs = read_arff(path, labels=2)
        >>> songs.features.dense().tolist(), songs.labels.dense().tolist(), songs.label_names
        ([[0.5], [0.0]], [[0.0, 1.0], [1.0, 0.0]], ('sad', 'fast'))
    """
    path = check_file(path)
    lines = read_text(path).splitlines()
    head = _read_head(path, lines)
    is_label = _label_columns(path, head, labels)
    rows, columns, values = _read_rows(path, lines, head)
    wrong = is_label[columns] & (values != 1) & (values != 0)
    if wrong.any():
        first = int(wrong.argmax())
        name = head.names[columns[first]]
        bad_line(path, head.line_of_row[rows[first]], f"0 or 1 as the label {name!r}", f"{values[first]:g}")
    kept = values != 0
    rows, columns, values = rows[kept], columns[kept], values[kept]
    sparse, names = [], []
    for wanted in (~is_label, is_label):
        chosen = wanted[columns]
        new_column = np.cumsum(wanted) - 1
        counts = np.bincount(rows[chosen], minlength=len(head.line_of_row))
        sparse.append(sparse_rows(counts, new_column[columns[chosen]], values[chosen], int(wanted.sum())))
        names.append(tuple(name for name, chosen in zip(head.names, wanted, strict=True) if chosen))
    return SparsePart(sparse[0], sparse[1] if is_label.any() else None, names[0], names[1])


def is_multilabel_arff(path: str | Path) -> bool:
    """Return whether an ARFF file says which of its attributes are labels: by an XML file beside it, or by `-C`."""
    path = check_file(path)
    block = next(read_line_blocks(path, block_bytes=1 << 16), None)
    lines = [] if block is None else block.text.decode("utf-8", errors="replace").splitlines()
    relation = next((line for line in lines if line.strip().lower().startswith("@relation")), "")
    return _xml_beside(path).exists() or _LAST_LABELS.search(relation) is not None


def _xml_beside(path: Path) -> Path:
    return path.with_name(re.sub(r"-(train|test)$", "", path.stem) + ".xml")


@dataclass(frozen=True)
class _Head:
    """The declarations above `@data`, and the lines below it that hold rows."""

    relation: str
    names: list[str]
    absent: list[str]  # the value of each attribute in a sparse row that does not name it
    line_of_row: list[int]


def _read_head(path: Path, lines: Sequence[str]) -> _Head:
    relation = ""
    seen: set[str] = set()
    names: list[str] = []
    absent: list[str] = []
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        word = text[:10].lower()
        if not text or text.startswith("%"):
            continue
        if word.startswith("@relation"):
            relation = text[9:].strip()
        elif word.startswith("@attribute"):
            match = ATTRIBUTE.match(text)
            if match is None:
                bad_line(path, number, "`@attribute name type`", repr(text))
            names.append(match[1].strip("'\""))
            if names[-1] in seen:
                bad_line(path, number, "a different name for every attribute", f"{names[-1]!r} again")
            seen.add(names[-1])
            absent.append(_absent_value(path, number, names[-1], match[2].strip()))
        elif word.startswith("@data"):
            rows = [
                line_number
                for line_number, row in enumerate(lines[number:], start=number + 1)
                if row.strip() and not row.lstrip().startswith("%")
            ]
            if not names or not rows:
                raise ValueError(f"{path}: expected attributes and rows, got {len(names)} and {len(rows)}")
            return _Head(relation, names, absent, rows)
        else:
            bad_line(path, number, "@relation, @attribute or @data", repr(text))
    raise ValueError(f"{path}: expected a line @data, got none (is this an ARFF file?)")


def _absent_value(path: Path, line: int, name: str, kind: str) -> str:
    if kind.lower() in _NUMERIC:
        return "0"
    words = [word.strip().strip("'\"") for word in kind.strip("{}").split(",")]
    if not kind.startswith("{") or not all(is_finite_number(word) for word in words):
        bad_line(path, line, f"numbers as the values of {name!r}: numeric or such as {{0,1}}", repr(kind))
    return words[0]


def _label_columns(path: Path, head: _Head, labels: LabelChoice) -> NDArray[np.bool_]:
    indices = np.arange(len(head.names))
    if labels is None:
        beside = _xml_beside(path)
        stated = _LAST_LABELS.search(head.relation)
        if beside.exists():
            labels = beside
        elif stated:
            # MEKA counts labels from the front, and from the back if the number is negative.
            count = int(stated[1])
            return indices < count if count >= 0 else indices >= len(indices) + count
        else:
            raise ValueError(
                f"labels: expected how many of the last attributes are labels, as there is no {beside}, got None"
            )
    if isinstance(labels, int):
        if isinstance(labels, bool) or not 0 < labels < len(indices):
            fewer = f"a number from 1 to {len(indices) - 1}, as {path} has {len(indices)} attributes"
            raise ValueError(f"labels: expected {fewer}, got {labels}")
        return indices >= len(indices) - labels
    if isinstance(labels, tuple):
        return np.isin(head.names, labels)
    wanted = _xml_names(check_file(labels))
    if unknown := [name for name in wanted if name not in set(head.names)]:
        raise ValueError(f"{labels}: expected labels that are attributes of {path}, got {unknown[0]!r}")
    return np.isin(head.names, wanted)


def _xml_names(path: Path) -> list[str]:
    text = read_text(path)
    if "<!" in text.replace("<!--", ""):
        raise ValueError(f"{path}: expected an XML file of labels without declarations (<!...>), got some")
    try:
        # Without declarations there are no entities, which make untrusted XML dangerous.
        root = ElementTree.fromstring(text)  # noqa: S314
    except ElementTree.ParseError as problem:
        raise ValueError(f"{path}: expected an XML file of labels, got {problem}") from None
    names = [name for each in root.iter() if each.tag.endswith("label") and (name := each.get("name")) is not None]
    if not names:
        raise ValueError(f"{path}: expected <label name=...>, got none")
    return names


def _read_rows(
    path: Path, lines: Sequence[str], head: _Head
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """Return the entries of all rows: row, column, value."""
    width = len(head.names)
    texts = [lines[number - 1].strip() for number in head.line_of_row]
    sparse = texts[0].startswith("{")
    tokens: list[str] = []
    counts = []
    for text in texts:
        own = text[1:-1].replace(",", " ").split() if sparse else text.split(",")
        if (text.startswith("{") and text.endswith("}")) != sparse or (len(own) % 2 if sparse else len(own) != width):
            _find_bad_row(path, lines, head, sparse=sparse)
        counts.append(len(own) // 2 if sparse else width)
        tokens += own
    try:
        numbers = np.array(tokens, dtype=np.float64)
    except ValueError:
        _find_bad_row(path, lines, head, sparse=sparse)
    rows = np.repeat(np.arange(len(texts)), counts)
    columns = numbers[0::2] if sparse else np.tile(np.arange(width, dtype=np.float64), len(texts))
    values = numbers[1::2] if sparse else numbers
    good = (columns >= 0) & (columns < width) & (columns == np.rint(columns)) & (np.abs(values) <= LARGEST)
    if not good.all() or len(np.unique(rows * width + columns)) != len(rows):
        _find_bad_row(path, lines, head, sparse=sparse)
    if sparse and (strange := [name for name, value in zip(head.names, head.absent, strict=True) if float(value) != 0]):
        raise ValueError(
            f"{path}: expected attributes whose first value is 0, as rows leave out what has the first value, "
            f"got {strange[0]!r}"
        )
    return rows, columns.astype(np.int64), values.astype(np.float32)


def _find_bad_row(path: Path, lines: Sequence[str], head: _Head, *, sparse: bool) -> NoReturn:
    """Raise the error of the first bad row of a file that is known to hold one: slow, and only then."""
    width = len(head.names)
    for number in head.line_of_row:
        text = lines[number - 1].strip()
        if (text.startswith("{") and text.endswith("}")) != sparse:
            bad_line(path, number, "`{index value, ...}`" if sparse else f"{width} values", repr(text))
        if sparse:
            seen = set()
            for pair in text[1:-1].split(",") if text != "{}" else []:
                index, _, value = pair.strip().partition(" ")
                if not index.isdigit() or int(index) >= width or int(index) in seen or not is_finite_number(value):
                    bad_line(
                        path, number, f"`index number` with different indices from 0 to {width - 1}", repr(pair.strip())
                    )
                seen.add(int(index))
        else:
            values = text.split(",")
            if len(values) != width:
                bad_line(path, number, f"{width} values", f"{len(values)}")
            for value in values:
                if not is_finite_number(value):
                    bad_line(path, number, "finite numbers (float32)", repr(value.strip()))
    raise ValueError(f"{path}: expected rows of numbers, got something else")
