"""Small made-up images whose class can be seen: a bright square at a position of its own, in noise."""

from __future__ import annotations

import numpy as np
import torch

from rankwise.data import ArrayImages, ImagePart, Split


def make_pictures(classes=9, each=8, size=16, channels=1, seed=0):
    """Images (N, C, size, size) uint8 and labels (N,), at most 16 classes."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(each)
    images = torch.randint(0, 120, (len(labels), channels, size, size), generator=generator)
    step = size // 4
    for image, label in zip(images, labels.tolist(), strict=True):
        row, column = step * (label // 4), step * (label % 4)
        image[:, row : row + step, column : column + step] += 100
    return images.to(torch.uint8), labels


def make_part(**options):
    images, labels = make_pictures(**options)
    names = tuple(f"class {number}" for number in range(int(labels.max()) + 1))
    return ImagePart(ArrayImages(images), torch.arange(len(labels)), labels, names)


def make_split(**options):
    return Split(*(make_part(**{**options, "seed": seed}) for seed in range(3)))


def write_folder(folder, **options):
    """The images as PNG files, a folder for each class."""
    from PIL import Image

    images, labels = make_pictures(**options)
    for number, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
        place = folder / f"class-{label:02d}"
        place.mkdir(parents=True, exist_ok=True)
        pixels = image[0].numpy() if len(image) == 1 else np.moveaxis(image.numpy(), 0, 2)
        Image.fromarray(pixels).save(place / f"{number:04d}.png")
    return images, labels
