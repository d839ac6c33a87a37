"""Images by number: arrays in memory, or encoded files that are decoded when asked for."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from rankwise.checks import check_choice
from rankwise.extras import require

__all__ = ["ArrayImages", "EncodedImages", "ImageSource", "centre", "join_sources", "shrink", "to_bytes"]

COLOURS = {1: "L", 3: "RGB"}
# The weights of red, green and blue in a grey picture (ITU-R 601), as Pillow has them.
GREY = (0.299, 0.587, 0.114)
# Formats whose 16-bit images Pillow may open as 32-bit ones.
SIXTEEN_BITS = ("PNG", "PPM")
IMAGES_AT_ONCE = 512
# The EXIF tag of the orientation, and its values for images that lie on a side.
ORIENTATION, SIDEWAYS = 0x0112, (5, 6, 7, 8)


class ImageSource(Protocol):
    """Images by number."""

    def __len__(self) -> int:
        """Return the number of images."""

    def image(self, index: int) -> Tensor:
        """Return one image, uint8 (C, H, W)."""

    def name(self, index: int) -> str | None:
        """Return the name of its file, if it has one."""


def join_sources(first: ImageSource, second: ImageSource) -> tuple[ImageSource, int]:
    """Return a source with the images of both, and the number of the first image of the second one."""
    return (first, 0) if second is first else (_JoinedImages(first, second), len(first))


class _JoinedImages:
    """The images of one source and then those of another."""

    def __init__(self, first: ImageSource, second: ImageSource) -> None:
        self.first, self.second = first, second

    def __len__(self) -> int:
        return len(self.first) + len(self.second)

    def image(self, index: int) -> Tensor:
        """Return one image, uint8 (C, H, W)."""
        source, row = self._find(index)
        return source.image(row)

    def name(self, index: int) -> str | None:
        """Return the name of its file, if it has one."""
        source, row = self._find(index)
        return source.name(row)

    def _find(self, index: int) -> tuple[ImageSource, int]:
        own = index < len(self.first)
        return (self.first, index) if own else (self.second, index - len(self.first))


class ArrayImages:
    """Images in memory, all of one size.

    Args:
        images: (N, C, H, W) uint8.

    Example:
        >>> ArrayImages(torch.zeros(5, 1, 8, 8, dtype=torch.uint8)).image(3).shape
        torch.Size([1, 8, 8])
    """

    def __init__(self, images: Tensor) -> None:
        if images.dtype != torch.uint8 or images.dim() != 4:
            raise ValueError(f"images: expected uint8 of shape (N, C, H, W), got {images.dtype} {tuple(images.shape)}")
        self.images = images

    @classmethod
    def prepared(cls, images: Tensor, *, channels: int, resize: int | None, invert: bool) -> ArrayImages:
        """Return images with so many channels, the shorter side `resize` pixels long, inverted if asked."""
        done = []
        for block in images.split(IMAGES_AT_ONCE):
            block = _with_channels(block, channels)
            block = block if resize is None else shrink(block, resize)
            done.append(255 - block if invert else block)
        return cls(torch.cat(done))

    def __len__(self) -> int:
        return len(self.images)

    def image(self, index: int) -> Tensor:
        return self.images[index]

    def name(self, index: int) -> str | None:
        return None


class EncodedImages:
    """Images in files (JPEG, PNG, whatever Pillow reads), decoded when asked for.

    Grey images of 16 bits and of floating point numbers from 0 to 1 keep their range, see `to_bytes`.

    Args:
        contents: of each image its file, or the bytes of the file.
        names: what to call each image in an error.
        channels: 3 for colour, 1 for grey.
        resize: the length of the shorter side; None leaves images as they are.
        invert: swap light and dark.
        cache: keep what was decoded in memory.
    """

    def __init__(
        self,
        contents: Sequence[Path | bytes],
        names: Sequence[str],
        *,
        channels: int = 3,
        resize: int | None = None,
        invert: bool = False,
        cache: bool = False,
    ) -> None:
        require("reading images", ("PIL",))
        self.contents, self.names = contents, names
        self.channels, self.resize, self.invert = channels, resize, invert
        self._kept: dict[int, Tensor] | None = {} if cache else None

    def __len__(self) -> int:
        return len(self.contents)

    def image(self, index: int) -> Tensor:
        if self._kept is None:
            return self._decode(index)
        if index not in self._kept:
            self._kept[index] = self._decode(index)
        return self._kept[index]

    def name(self, index: int) -> str | None:
        return Path(self.names[index]).name

    def size(self, index: int) -> tuple[int, int]:
        """Return height and width in the file, upright, without decoding it."""
        with self._open(index) as opened:
            width, height = opened.size
            return (width, height) if opened.getexif().get(ORIENTATION) in SIDEWAYS else (height, width)

    @contextmanager
    def _open(self, index: int) -> Iterator[Any]:
        from PIL import Image

        content, name = self.contents[index], self.names[index]
        try:
            with Image.open(io.BytesIO(content) if isinstance(content, bytes) else content) as opened:
                yield opened
        except FileNotFoundError:
            raise FileNotFoundError(f"{name}: no such file") from None
        except (OSError, ValueError, SyntaxError, MemoryError, Image.DecompressionBombError) as problem:
            said = " ".join(str(problem).split()) or type(problem).__name__
            raise ValueError(f"{name}: expected an image that can be read ({said})") from None

    def _decode(self, index: int) -> Tensor:
        from PIL import Image, ImageOps

        name = self.names[index]
        with self._open(index) as opened:
            file_format, upright = opened.format, ImageOps.exif_transpose(opened)
            wide = upright.mode == "F" or upright.mode.startswith("I")
            if not wide:
                upright = upright.convert(COLOURS[self.channels])
        if wide:  # Pillow would cut such values off at 255
            values = np.array(upright)
            if upright.mode == "I" and file_format in SIXTEEN_BITS:
                values = values.astype(np.uint16)
            upright = Image.fromarray(to_bytes(name, values)).convert(COLOURS[self.channels])
        pixels = torch.from_numpy(np.array(upright))
        image = pixels[None] if pixels.dim() == 2 else pixels.permute(2, 0, 1)
        image = image if self.resize is None else shrink(image[None], self.resize)[0]
        return 255 - image if self.invert else image.contiguous()


def to_bytes(name: str, pixels: NDArray[Any]) -> NDArray[np.uint8]:
    """Return pixels as uint8: 16-bit numbers divided by 257, floating point numbers from 0 to 1 times 255, booleans as
    0 and 255; refuse all others.

    Args:
        name: of the image in errors.
        pixels: of any shape.

    Example:
        >>> to_bytes("image", np.array([0, 257, 65535], dtype=np.uint16)).tolist()
        [0, 1, 255]
    """
    kind, width = pixels.dtype.kind, pixels.dtype.itemsize
    if kind == "u" and width == 1:
        return pixels
    if kind == "b":
        return pixels.astype(np.uint8) * np.uint8(255)
    if kind == "u" and width == 2:
        return ((pixels.astype(np.uint32) + 128) // 257).astype(np.uint8)
    low, high = (pixels.min(), pixels.max()) if pixels.size and kind in "iuf" else (np.nan, np.nan)
    if kind == "f" and low >= 0 and high <= 1:
        return np.rint(pixels * 255.0).astype(np.uint8)
    raise ValueError(
        f"{name}: expected pixels of 8 or 16 bits, booleans, or floating point numbers from 0 to 1, got {pixels.dtype}"
        + (f" from {low:g} to {high:g}" if kind in "iuf" else "")
    )


def shrink(images: Tensor, side: int) -> Tensor:
    """Resize uint8 images (N, C, H, W) smoothly, so that the shorter side is `side` pixels long."""
    height, width = images.shape[2:]
    short = min(height, width)
    if short == side:
        return images
    shape = tuple(max(side, round(length * side / short)) for length in (height, width))
    resized = interpolate(images.float(), size=shape, mode="bilinear", antialias=True, align_corners=False)
    return resized.round_().clamp_(0, 255).to(torch.uint8)


def centre(image: Tensor, size: int) -> Tensor:
    """Return the middle `size` by `size` pixels of an image (..., H, W), both sides of which are at least that long."""
    top, left = ((length - size) // 2 for length in image.shape[-2:])
    return image[..., top : top + size, left : left + size]


def _with_channels(images: Tensor, channels: int) -> Tensor:
    check_choice("channels", str(channels), ("1", "3"))
    if images.shape[1] == channels:
        return images
    if channels == 3:
        return images.expand(-1, 3, -1, -1)
    weights = torch.tensor(GREY).view(3, 1, 1)
    return (images * weights).sum(1, keepdim=True).round().to(torch.uint8)
