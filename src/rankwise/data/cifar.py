"""CIFAR-10 and CIFAR-100 from their official archives, python and binary versions."""

from __future__ import annotations

import io
import lzma
import pickletools
import tarfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankwise.data.files import check_expanded

__all__ = ["CifarImages", "is_cifar", "read_cifar"]

PIXELS = 3 * 32 * 32
# The files of each version, with the parts they hold, and the file of the names of the classes.
VERSIONS: Mapping[str, tuple[Mapping[str, str], str]] = {
    "python 10": ({**{f"data_batch_{n}": "train" for n in range(1, 6)}, "test_batch": "test"}, "batches.meta"),
    "python 100": ({"train": "train", "test": "test"}, "meta"),
    "binary 10": (
        {**{f"data_batch_{n}.bin": "train" for n in range(1, 6)}, "test_batch.bin": "test"},
        "batches.meta.txt",
    ),
    "binary 100": ({"train.bin": "train", "test.bin": "test"}, "fine_label_names.txt"),
}
ARCHIVES = (".tar.gz", ".tgz", ".tar")
# Far more than the largest of the files holds; a pickle names its 50,000 images.
LARGEST_FILE, MOST_OPERATIONS = 1 << 28, 1_000_000


class CifarImages(NamedTuple):
    """Images (N, 32, 32, 3) uint8, their labels (N,), the names of the classes, and the part of each image."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    parts: tuple[str, ...]


def is_cifar(path: Path) -> bool:
    """Return whether a path is a folder or an archive of CIFAR, by its name and the names of its files."""
    if path.is_dir():
        return _version(set(_names_in(path))) is not None
    return path.is_file() and path.name.lower().startswith("cifar-") and path.name.lower().endswith(ARCHIVES)


def read_cifar(path: Path) -> CifarImages:
    """Read CIFAR-10 or CIFAR-100: `cifar-10-python.tar.gz`, `cifar-100-binary.tar.gz`, or the unpacked folder.

    The files of the python version are pickles. They are read, not executed: only what these files consist of is
    understood (numbers, texts, lists, mappings and arrays of bytes), anything else is refused.

    Args:
        path: the archive, or the folder that holds its files.
    """
    files = _contents(path)
    version = _version(set(files))
    if version is None:
        raise ValueError(
            f"{path}: expected the files of CIFAR-10 or CIFAR-100, got {', '.join(sorted(files)[:5]) or 'none'}"
        )
    batches, names = VERSIONS[version]
    parts: list[str] = []
    images, labels = [], []
    for name, part in batches.items():
        where = f"{path}, {name}"
        pixels, own = (_read_binary if "binary" in version else _read_pickled)(where, files[name], version)
        if pixels.shape != (len(own), PIXELS) or not len(own):
            raise ValueError(
                f"{where}: expected {PIXELS} bytes and a label for each image, got {pixels.shape} and {len(own)}"
            )
        images.append(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        labels.append(own)
        parts += [part] * len(own)
    classes = _class_names(f"{path}, {names}", files.get(names), version)
    numbers = np.concatenate(labels)
    if numbers.min() < 0 or numbers.max() >= len(classes):
        raise ValueError(
            f"{path}: expected labels from 0 to {len(classes) - 1}, got {numbers.min()} to {numbers.max()}"
        )
    return CifarImages(np.concatenate(images), numbers, classes, tuple(parts))


def _names_in(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir() if file.is_file()]


def _version(names: set[str]) -> str | None:
    return next((version for version, (batches, _) in VERSIONS.items() if set(batches) <= names), None)


def _contents(path: Path) -> dict[str, bytes]:
    """Return the files of a folder or an archive by name."""
    wanted = {name for batches, names in VERSIONS.values() for name in (*batches, names)}
    contents: dict[str, bytes] = {}
    if path.is_dir():
        for name in _names_in(path):
            if name in wanted:
                _check_size(path / name, (path / name).stat().st_size)
                contents[name] = (path / name).read_bytes()
        return contents
    size = 0
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                size += member.size
                check_expanded(path, size)
                name = PurePosixPath(member.name).name
                if member.isfile() and name in wanted:
                    _check_size(path, member.size)
                    file = archive.extractfile(member)
                    assert file is not None
                    contents[name] = file.read()
    except (tarfile.TarError, EOFError, OSError, lzma.LZMAError, zlib.error, MemoryError) as problem:
        said = " ".join(str(problem).split()) or type(problem).__name__
        raise ValueError(f"{path}: expected a whole tar file ({said})") from None
    return contents


def _check_size(path: Path, size: int) -> None:
    if size > LARGEST_FILE:
        raise ValueError(f"{path}: expected files of at most {LARGEST_FILE >> 20} MiB, got one of {size >> 20} MiB")


def _read_binary(where: str, content: bytes, version: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    before = 2 if version.endswith("100") else 1  # CIFAR-100 has a coarse label first
    if not content or len(content) % (before + PIXELS):
        raise ValueError(f"{where}: expected records of {before + PIXELS} bytes, got {len(content)} bytes")
    rows = np.frombuffer(content, dtype=np.uint8).reshape(-1, before + PIXELS)
    return rows[:, before:], rows[:, before - 1].astype(np.int64)


def _read_pickled(where: str, content: bytes, version: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    batch = _mapping(where, content)
    pixels, labels = batch.get("data"), batch.get("fine_labels" if version.endswith("100") else "labels")
    if (
        not isinstance(pixels, np.ndarray)
        or not isinstance(labels, list)
        or not all(type(each) is int for each in labels)
    ):
        raise ValueError(f"{where}: expected `data` and `labels`, got {', '.join(map(str, batch)) or 'nothing'}")
    if any(not 0 <= each < 1000 for each in labels):
        raise ValueError(f"{where}: expected labels of at least 0, got others")
    return pixels, np.array(labels, dtype=np.int64)


def _class_names(where: str, content: bytes | None, version: str) -> tuple[str, ...]:
    if content is None:
        raise ValueError(f"{where}: expected the names of the classes, got no such file")
    if "binary" in version:
        return tuple(line.strip() for line in content.decode("utf-8", "replace").splitlines() if line.strip())
    names = _mapping(where, content).get("fine_label_names" if version.endswith("100") else "label_names")
    if not isinstance(names, list) or not names or not all(isinstance(each, str) for each in names):
        raise ValueError(f"{where}: expected the names of the classes, got others")
    return tuple(names)


def _mapping(where: str, content: bytes) -> dict[Any, Any]:
    try:
        value = _Reader().read(content)
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, RecursionError) as problem:
        said = " ".join(str(problem).split()) or type(problem).__name__
        raise ValueError(f"{where}: expected a file of CIFAR as it was given out ({said})") from None
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected a mapping, got {type(value).__name__}")
    return value


class _Bytes:
    """An array of bytes as a pickle makes it: first empty, then filled."""

    array: NDArray[np.uint8] | None = None


class _Reader:
    """Reads a pickle of texts, numbers, lists, mappings and arrays of bytes; calls nothing that the file names."""

    GLOBALS: ClassVar[Mapping[str, str]] = {
        "numpy.core.multiarray _reconstruct": "array",
        "numpy._core.multiarray _reconstruct": "array",
        "numpy ndarray": "class",
        "numpy dtype": "dtype",
        "_codecs encode": "encode",
    }

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def read(self, content: bytes) -> Any:
        acts = self._acts()
        for count, (operation, argument, _) in enumerate(pickletools.genops(io.BytesIO(content))):
            if count > MOST_OPERATIONS:
                raise ValueError(f"more than {MOST_OPERATIONS:,} operations")
            if operation.name == "STOP":
                return _plain(self.stack.pop())
            act = acts.get(operation.name)
            if act is None:
                raise ValueError(f"the operation {operation.name}, which such files do not have")
            act(argument)
        raise ValueError("no end")

    def _acts(self) -> Mapping[str, Callable[[Any], None]]:
        push = self.stack.append
        plain = ("BININT", "BININT1", "BININT2", "INT", "LONG1", "NONE")
        texts = ("BINSTRING", "SHORT_BINSTRING", "STRING", "BINUNICODE", "SHORT_BINUNICODE", "UNICODE")
        return {
            "PROTO": lambda _: None,
            "FRAME": lambda _: None,
            **dict.fromkeys((*plain, *texts, "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"), push),
            "NEWTRUE": lambda _: push(True),
            "NEWFALSE": lambda _: push(False),
            "EMPTY_DICT": lambda _: push({}),
            "EMPTY_LIST": lambda _: push([]),
            "EMPTY_TUPLE": lambda _: push(()),
            "MARK": lambda _: self.marks.append(len(self.stack)),
            "DICT": lambda _: push(_pairs(self._marked())),
            "LIST": lambda _: push(self._marked()),
            "TUPLE": lambda _: push(tuple(self._marked())),
            "TUPLE1": lambda _: self._tuple(1),
            "TUPLE2": lambda _: self._tuple(2),
            "TUPLE3": lambda _: self._tuple(3),
            "APPEND": lambda _: self._append([self.stack.pop()]),
            "APPENDS": lambda _: self._append(self._marked()),
            "SETITEM": lambda _: self._set([self.stack.pop(-2), self.stack.pop()]),
            "SETITEMS": lambda _: self._set(self._marked()),
            "GLOBAL": self._global,
            "REDUCE": lambda _: self._reduce(),
            "BUILD": lambda _: self._build(),
            "MEMOIZE": lambda _: self.memo.__setitem__(len(self.memo), self.stack[-1]),
            **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), lambda key: self.memo.__setitem__(key, self.stack[-1])),
            **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda key: push(self.memo[key])),
        }

    def _marked(self) -> list[Any]:
        start = self.marks.pop()
        items, self.stack[start:] = self.stack[start:], []
        return items

    def _tuple(self, count: int) -> None:
        items, self.stack[-count:] = tuple(self.stack[-count:]), []
        self.stack.append(items)

    def _append(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise ValueError("items of something that is no list")
        self.stack[-1].extend(items)

    def _set(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], dict):
            raise ValueError("items of something that is no mapping")
        self.stack[-1].update(_pairs(items))

    def _global(self, name: str) -> None:
        if name not in self.GLOBALS:
            raise ValueError(f"the name {name!r}, which such files do not use")
        self.stack.append(self.GLOBALS[name])

    def _reduce(self) -> None:
        arguments, called = self.stack.pop(), self.stack.pop()
        if called == "encode" and isinstance(arguments, tuple) and arguments and isinstance(arguments[0], str):
            self.stack.append(arguments[0].encode("latin-1"))
        elif called in ("array", "dtype") and isinstance(arguments, tuple):
            self.stack.append(_Bytes() if called == "array" else ("dtype", _text(arguments[0])))
        else:
            raise ValueError("a call that such files do not have")

    def _build(self) -> None:
        state = self.stack.pop()
        made = self.stack[-1]
        if isinstance(made, tuple) and made[:1] == ("dtype",):
            return  # byte order and alignment, of which bytes have none
        if not isinstance(made, _Bytes) or not isinstance(state, tuple) or len(state) != 5:
            raise ValueError("a state that such files do not have")
        _, shape, kind, by_columns, content = state
        if kind != ("dtype", "u1") or by_columns or not isinstance(shape, tuple):
            raise ValueError("an array that does not hold bytes by rows")
        raw = content.encode("latin-1") if isinstance(content, str) else content
        made.array = np.frombuffer(raw, dtype=np.uint8).reshape(tuple(int(each) for each in shape))


def _pairs(items: list[Any]) -> dict[Any, Any]:
    return {_text(key): value for key, value in zip(items[::2], items[1::2], strict=True)}


def _text(value: Any) -> Any:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _plain(value: Any) -> Any:
    """Return what was read with texts as text and arrays as arrays."""
    if isinstance(value, _Bytes):
        return value.array
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_text(each) for each in value] if isinstance(value, list) else value
