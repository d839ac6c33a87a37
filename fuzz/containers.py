"""Files of other people's making: npz, Parquet, tar, pictures, checkpoints."""

from __future__ import annotations

import io
import tarfile
import zlib

import numpy as np
import polars as pl
from PIL import Image
from target import fuzz, instrumented

with instrumented():
    from rankwise.data import EncodedImages, read_images, read_scores, read_table
    from rankwise.training import read_checkpoint

import torch


def packed(save) -> bytes:
    """What a function writes to a file."""
    file = io.BytesIO()
    save(file)
    return file.getvalue()


def tarred(name: str, content: bytes, mode: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


PICTURE = packed(lambda file: Image.new("L", (4, 4)).save(file, "PNG"))
SEEDS = [
    packed(lambda file: np.savez(file, X=np.ones((3, 2)), y=np.array([0, 1, 0]))),
    packed(lambda file: np.savez_compressed(file, images=np.zeros((2, 4, 4), np.uint8), labels=np.arange(2))),
    packed(lambda file: pl.DataFrame({"a": [1.0, 2.0], "label": [0, 1], "score": [0.5, 0.1]}).write_parquet(file)),
    packed(lambda file: pl.DataFrame({"a": [1.0, 2.0], "label": [0, 1]}).write_ipc(file)),
    packed(lambda file: pl.DataFrame({"a": [1.0, 2.0], "label": [0, 1]}).write_ipc(file, compression="zstd")),
    tarred("all/one/1.png", PICTURE, "w"),
    tarred("all/one/1.png", PICTURE, "w:gz"),
    PICTURE,
    packed(lambda file: Image.new("RGB", (4, 4)).save(file, "JPEG")),
    packed(lambda file: torch.save({"model": {"w": torch.ones(3)}, "step": 4}, file)),
    zlib.compress(b"nothing"),
]


def all_images(path):
    """Every image decoded, with or without classes."""
    found = read_images(path, labels="optional", channels=1, resize=4)
    return [found.source.image(index) for index in range(min(len(found.source), 3))]


READERS = {
    "table.npz": read_table,
    "scores.npz": read_scores,
    "images.npz": all_images,
    "table.parquet": read_table,
    "table.arrow": read_table,
    "scores.parquet": read_scores,
    "images.tar": all_images,
    "images.tar.gz": all_images,
    "picture.png": lambda path: EncodedImages([path], [str(path)], channels=3, resize=4).image(0),
    "step-00000001.pt": read_checkpoint,
}

if __name__ == "__main__":
    fuzz(READERS, SEEDS)
