"""Pictures as text that an HTML file can hold."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn.functional import interpolate

__all__ = ["data_uri", "png"]

# From this size on a photograph is much smaller as JPEG.
LARGE = 100


def data_uri(image: Tensor, side: int) -> str:
    """Return an image, uint8 (1 or 3, H, W), as a data URI, scaled down until its longer side is `side` pixels at most.

    Small ones are PNG; larger ones are JPEG where Pillow is installed.
    """
    height, width = image.shape[1:]
    longest = max(height, width)
    if longest > side:
        shape = tuple(max(1, round(length * side / longest)) for length in (height, width))
        smooth = interpolate(image[None].float(), size=shape, mode="bilinear", antialias=True, align_corners=False)
        image = smooth[0].round().clamp(0, 255).to(torch.uint8)
    kind, content = ("jpeg", _jpeg(image)) if max(image.shape[1:]) > LARGE and find_spec("PIL") else ("png", png(image))
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def png(image: Tensor) -> bytes:
    """Return an image, uint8 (1 or 3, H, W), as a PNG file.

    Example:
        >>> png(torch.zeros(1, 2, 2, dtype=torch.uint8))[:8]
        b'\\x89PNG\\r\\n\\x1a\\n'
    """
    channels, height, width = image.shape
    if image.dtype != torch.uint8 or channels not in (1, 3):
        raise ValueError(f"image: expected uint8 of shape (1 or 3, H, W), got {image.dtype} {tuple(image.shape)}")
    rows = image.permute(1, 2, 0).reshape(height, width * channels)
    # Every row begins with its filter; 0 is none.
    raw = torch.cat([torch.zeros(height, 1, dtype=torch.uint8), rows.cpu()], 1).contiguous().numpy().tobytes()
    head = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(raw, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in chunks
    )


def _jpeg(image: Tensor) -> bytes:
    from PIL import Image

    pixels = image.permute(1, 2, 0).contiguous().cpu().numpy()
    buffer = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(buffer, "JPEG", quality=82)
    return buffer.getvalue()
