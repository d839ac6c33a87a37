"""Object detection: find the objects in images, their boxes ranked by score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from rankwise.checks import check_choice
from rankwise.data import AugmentedImages, Batch, DetectionSplit, box_augmentation
from rankwise.losses import LOSSES, create_loss
from rankwise.losses.rivals import ALRPLoss
from rankwise.metrics import BoxTable, Evaluation, box_thresholds, evaluate_boxes
from rankwise.metrics.detection import check_box_metrics
from rankwise.models import Anchors, Detector, FasterRCNNDetector, InChunks, RetinaNetDetector, make_anchors
from rankwise.models.pyramid import BACKBONES, strides_of
from rankwise.samplers import ShuffledBatchSampler
from rankwise.tasks.batches import as_it_is
from rankwise.tasks.box_tables import found_boxes, true_boxes
from rankwise.tasks.detection_loss import DetectionLoss
from rankwise.tasks.inspection import Drawing, Inspection, spread_over
from rankwise.tasks.proposal_loss import ProposalLoss
from rankwise.tasks.seen_boxes import draw_boxes, inspect_boxes
from rankwise.tasks.task import Outputs

__all__ = ["DetectionTask", "DetectorModel"]

ALRP = "alrp"
RETINANET = "retinanet"
KINDS = (RETINANET, "faster-rcnn")
DRAWN = 6


@dataclass(frozen=True)
class DetectorModel:
    """Which detector, and how it starts; see `rankwise.models.RetinaNetDetector` and `FasterRCNNDetector`.

    `kind` is "retinanet", which scores anchors, or "faster-rcnn", which scores proposals of its own; `sampled` is for
    the latter only.
    """

    backbone: str = "conv"
    channels: int = 64
    scale: float = 8.0
    per_cell: int = 1
    ratios: tuple[float, ...] = (1.0,)
    weights: str | Path | None = None
    frozen_batch_norm: bool = False
    prior: float = 0.01
    kind: str = "retinanet"
    sampled: int | None = None

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, KINDS)
        check_choice("backbone", self.backbone, BACKBONES)
        if self.kind == RETINANET and self.sampled is not None:
            raise ValueError("sampled: expected None, as RetinaNet learns from all anchors, got a number")

    def build(self, classes: int, size: tuple[int, int]) -> Detector:
        """A new detector."""
        options = {name: value for name, value in vars(self).items() if name != "kind" and value is not None}
        return (RetinaNetDetector if self.kind == RETINANET else FasterRCNNDetector)(classes, size, **options)

    def anchors(self, size: tuple[int, int]) -> Anchors:
        """The anchors of an image of this size."""
        strides = strides_of(self.backbone)
        return make_anchors(size, strides, scale=self.scale, per_cell=self.per_cell, ratios=self.ratios)


@dataclass(frozen=True)
class DetectionTask:
    """Find the objects of each class, the surest first.

    Attributes:
        data: images and boxes; all parts with the same classes and one size.
        loss: the registered name of a loss over lists: what the anchors (RetinaNet) or the proposals (Faster R-CNN) are
            ranked by; or "alrp", for RetinaNet.
        loss_options: options of that loss.
        lists: "classes", "all" or "balanced", see `DetectionLoss` and `ProposalLoss`.
        box_weight, bias_weight: see there; None for the latter is .001 for losses that a constant added to
            all scores does not change, and 0 for the others.
        model: the detector.
        augmentation: how training images are varied, see `rankwise.data.box_augmentation`.
        batch_size: images in a batch.
        overlap: of two boxes of a class in an image that overlap more, the surer is kept.
        most: boxes that are kept in an image.
        metrics: by name, see `rankwise.metrics.evaluate_boxes`; choices are made by the first.
        workers: processes that decode images ahead.
    """

    data: DetectionSplit
    loss: str
    loss_options: Mapping[str, Any] = field(default_factory=dict)
    lists: str = "classes"
    box_weight: float = 2.0
    bias_weight: float | None = None
    model: DetectorModel = field(default_factory=DetectorModel)
    augmentation: str = "none"
    batch_size: int = 8
    overlap: float = 0.6
    most: int = 100
    metrics: Sequence[str] = ("ap", "ap50", "ap75")
    workers: int = 0

    def __post_init__(self) -> None:
        check_box_metrics(self.metrics)
        parts = [self.data.part(name) for name in ("train", "validation", "test")]
        if len({(part.classes, part.size) for part in parts}) > 1:
            raise ValueError("data: expected the same classes and one size in all parts, got others")

    @property
    def features(self) -> int:
        height, width = self.data.train.size
        return 3 * height * width

    @property
    def metric(self) -> str:
        return self.metrics[0]

    @property
    def classes(self) -> tuple[str, ...]:
        """What the classes are called."""
        return self.data.train.classes

    def build_model(self) -> nn.Module:
        return self.model.build(len(self.classes), self.data.train.size)

    def build_loss(self) -> DetectionLoss | ProposalLoss:
        shift_invariant, proposes = True, self.model.kind != RETINANET
        if self.loss == ALRP:
            if proposes:
                raise ValueError("loss: expected a loss over lists for Faster R-CNN, got 'alrp'")
            ranking: nn.Module = ALRPLoss(**self.loss_options)
        else:
            record = LOSSES.get(self.loss)
            if not record.takes("lists") or record.labels != "binary":
                raise ValueError(f"loss: expected a loss over lists of labels 0 and 1, got {self.loss!r}")
            shift_invariant = record.shift_invariant
            layout = {"lists": "columns"} if self.lists == "classes" else {}
            ranking = create_loss(self.loss, **{**layout, **self.loss_options})
        bias_weight = self.bias_weight
        if bias_weight is None:
            bias_weight = 0.001 if shift_invariant else 0.0
        classes, weights = len(self.classes), {"box_weight": self.box_weight, "bias_weight": bias_weight}
        if proposes:
            return ProposalLoss(ranking, classes, lists=self.lists, **weights)
        return DetectionLoss(ranking, self.model.anchors(self.data.train.size), classes, lists=self.lists, **weights)

    def train_loader(self, seed: int) -> DataLoader[Batch]:
        part = self.data.train
        sampler = ShuffledBatchSampler(part.rows, batch_size=self.batch_size, drop_last=True, seed=seed)
        view = box_augmentation(self.augmentation)
        images: Dataset[Batch] = part
        if view is not None:
            images = AugmentedImages(part, view, seed=seed, epoch=partial(getattr, sampler, "epoch"))
        # A generator of its own: a loader draws a number for its workers, which must not come from the training's.
        return DataLoader(
            images, batch_sampler=sampler, collate_fn=as_it_is, generator=torch.Generator(), num_workers=self.workers
        )

    def training_step(
        self, model: nn.Module, loss: nn.Module, batch: Batch, *, previous: Outputs | None = None
    ) -> Tensor:
        if isinstance(loss, ProposalLoss):
            return self._proposal_step(model, loss, batch, previous)
        before = None if previous is None else previous(batch.features)
        value: Tensor = loss(model(batch.features), batch.labels, batch.boxes, previous=before)
        return value

    def true_boxes(self, part: str) -> BoxTable:
        """The annotated boxes of a part, in pixels of the files."""
        return true_boxes(self.data.part(part))

    def detect(self, model: nn.Module, part: str) -> BoxTable:
        """The boxes found in the images of a part, in pixels of their files."""
        if not isinstance(model, Detector):
            raise TypeError(f"model: expected a detector, got {type(model).__name__}")
        return found_boxes(model, self.data.part(part), overlap=self.overlap, most=self.most, workers=self.workers)

    def evaluate(self, model: nn.Module, part: str) -> dict[str, float]:
        means = self.judge(model, part).means
        return {name: means[name] for name in self.metrics}

    def judge(self, model: nn.Module, part: str, *, bootstrap: int = 0) -> Evaluation:
        return self._judge(self.detect(model, part), part, bootstrap)

    def draw(self, model: nn.Module, part: str, images: Sequence[int]) -> list[Drawing]:
        """What is found in some images of a part, by their place in it.

        Of each class the boxes are shown whose score reaches what is best on the validation part, see
        `rankwise.metrics.box_thresholds`.
        """
        return self._draw(model, part, self.detect(model, part), images)

    def inspect(self, model: nn.Module, part: str, *, bootstrap: int = 0) -> Inspection:
        chosen, found = self.data.part(part), self.detect(model, part)
        drawings = self._draw(model, part, found, spread_over(len(chosen), DRAWN).tolist())
        return inspect_boxes(chosen, found, self.true_boxes(part), self._judge(found, part, bootstrap), drawings)

    def whole_lists(self) -> Batch:
        return self.data.train.__getitems__(spread_over(len(self.data.train), self.batch_size).tolist())

    def _proposal_step(self, model: nn.Module, loss: ProposalLoss, batch: Batch, previous: Outputs | None) -> Tensor:
        # Proposals are drawn anew in every forward pass: a second one would see others.
        if previous is not None:
            raise ValueError("previous_weights: expected a RetinaNet, got Faster R-CNN")
        if isinstance(model, InChunks):
            raise ValueError("rows_at_once: expected a RetinaNet, got Faster R-CNN")
        assert batch.boxes is not None
        value: Tensor = loss(model(batch.features, batch.labels, *batch.boxes))
        return value

    def _draw(self, model: nn.Module, part: str, found: BoxTable, images: Sequence[int]) -> list[Drawing]:
        known = found if part == "validation" else self.detect(model, "validation")
        thresholds = box_thresholds(
            known,
            self.true_boxes("validation"),
            images=len(self.data.validation),
            classes=len(self.classes),
            most=self.most,
        )
        return draw_boxes(self.data.part(part), found, self.true_boxes(part), thresholds, images)

    def _judge(self, found: BoxTable, part: str, bootstrap: int) -> Evaluation:
        return evaluate_boxes(
            found,
            self.true_boxes(part),
            self.metrics,
            images=len(self.data.part(part)),
            classes=self.classes,
            most=self.most,
            bootstrap=bootstrap,
        )
