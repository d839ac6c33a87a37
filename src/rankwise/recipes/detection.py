"""Recipes for object detection: find the objects in images, the surest first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, field_validator, model_validator

from rankwise.data import BoxSet, DetectionPart, DetectionSplit, cut_boxes, read_boxes
from rankwise.losses import LOSSES
from rankwise.losses.rivals import ALRPLoss
from rankwise.metrics.detection import check_box_metrics
from rankwise.recipes.schema import (
    Batches,
    Count,
    FileOrShare,
    LossChoice,
    Names,
    NotNegative,
    Recipe,
    Share,
    Strict,
    usual,
)
from rankwise.tasks import DetectionTask, DetectorModel
from rankwise.tasks.detection import ALRP

__all__ = ["DetectionRecipe"]


class BoxData(Strict):
    """Images with boxes: a folder in the form of Pascal VOC, a list in its ImageSets/Main, or a JSON file of COCO.

    `validation` and `test` are such data too, or shares of the images of `train`; the lists of a VOC folder name all
    three parts themselves. `images` is the folder of COCO's images, where it is not one of the usual. Every image is
    brought to `height` x `width` pixels; with `cache` it is kept in memory, its shorter side `resize` pixels long.
    `bad_boxes` says what happens to boxes without an area. `classes` are those of the training data if left out.
    """

    train: Path
    validation: FileOrShare = 0.1
    test: FileOrShare = 0.2
    images: Path | None = None
    height: Count = 512
    width: Count = 512
    resize: Count | None = None
    cache: bool = False
    bad_boxes: Literal["error", "skip"] = "error"
    classes: tuple[str, ...] | None = None
    workers: Annotated[int, Field(ge=0)] = 0

    def read(self, path: Path, classes: tuple[str, ...] | None) -> BoxSet:
        return read_boxes(path, images=self.images, classes=classes, bad_boxes=self.bad_boxes)

    def split(self, seed: int) -> DetectionSplit:
        """The three parts."""
        read = self.read(self.train, self.classes)
        found = self._parts(read)
        whole = found.pop("train", self._part(read))
        wanted = {"validation": self.validation, "test": self.test}
        for name, path in wanted.items():
            if isinstance(path, Path):
                other = self.read(path, read.classes)
                found[name] = self._parts(other).get(name, self._part(other))
        shares = {name: share for name, share in wanted.items() if name not in found and isinstance(share, float)}
        if sum(shares.values()) >= 1:
            raise ValueError(f"data: expected shares of less than 1 in all, got {sum(shares.values()):g}")
        train, *others = cut_boxes(whole, list(shares.values()), seed=seed)
        found.update(zip(shares, others, strict=True))
        return DetectionSplit(train, found["validation"], found["test"])

    def _part(self, read: BoxSet) -> DetectionPart:
        return DetectionPart.of(read, (self.height, self.width), resize=self.resize, cache=self.cache)

    def _parts(self, read: BoxSet) -> dict[str, DetectionPart]:
        if read.parts is None:
            return {}
        whole, which = self._part(read), np.array(read.parts)
        return {name: whole.take(torch.from_numpy(np.flatnonzero(which == name))) for name in set(read.parts)}


class DetectorChoice(Strict):
    """RetinaNet or Faster R-CNN over a small convolutional network, or over torchvision's ResNet with `weights`
    ("imagenet" or a file) or without. Anchors are `scale` strides wide, `per_cell` sizes times `ratios` in a cell;
    scores begin at `prior`. Faster R-CNN learns from `sampled` proposals in an image, 512 if left out."""

    kind: Literal["retinanet", "faster-rcnn"] = "retinanet"
    backbone: Literal["conv", "resnet18", "resnet50"] = "conv"
    channels: Annotated[int, Field(ge=8, multiple_of=8)] = 64
    scale: Annotated[float, Field(gt=0)] = 8.0
    per_cell: Count = 1
    ratios: tuple[Annotated[float, Field(gt=0)], ...] = (1.0,)
    weights: Literal["imagenet"] | Path | None = None
    frozen_batch_norm: bool = False
    prior: Share = 0.01
    sampled: Count | None = None

    @model_validator(mode="after")
    def _possible(self) -> DetectorChoice:
        if self.backbone == "conv" and self.weights is not None:
            raise ValueError("expected a ResNet with weights, got conv")
        if self.frozen_batch_norm and self.weights is None:
            raise ValueError("expected weights with frozen_batch_norm, got none")
        if self.kind == "retinanet" and self.sampled is not None:
            raise ValueError("expected faster-rcnn with sampled, got retinanet")
        return self

    def make(self) -> DetectorModel:
        return DetectorModel(**dict(self))


class DetectorLossChoice(LossChoice):
    """A loss over lists of labels 0 and 1, or "alrp"."""

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name != ALRP:
            LOSSES.get(name)
        return name

    def check_options(self) -> None:
        if self.name != ALRP:
            super().check_options()
            return
        if self.add or set(self.options) - {"delta"}:
            raise ValueError("expected no option of alrp but delta")
        ALRPLoss(**self.options)


class DetectionRecipe(Recipe):
    summary: ClassVar[str] = "images with boxes: find the objects of each class, the surest first"

    task: Literal["detection"] = "detection"
    data: BoxData
    model: DetectorChoice = DetectorChoice()
    augmentation: Literal["none", "flip", "flip-both", "ssd"] = "flip"
    loss: DetectorLossChoice = DetectorLossChoice(name="stable-ap")
    lists: Literal["classes", "all", "balanced"] = "classes"
    box_weight: NotNegative = 2.0
    bias_weight: NotNegative | None = None
    overlap: Share = 0.6
    batches: Batches = Batches()
    metrics: Names = ("ap", "ap50", "ap75")

    @field_validator("metrics")
    @classmethod
    def _known_metrics(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return check_box_metrics(names)

    @model_validator(mode="after")
    def _possible(self) -> DetectionRecipe:
        if self.loss.name == ALRP and self.lists == "balanced":
            raise ValueError("expected lists: classes or all with loss: alrp, got balanced")
        if self.model.kind == "faster-rcnn":
            if self.loss.name == ALRP:
                raise ValueError("expected a loss over lists with model.kind: faster-rcnn, got alrp")
            if self.gradient.rows_at_once is not None or self.gradient.previous_weights:
                raise ValueError(
                    "expected no gradient.rows_at_once and no gradient.previous_weights with model.kind: faster-rcnn, "
                    "whose proposals are drawn anew in every pass"
                )
        return self

    @field_validator("loss")
    @classmethod
    def _prior_is_a_number(cls, loss: DetectorLossChoice) -> DetectorLossChoice:
        if loss.options.get("prior") == "data":
            raise ValueError("expected a number, a schedule or batch for the prior of a detector's loss, got data")
        return loss

    def settled(self) -> DetectionRecipe:
        if self.data.classes is not None:
            return self
        classes = self.data.read(self.data.train, None).classes
        return self.model_copy(update={"data": self.data.model_copy(update={"classes": classes})})

    def build_task(self, seed: int) -> DetectionTask:
        split = self.data.split(seed)
        return DetectionTask(
            split,
            loss=self.loss.name,
            loss_options=self.loss.all_options,
            lists=self.lists,
            box_weight=self.box_weight,
            bias_weight=self.bias_weight,
            model=self.model.make(),
            augmentation=self.augmentation,
            batch_size=usual("batches.size", self.batches.size, 8, len(split.train), "images to train on"),
            overlap=self.overlap,
            metrics=self.metrics,
            workers=self.data.workers,
        )

    def for_scoring(self, path: Path, features: int) -> DetectionRecipe:
        data = self.data.model_copy(update={"train": path, "validation": path, "test": path})
        return self.model_copy(update={"data": data})

    def files(self) -> Iterator[Path]:
        for path in (self.data.train, self.data.validation, self.data.test, self.model.weights):
            if isinstance(path, Path):
                yield path
