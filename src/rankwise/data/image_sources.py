"""Where images come from: arrays in memory, or encoded files that are decoded when asked for."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from rankwise.checks import check_choice
from rankwise.data.extras import need

__all__ = ["ArrayImages", "EncodedImages", "ImageSource", "centre", "shrink"]

COLOURS = {1: "L", 3: "RGB"}
# The weights of red, green and blue in a grey picture (ITU-R 601), as Pillow has them.
GREY = (0.299, 0.587, 0.114)
IMAGES_AT_ONCE = 512


class ImageSource(Protocol):
    """Images by number."""

    def __len__(self) -> int:
        """How many there are."""

    def image(self, index: int) -> Tensor:
        """One image, uint8 (C, H, W)."""

    def name(self, index: int) -> str | None:
        """The name of its file, if it has one."""


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
        """The images with so many channels, the shorter side `resize` pixels long, light and dark swapped if asked."""
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
        need("PIL", "reading images", extra="vision")
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

    def _decode(self, index: int) -> Tensor:
        from PIL import Image, ImageOps

        content = self.contents[index]
        try:
            with Image.open(io.BytesIO(content) if isinstance(content, bytes) else content) as opened:
                upright = ImageOps.exif_transpose(opened).convert(COLOURS[self.channels])
        except FileNotFoundError:
            raise FileNotFoundError(f"{self.names[index]}: no such file") from None
        except (OSError, ValueError, SyntaxError, MemoryError, Image.DecompressionBombError) as problem:
            said = " ".join(str(problem).split()) or type(problem).__name__
            raise ValueError(f"{self.names[index]}: expected an image that can be read ({said})") from None
        pixels = torch.from_numpy(np.array(upright))
        image = pixels[None] if pixels.dim() == 2 else pixels.permute(2, 0, 1)
        image = image if self.resize is None else shrink(image[None], self.resize)[0]
        return 255 - image if self.invert else image.contiguous()


def shrink(images: Tensor, side: int) -> Tensor:
    """uint8 images (N, C, H, W) with the shorter side `side` pixels long, smoothly."""
    height, width = images.shape[2:]
    short = min(height, width)
    if short == side:
        return images
    shape = tuple(max(side, round(length * side / short)) for length in (height, width))
    resized = interpolate(images.float(), size=shape, mode="bilinear", antialias=True, align_corners=False)
    return resized.round_().clamp_(0, 255).to(torch.uint8)


def centre(image: Tensor, size: int) -> Tensor:
    """The middle of an image (..., H, W): `size` by `size` pixels, both sides at least that long."""
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
