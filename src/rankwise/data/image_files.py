"""Images from files and from memory, with the names of their classes where they have any."""

from __future__ import annotations

import csv
import io
import lzma
import tarfile
import warnings
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankwise.data.cifar import is_cifar, read_cifar
from rankwise.data.files import bad_line, check_expanded, read_arrays, read_text
from rankwise.data.image_layouts import ListedImages, find_layout
from rankwise.data.image_sources import ArrayImages, EncodedImages, ImageSource, to_bytes
from rankwise.data.schema import DataNote, Labels

__all__ = ["PARTS", "ImageSet", "container", "read_images"]

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
TARS = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2")
PARTS = ("train", "validation", "test", "gallery")
IMAGES_AT_ONCE = 512


@dataclass(frozen=True)
class ImageSet:
    """Images and their classes, as read.

    Attributes:
        source: the images.
        labels: (N,) classes 0 .. C-1, or (N, C) 1 for each class that an image has, where it may have several; None if
            the images have none.
        classes: names of the classes.
        parts: the part of each image ("train", "validation", "test" or "gallery"), if the source names it.
        name: of the source in errors.
    """

    source: ImageSource
    labels: Tensor | None
    classes: tuple[str, ...]
    parts: tuple[str, ...] | None = None
    name: str = "images"


def read_images(
    source: Any,
    *,
    labels: Labels = "required",
    channels: int = 3,
    resize: int | None = None,
    invert: bool = False,
    cache: bool = False,
) -> ImageSet:
    """Read images; arrays are read at once, files are decoded when an image is asked for.

    Args:
        source: a folder with one folder of images per class; a tar file of such a folder (plain, gz, xz, bz2), or a
            folder in it (`images.tar.xz/train`); a CSV file with the columns path, label and, if wanted, split (paths
            from the folder of the list); a data set in the layout of its authors (Stanford Online Products, VehicleID,
            iNaturalist, CUB-200-2011, Cars-196, ChestX-ray14, the archives of CIFAR); an npz file with the arrays
            `images` (N, H, W) or (N, H, W, C) and `labels` (N,), or a tuple of two such arrays. Pixels have 8 or 16
            bits, or are floating point numbers from 0 to 1, or booleans.
        labels: "optional" reads images without classes, too: a folder or a tar file of images alone, one image file, a
            sequence of files, a list without labels, an array.
        channels: 3 for colour, 1 for grey.
        resize: length of the shorter side in pixels; None leaves images as they are.
        invert: swap light and dark, for dark strokes on white paper.
        cache: keep decoded images in memory; arrays always are.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "tiny.npz"
        >>> np.savez(file, images=np.zeros((6, 8, 8), dtype=bool), labels=np.array([3, 3, 5, 5, 9, 9]))
        >>> images = read_images(file, channels=1)
        >>> images.classes, images.labels.tolist(), images.source.image(0).shape
        (('3', '5', '9'), [0, 0, 1, 1, 2, 2], torch.Size([1, 8, 8]))
    """
    arrays = _arrays_of(source)
    if arrays is not None:
        name = str(source) if isinstance(source, str | Path) else "arrays"
        pixels, given = _check_arrays(name, arrays, labels)
        images = ArrayImages.prepared(pixels, channels=channels, resize=resize, invert=invert)
        if given is None:
            return ImageSet(images, None, (), name=name)
        names, numbers = np.unique(given, return_inverse=True)
        targets = torch.from_numpy(numbers.reshape(-1).astype(np.int64))
        return ImageSet(images, targets, tuple(map(str, names.tolist())), name=name)
    if isinstance(source, str | Path) and is_cifar(Path(source)):
        return _cifar_images(Path(source), channels=channels, resize=resize, invert=invert)
    if isinstance(source, str | Path):
        name, listed = str(source), _read_files(Path(source), labels)
    else:
        name, listed = "files", _read_sequence(source, labels)
    encoded = EncodedImages(
        [content for content, _ in listed.files],
        [file for _, file in listed.files],
        channels=channels,
        resize=resize,
        invert=invert,
        cache=cache,
    )
    parts = None if listed.parts is None else tuple(listed.parts)
    if listed.words is None:
        return ImageSet(encoded, None, (), parts, name)
    targets, classes = _number_classes(listed.words, by_number=_is_list(name) or find_layout(Path(name)) is not None)
    return ImageSet(encoded, targets, classes, parts, name)


def _number_classes(words: list[str] | list[tuple[str, ...]], *, by_number: bool) -> tuple[Tensor, tuple[str, ...]]:
    """Return the classes of images by number, (N,) or, where an image may have several, (N, C), and their names."""
    several = isinstance(words[0], tuple)
    different = {each for word in words for each in (word if isinstance(word, tuple) else (word,))}
    classes = sorted(different, key=_numbers_first if by_number else str)
    number = {word: index for index, word in enumerate(classes)}
    if not several:
        return torch.tensor([number[str(word)] for word in words]), tuple(classes)
    if not classes:
        raise ValueError("images: expected some with a class, got none")
    targets = torch.zeros(len(words), len(classes), dtype=torch.int64)
    for row, own in enumerate(words):
        targets[row, [number[word] for word in own]] = 1
    return targets, tuple(classes)


def _cifar_images(path: Path, *, channels: int, resize: int | None, invert: bool) -> ImageSet:
    read = read_cifar(path)
    pixels = torch.from_numpy(read.images).permute(0, 3, 1, 2)
    images = ArrayImages.prepared(pixels, channels=channels, resize=resize, invert=invert)
    return ImageSet(images, torch.from_numpy(read.labels), read.classes, read.parts, str(path))


def container(path: Path) -> Path:
    """Return the file that is read: the path itself, or the tar file that a path leads into."""
    return next((above for above in path.parents if above.name.lower().endswith(TARS) and above.is_file()), path)


def _arrays_of(source: Any) -> dict[str, NDArray[Any]] | None:
    """Return the arrays of an npz file or from memory; None for any other source."""
    if isinstance(source, str | Path):
        path = Path(source)
        return read_arrays(path) if path.suffix.lower() == ".npz" and path.is_file() else None
    given = source if isinstance(source, tuple) else (source,)
    if not 1 <= len(given) <= 2 or not all(hasattr(each, "__array__") for each in given):
        return None
    return dict(zip(("images", "labels"), map(np.asarray, given), strict=False))


def _check_arrays(name: str, arrays: dict[str, NDArray[Any]], wanted: Labels) -> tuple[Tensor, NDArray[Any] | None]:
    """Return images (N, C, H, W) uint8 and their labels."""
    for key in ("images", "labels")[: 2 if wanted == "required" else 1]:
        if key not in arrays:
            raise ValueError(f"{name}: expected an array {key!r}, got {', '.join(arrays) or 'none'}")
    images, labels = arrays["images"], arrays.get("labels")
    leading = 1 if labels is None else labels.ndim
    shape = images.shape[leading:]
    if labels is not None and (images.shape[:leading] != labels.shape or not labels.size):
        raise ValueError(f"{name}: expected one label per image, got images {images.shape} and labels {labels.shape}")
    if not images.size or not (len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3))):
        raise ValueError(f"{name}: expected images (N, H, W) or (N, H, W, 3), got {images.dtype} {images.shape}")
    flat = images.reshape(-1, *shape)
    pixels = np.empty(flat.shape, dtype=np.uint8)
    for start in range(0, len(flat), IMAGES_AT_ONCE):
        pixels[start : start + IMAGES_AT_ONCE] = to_bytes(name, flat[start : start + IMAGES_AT_ONCE])
    tensor = torch.from_numpy(pixels)
    return tensor[:, None] if len(shape) == 2 else tensor.permute(0, 3, 1, 2), labels


def _read_files(path: Path, labels: Labels) -> ListedImages:
    where = container(path)
    if not where.exists():
        raise FileNotFoundError(f"{path}: no such file or folder")
    layout = find_layout(where)
    if layout is not None:
        return layout(where)
    if where.is_dir():
        return _read_folder(path, labels)
    if where.name.lower().endswith(TARS):
        return _read_tar(where, PurePosixPath(*path.parts[len(where.parts) :]), labels)
    if _is_list(where.name):
        return _read_list(where, labels)
    if _is_image(where.name):
        return _read_sequence([where], labels)
    raise ValueError(f"{path}: expected a folder, a tar file, a CSV list or an npz file of images")


def _read_sequence(source: Any, labels: Labels) -> ListedImages:
    if not isinstance(source, Sequence) or not source or not all(isinstance(each, str | Path) for each in source):
        raise TypeError(
            "source: expected a path, a sequence of image files, an array of images or a tuple of arrays (images, "
            f"labels), got {type(source).__name__}"
        )
    paths = [Path(each) for each in source]
    if labels == "required":
        raise ValueError(f"{paths[0]}: expected images with classes, got image files alone")
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file")
    return ListedImages([(path, str(path)) for path in paths])


def _read_folder(path: Path, labels: Labels) -> ListedImages:
    entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    loose = [(entry, str(entry)) for entry in entries if entry.is_file() and _is_image(entry.name)]
    by_class: dict[str, list[tuple[Path | bytes, str]]] = {
        folder.name: [(file, str(file)) for file in sorted(folder.rglob("*")) if _is_image(file.name)]
        for folder in entries
        if folder.is_dir()
    }
    return _by_class(path, by_class, list(loose), labels)


def _read_tar(path: Path, inside: PurePosixPath, labels: Labels) -> ListedImages:
    contents: dict[PurePosixPath, bytes] = {}
    size = 0
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                size += member.size
                check_expanded(path, size)
                name = PurePosixPath(*(part for part in PurePosixPath(member.name).parts if part not in (".", "/")))
                if member.isfile() and _is_image(name.name) and name.is_relative_to(inside):
                    file = archive.extractfile(member)
                    assert file is not None
                    contents[name.relative_to(inside)] = file.read()
    except (tarfile.TarError, EOFError, OSError, lzma.LZMAError, zlib.error, MemoryError) as problem:
        said = " ".join(str(problem).split()) or type(problem).__name__
        raise ValueError(f"{path}: expected a whole tar file ({said})") from None
    # A tar file often holds one folder that holds all the others.
    while len(tops := {name.parts[0] for name in contents if len(name.parts) > 2}) == 1 and all(
        len(name.parts) > 2 for name in contents
    ):
        inside /= tops.pop()
        contents = {PurePosixPath(*name.parts[1:]): content for name, content in contents.items()}
    by_class: dict[str, list[tuple[Path | bytes, str]]] = {}
    loose: list[tuple[Path | bytes, str]] = []
    for name in sorted(contents):
        files = by_class.setdefault(name.parts[0], []) if len(name.parts) > 1 else loose
        files.append((contents[name], str(path / inside / name)))
    return _by_class(path / inside, by_class, loose, labels)


def _by_class(
    path: Path,
    by_class: dict[str, list[tuple[Path | bytes, str]]],
    loose: list[tuple[Path | bytes, str]],
    labels: Labels,
) -> ListedImages:
    """Return the images in folders of their classes; if there are none, those in no folder."""
    if labels == "optional":
        by_class = {name: files for name, files in by_class.items() if files}
        if not by_class and not loose:
            raise ValueError(f"{path}: expected images ({', '.join(ENDINGS[:3])}, ...), got none")
        if not by_class:
            return ListedImages(loose)
    if not by_class:
        raise ValueError(f"{path}: expected one folder of images per class, got no folders")
    if empty := [name for name, files in by_class.items() if not files]:
        raise ValueError(
            f"{path}: expected images ({', '.join(ENDINGS[:3])}, ...) in the folder of every class, got none in "
            f"{empty[0]!r}" + (f" and {len(empty) - 1} more" if len(empty) > 1 else "")
        )
    if loose:
        said = f"{path}: ignored {len(loose)} images beside the folders of the classes"
        warnings.warn(said, DataNote, stacklevel=2)
    words = [name for name, files in by_class.items() for _ in files]
    return ListedImages([file for files in by_class.values() for file in files], words)


def _read_list(path: Path, labels: Labels) -> ListedImages:
    reader = csv.DictReader(io.StringIO(read_text(path)), delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
    columns = [name.strip() for name in reader.fieldnames or ()]
    reader.fieldnames = columns
    for wanted in ("path", "label")[: 2 if labels == "required" else 1]:
        if wanted not in columns:
            raise ValueError(f"{path}: expected a column {wanted!r}, got {', '.join(columns) or 'none'}")
    files: list[tuple[Path | bytes, str]] = []
    words, parts = [], []
    for row in reader:
        given, label, part = (str(row.get(key) or "").strip() for key in ("path", "label", "split"))
        file = path.parent / given
        if not given or ("label" in columns and not label):
            bad_line(path, reader.line_num, "a path and a label" if "label" in columns else "a path", "an empty one")
        if not file.is_file():
            bad_line(path, reader.line_num, "the path of an image", f"{given!r}, which is no file")
        if "split" in columns and part not in PARTS:
            bad_line(path, reader.line_num, f"one of {', '.join(PARTS)} as split", repr(part))
        files.append((file, str(file)))
        words.append(label)
        parts.append(part)
    if not files:
        raise ValueError(f"{path}: expected images, got a list without rows")
    return ListedImages(files, words if "label" in columns else None, parts if "split" in columns else None)


def _is_list(name: str) -> bool:
    return name.lower().endswith((".csv", ".tsv"))


def _is_image(name: str) -> bool:
    return name.lower().endswith(ENDINGS) and not name.startswith(".")


def _numbers_first(name: str) -> tuple[int, float, str]:
    return (0, float(name), name) if name.isascii() and name.isdigit() else (1, 0.0, name)
