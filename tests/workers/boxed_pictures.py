"""Small made-up images with objects to be found: bright squares and dark bars on grey, in the forms of VOC and COCO."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

from rankwise.data import ArrayImages, BoxedImage, DetectionPart, Split

CLASSES = ("bar", "square")
HEIGHT, WIDTH = 48, 64


def make_scenes(count, seed=0):
    """Images (N, 3, 48, 64) uint8, and of each its objects: class and corners."""
    random = np.random.default_rng(seed)
    images = random.integers(110, 146, (count, 3, HEIGHT, WIDTH)).astype(np.uint8)
    objects = []
    for image in images:
        own = []
        for _ in range(random.integers(1, 4)):
            label = int(random.integers(2))
            height, width = ((10, 22), (12, 12))[label]
            top, left = (int(random.integers(side - size)) for side, size in ((HEIGHT, height), (WIDTH, width)))
            image[:, top : top + height, left : left + width] = (10, 240)[label]
            own.append((label, (left, top, left + width, top + height)))
        objects.append(own)
    return torch.from_numpy(images), objects


def make_part(count=24, seed=0, size=(HEIGHT, WIDTH)):
    images, objects = make_scenes(count, seed)
    known = tuple(
        BoxedImage(
            Path(f"scene-{number}"),
            HEIGHT,
            WIDTH,
            torch.tensor([corners for _, corners in own], dtype=torch.float32),
            torch.tensor([label for label, _ in own]),
            torch.zeros(len(own), dtype=torch.bool),
        )
        for number, own in enumerate(objects)
    )
    return DetectionPart(ArrayImages(images), known, torch.arange(count), CLASSES, size)


def make_split(count=24):
    return Split(*(make_part(count, seed) for seed in range(3)))


def write_images(folder, images, stems):
    from PIL import Image

    folder.mkdir(parents=True)
    for image, stem in zip(images, stems, strict=True):
        Image.fromarray(np.moveaxis(image.numpy(), 0, 2)).save(folder / f"{stem}.png")


def annotation(stem, objects, size=(HEIGHT, WIDTH)):
    """The XML of an image."""
    boxes = "".join(
        f"<object><name>{CLASSES[label]}</name><difficult>0</difficult><bndbox><xmin>{left}</xmin><ymin>{top}</ymin>"
        f"<xmax>{right}</xmax><ymax>{bottom}</ymax></bndbox></object>"
        for label, (left, top, right, bottom) in objects
    )
    return (
        f"<annotation><filename>{stem}.png</filename><size><width>{size[1]}</width><height>{size[0]}</height>"
        f"<depth>3</depth></size>{boxes}</annotation>"
    )


def write_voc(folder, count=24, seed=0, lists=True):
    """A folder in the form of Pascal VOC; with lists, half of the images to learn from, a quarter for each other."""
    images, objects = make_scenes(count, seed)
    stems = [f"scene-{number:03d}" for number in range(count)]
    write_images(folder / "JPEGImages", images, stems)
    (folder / "Annotations").mkdir()
    for stem, own in zip(stems, objects, strict=True):
        (folder / "Annotations" / f"{stem}.xml").write_text(annotation(stem, own))
    if lists:
        (folder / "ImageSets" / "Main").mkdir(parents=True)
        ends = {"train": (0, count // 2), "val": (count // 2, count * 3 // 4), "test": (count * 3 // 4, count)}
        for name, (start, end) in ends.items():
            (folder / "ImageSets" / "Main" / f"{name}.txt").write_text("\n".join(stems[start:end]) + "\n")
    return images, objects


def write_coco(folder, count=24, seed=0):
    """A JSON file in the form of COCO with its images beside it; class ids 7 and 3."""
    images, objects = make_scenes(count, seed)
    stems = [f"scene-{number:03d}" for number in range(count)]
    write_images(folder / "images", images, stems)
    content = {
        "images": [
            {"id": 100 + number, "file_name": f"{stem}.png", "height": HEIGHT, "width": WIDTH}
            for number, stem in enumerate(stems)
        ],
        "categories": [{"id": 7, "name": "square"}, {"id": 3, "name": "bar"}],
        "annotations": [
            {"id": 1, "image_id": 100 + number, "category_id": (3, 7)[label], "iscrowd": 0,
             "bbox": [left, top, right - left, bottom - top]}
            for number, own in enumerate(objects)
            for label, (left, top, right, bottom) in own
        ],
    }  # fmt: skip
    (folder / "boxes.json").write_text(json.dumps(content))
    return content
