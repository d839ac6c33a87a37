"""Reading labelled images: a folder of folders, such a folder in a tar file, a CSV list, or arrays in an npz file."""

from __future__ import annotations

import csv
import io
import lzma
import tarfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from torch import Tensor

from rankwise.data.arrays import read_arrays
from rankwise.data.files import bad_line, check_expanded, read_text
from rankwise.data.image_sources import ArrayImages, EncodedImages, ImageSource

__all__ = ["ImageOptions", "ImageSet", "container", "read_images"]

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
TARS = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2")
PARTS = ("train", "validation", "test", "gallery")


@dataclass(frozen=True)
class ImageOptions:
    """How images are prepared.

    Attributes:
        channels: 3 for colour, 1 for grey.
        resize: the length of the shorter side in pixels; None leaves images as they are.
        invert: swap light and dark, for dark strokes on white paper.
        cache: keep decoded images in memory (arrays always are).
    """

    channels: int = 3
    resize: int | None = None
    invert: bool = False
    cache: bool = False


@dataclass(frozen=True)
class ImageSet:
    """Images and their classes, as read.

    Attributes:
        source: the images.
        labels: (N,) classes 0 .. C-1; classes: what they are called.
        parts: of each image the part it belongs to ("train", "validation", "test" or "gallery"), if the file says so.
    """

    source: ImageSource
    labels: Tensor
    classes: tuple[str, ...]
    parts: tuple[str, ...] | None = None


def read_images(path: str | Path, options: ImageOptions | None = None) -> ImageSet:
    """Read labelled images; only arrays are read at once, files are decoded when an image is asked for.

    Args:
        path: a folder with one folder of images per class; a tar file of such a folder (plain, gz, xz, bz2), or a
            folder in it (`images.tar.xz/train`); a CSV file with the columns path, label and, if wanted, split (paths
            from the folder of the list); or an npz file with the arrays `images` (N, H, W) or (N, H, W, C), uint8 or
            bool, and `labels` (N,).
        options: see `ImageOptions`.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "tiny.npz"
        >>> np.savez(file, images=np.zeros((6, 8, 8), dtype=bool), labels=np.array([3, 3, 5, 5, 9, 9]))
        >>> found = read_images(file, ImageOptions(channels=1))
        >>> found.classes, found.labels.tolist(), found.source.image(0).shape
        (('3', '5', '9'), [0, 0, 1, 1, 2, 2], torch.Size([1, 8, 8]))
    """
    path, options = Path(path), options or ImageOptions()
    where = container(path)
    if not where.exists():
        raise FileNotFoundError(f"{path}: no such file or folder")
    if where.is_dir():
        return _read_folder(path, options)
    if where.name.lower().endswith(TARS):
        return _read_tar(where, PurePosixPath(*path.parts[len(where.parts) :]), options)
    if where.suffix.lower() == ".npz":
        return _read_arrays(where, options)
    if where.suffix.lower() in (".csv", ".tsv"):
        return _read_list(where, options)
    raise ValueError(f"{path}: expected a folder, a tar file, a CSV list or an npz file of images")


def container(path: Path) -> Path:
    """The file that is read: the path itself, or the tar file that a path leads into."""
    return next((above for above in path.parents if above.name.lower().endswith(TARS) and above.is_file()), path)


def _read_folder(path: Path, options: ImageOptions) -> ImageSet:
    folders = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    found = {folder.name: sorted(file for file in folder.rglob("*") if _is_image(file.name)) for folder in folders}
    return _of_classes(path, {name: [(file, str(file)) for file in files] for name, files in found.items()}, options)


def _read_tar(path: Path, inside: PurePosixPath, options: ImageOptions) -> ImageSet:
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
    found: dict[str, list[tuple[Path | bytes, str]]] = {}
    for name in sorted(contents):
        if len(name.parts) > 1:
            found.setdefault(name.parts[0], []).append((contents[name], str(path / inside / name)))
    return _of_classes(path / inside, dict(sorted(found.items())), options)


def _of_classes(path: Path, found: dict[str, list[tuple[Path | bytes, str]]], options: ImageOptions) -> ImageSet:
    if not found:
        raise ValueError(f"{path}: expected one folder of images per class, got no folders")
    empty = [name for name, files in found.items() if not files]
    if empty:
        raise ValueError(
            f"{path}: expected images ({', '.join(ENDINGS[:3])}, ...) in the folder of every class, got none in "
            f"{empty[0]!r}" + (f" and {len(empty) - 1} more" if len(empty) > 1 else "")
        )
    labels = [number for number, files in enumerate(found.values()) for _ in files]
    files = [file for files in found.values() for file in files]
    return ImageSet(_encoded(files, options), torch.tensor(labels), tuple(found))


def _read_list(path: Path, options: ImageOptions) -> ImageSet:
    reader = csv.DictReader(io.StringIO(read_text(path)), delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
    columns = [name.strip() for name in reader.fieldnames or ()]
    reader.fieldnames = columns
    for wanted in ("path", "label"):
        if wanted not in columns:
            raise ValueError(f"{path}: expected a column {wanted!r}, got {', '.join(columns) or 'none'}")
    files: list[tuple[Path | bytes, str]] = []
    names, parts = [], []
    for row in reader:
        given, label, part = (str(row.get(key) or "").strip() for key in ("path", "label", "split"))
        file = path.parent / given
        if not given or not label:
            bad_line(path, reader.line_num, "a path and a label", "an empty one")
        if not file.is_file():
            bad_line(path, reader.line_num, "the path of an image", f"{given!r}, which is no file")
        if "split" in columns and part not in PARTS:
            bad_line(path, reader.line_num, f"one of {', '.join(PARTS)} as split", repr(part))
        files.append((file, str(file)))
        names.append(label)
        parts.append(part)
    if not files:
        raise ValueError(f"{path}: expected images, got a list without rows")
    classes = sorted(set(names), key=_numbers_first)
    number = {name: place for place, name in enumerate(classes)}
    labels = torch.tensor([number[name] for name in names])
    return ImageSet(_encoded(files, options), labels, tuple(classes), tuple(parts) if "split" in columns else None)


def _read_arrays(path: Path, options: ImageOptions) -> ImageSet:
    arrays = read_arrays(path)
    missing = [name for name in ("images", "labels") if name not in arrays]
    if missing:
        raise ValueError(f"{path}: expected an array {missing[0]!r}, got {', '.join(arrays) or 'none'}")
    images, labels = arrays["images"], arrays["labels"]
    if images.dtype == np.bool_:
        images = images.astype(np.uint8) * np.uint8(255)
    shape = images.shape[labels.ndim :]
    if images.shape[: labels.ndim] != labels.shape or not labels.size:
        raise ValueError(f"{path}: expected one label per image, got images {images.shape} and labels {labels.shape}")
    if images.dtype != np.uint8 or not (len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3))):
        raise ValueError(
            f"{path}: expected images (N, H, W) or (N, H, W, 3) of uint8 or bool, got {images.dtype} {images.shape}"
        )
    pixels = torch.from_numpy(images.reshape(-1, *shape))
    pixels = pixels[:, None] if len(shape) == 2 else pixels.permute(0, 3, 1, 2)
    names, numbers = np.unique(labels, return_inverse=True)
    source = ArrayImages.prepared(pixels, channels=options.channels, resize=options.resize, invert=options.invert)
    return ImageSet(source, torch.from_numpy(numbers.reshape(-1).astype(np.int64)), tuple(map(str, names.tolist())))


def _encoded(files: Sequence[tuple[Path | bytes, str]], options: ImageOptions) -> EncodedImages:
    return EncodedImages(
        [content for content, _ in files],
        [name for _, name in files],
        channels=options.channels,
        resize=options.resize,
        invert=options.invert,
        cache=options.cache,
    )


def _is_image(name: str) -> bool:
    return name.lower().endswith(ENDINGS) and not name.startswith(".")


def _numbers_first(name: str) -> tuple[int, float, str]:
    return (0, float(name), name) if name.isascii() and name.isdigit() else (1, 0.0, name)
