"""Object detection: find the objects in images, their boxes ranked by score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn
from torch.utils.data import DataLoader

from rankwise.data import Batch, DetectionPart, DetectionSchema, Split, box_augmentation, cut_boxes, read_boxes
from rankwise.losses import LOSSES
from rankwise.losses.baselines import ALRPLoss
from rankwise.metrics import BoxTable, Evaluation, box_thresholds, evaluate_boxes
from rankwise.metrics.detection import check_box_metrics
from rankwise.models import Anchors, Detector, FasterRCNNDetector, InChunks, RetinaNetDetector, make_anchors
from rankwise.models.detector import strides_of
from rankwise.problems.detection.boxes import detect_boxes, draw_boxes, inspect_boxes, true_boxes
from rankwise.problems.detection.loss import DetectionLoss, ProposalLoss
from rankwise.problems.images import read_named_parts, viewed_batches
from rankwise.problems.inspection import Inspection, spread_over
from rankwise.problems.problem import (
    Batches,
    DataOptions,
    DataPrior,
    FileOrShare,
    LossChoice,
    Names,
    Problem,
    Sources,
    batch_size,
)
from rankwise.samplers import ShuffledBatchSampler
from rankwise.training import Outputs
from rankwise.training.options import Count, NotNegative, Options, Share

__all__ = ["BoxOptions", "Detection", "DetectionLoss", "DetectorLoss", "DetectorOptions", "ProposalLoss"]

ALRP = "alrp"
# Boxes that are kept in an image, and images that are drawn.
MOST, DRAWN = 100, 6


class BoxOptions(DataOptions):
    """Images with boxes: a folder in the form of Pascal VOC, a list in its ImageSets/Main, or a JSON file of COCO.

    `validation` and `test` are such data too, or shares of the images of `train`; the lists of a VOC folder name all
    three parts themselves. `images` is the folder of COCO's images, where it is not one of the usual. Every image is
    brought to `height` x `width` pixels: `fit` is "squash", whatever its shape, or "keep", in proportion, with black
    beside or below it. With `cache` it is kept in memory, its shorter side `resize` pixels long.
    `bad_boxes`: treatment of boxes without an area. `classes` are those of the training data if left out. `workers`
    processes decode images ahead.
    """

    validation: FileOrShare = 0.1
    test: FileOrShare = 0.2
    images: Path | None = None
    height: Count = 512
    width: Count = 512
    fit: Literal["squash", "keep"] = "squash"
    resize: Count | None = None
    cache: bool = False
    bad_boxes: Literal["error", "skip"] = "error"
    classes: tuple[str, ...] | None = None
    workers: Annotated[int, Field(ge=0)] = 0


class DetectorOptions(Options):
    """RetinaNet or Faster R-CNN over a small convolutional network, or over torchvision's ResNet with `weights`
    ("imagenet" or a file) or without; a ResNet has a pyramid of 3, 4 or 5 `levels` (5). Anchors are `scale` strides
    wide, `per_cell` sizes times `ratios` in a cell; scores begin at `prior`. Faster R-CNN learns from `sampled`
    proposals in an image, 512 if left out."""

    kind: Literal["retinanet", "faster-rcnn"] = "retinanet"
    backbone: Literal["conv", "resnet18", "resnet50"] = "conv"
    channels: Annotated[int, Field(ge=8, multiple_of=8)] = 64
    levels: Literal[3, 4, 5] | None = None
    scale: Annotated[float, Field(gt=0)] = 8.0
    per_cell: Count = 1
    ratios: tuple[Annotated[float, Field(gt=0)], ...] = (1.0,)
    weights: Literal["imagenet"] | Path | None = None
    frozen_batch_norm: bool = False
    prior: Share = 0.01
    sampled: Count | None = None

    @model_validator(mode="after")
    def _possible(self) -> DetectorOptions:
        if self.backbone == "conv" and self.weights is not None:
            raise ValueError("expected a ResNet with weights, got conv")
        if self.backbone == "conv" and self.levels is not None:
            raise ValueError("expected a ResNet with levels, got conv")
        if self.frozen_batch_norm and self.weights is None:
            raise ValueError("expected weights with frozen_batch_norm, got none")
        if self.kind == "retinanet" and self.sampled is not None:
            raise ValueError("expected faster-rcnn with sampled, got retinanet")
        return self

    @property
    def proposes(self) -> bool:
        """Return whether the detector scores proposals of its own instead of anchors."""
        return self.kind == "faster-rcnn"

    def build(self, classes: int, size: tuple[int, int]) -> Detector:
        """Return a new detector; `weights` are loaded by `load_start`."""
        apart = ("kind", "weights")
        options = {name: value for name, value in dict(self).items() if name not in apart and value is not None}
        return (FasterRCNNDetector if self.proposes else RetinaNetDetector)(classes, size, **options)

    def load_start(self, model: nn.Module) -> None:
        """Load the weights that the training starts from; a trained model does not need them."""
        if self.weights is not None:
            assert isinstance(model, Detector)
            model.load(self.weights)

    def anchors(self, size: tuple[int, int]) -> Anchors:
        """Return the anchors of an image of this size."""
        strides = strides_of(self.backbone, self.levels)
        return make_anchors(size, strides, scale=self.scale, per_cell=self.per_cell, ratios=self.ratios)


class DetectorLoss(LossChoice):
    """A loss over lists of labels 0 and 1, or "alrp", which only detectors have."""

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name != ALRP:
            LOSSES.get(name)
        return name

    @property
    def shift_invariant(self) -> bool:
        """Return whether a constant added to all scores changes nothing."""
        return self.name == ALRP or LOSSES.get(self.name).shift_invariant

    def check_options(self) -> None:
        """Refuse options that the loss does not take."""
        if self.options.get("prior") == "data":
            raise ValueError("expected a number, a schedule or batch for the prior of a detector's loss, got data")
        if self.name != ALRP:
            super().check_options()
            return
        if self.add or set(self.options) - {"delta"}:
            raise ValueError("expected no option of alrp but delta")
        ALRPLoss(**self.options)

    def create(self, *, data_prior: DataPrior | None = None, **defaults: Any) -> Any:
        """Return a new loss; "alrp" needs no defaults."""
        if self.name == ALRP:
            return ALRPLoss(**self.options)
        record = LOSSES.get(self.name)
        if not record.takes("lists") or record.labels != "binary":
            raise ValueError(f"loss: expected a loss over lists of labels 0 and 1, got {self.name!r}")
        return super().create(data_prior=data_prior, **defaults)


class Detection(Problem[DetectionSchema, DetectionPart]):
    """Find the objects of each class, the surest first.

    The loss ranks the anchors (RetinaNet) or the proposals (Faster R-CNN), in the layout `lists`: "classes", "all" or
    "balanced", see `DetectionLoss` and there `box_weight` and `bias_weight`; the latter is .001 if left out for losses
    that a constant added to all scores does not change, and 0 for the others. `augmentation` varies training images,
    see `rankwise.data.box_augmentation`. Of two boxes of a class in an image that overlap by more than `overlap`, the
    surer is kept. Metrics are those of `rankwise.metrics.evaluate_boxes`.
    """

    kind: ClassVar[str] = "detection"
    summary: ClassVar[str] = "images with boxes: find the objects of each class, the surest first"
    outputs: ClassVar[Literal["scores", "vectors", "boxes"]] = "boxes"
    schema_type: ClassVar[type[Any]] = DetectionSchema

    data: BoxOptions = BoxOptions()
    model: DetectorOptions = DetectorOptions()
    augmentation: Literal["none", "flip", "flip-both", "ssd"] = "flip"
    loss: DetectorLoss = DetectorLoss.of("stable-ap")
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
    def _possible(self) -> Detection:
        if self.loss.name == ALRP and self.lists == "balanced":
            raise ValueError("expected lists: classes or all with loss: alrp, got balanced")
        if self.model.proposes:
            if self.loss.name == ALRP:
                raise ValueError("expected a loss over lists with model.kind: faster-rcnn, got alrp")
            if self.gradient.rows_at_once is not None:
                raise ValueError(
                    "expected no gradient.rows_at_once with model.kind: faster-rcnn, whose proposals are drawn anew in "
                    "every pass"
                )
        return self

    def files(self) -> Iterator[Path]:
        for path in (self.data.train, self.data.validation, self.data.test, self.model.weights):
            if isinstance(path, Path):
                yield path

    def read(self, sources: Sources) -> tuple[DetectionSchema, Split[DetectionPart]]:
        data, given = self.data, self.data.sources(sources)
        boxes = read_boxes(given["train"], images=data.images, classes=data.classes, bad_boxes=data.bad_boxes)
        schema = DetectionSchema(boxes.classes, data.height, data.width, data.resize, data.bad_boxes, data.fit)
        parts = schema.parts(boxes, cache=data.cache)
        for name in ("validation", "test"):
            if name in given:
                parts[name] = schema.read(given[name], part=name, images=data.images, cache=data.cache)
        return schema, Split(parts.get("train", parts["all"]), parts.get("validation"), parts.get("test"))

    def read_with(self, schema: DetectionSchema, sources: Sources) -> Split[DetectionPart]:
        return read_named_parts(schema, self.data.sources(sources))

    def cut(self, split: Split[DetectionPart], seed: int) -> Split[DetectionPart]:
        shares = self.data.shares(split)
        if not shares:
            return split
        train, *others = cut_boxes(split.train, list(shares.values()), seed=seed)
        return replace(split, train=train, **dict(zip(shares, others, strict=True)))

    def build_model(self, schema: DetectionSchema) -> nn.Module:
        return self.model.build(len(schema.classes), schema.size)

    def fit_model(self, model: nn.Module, train: DetectionPart) -> None:
        self.model.load_start(model)

    def build_loss(self, schema: DetectionSchema, train: DetectionPart, *, steps: int) -> DetectionLoss | ProposalLoss:
        layout: dict[str, Any] = {"lists": "columns"} if self.lists == "classes" else {}
        ranking: nn.Module = self.loss.create(**layout)
        bias_weight = self.bias_weight
        if bias_weight is None:
            bias_weight = 0.001 if self.loss.shift_invariant else 0.0
        classes, weights = len(schema.classes), {"box_weight": self.box_weight, "bias_weight": bias_weight}
        if self.model.proposes:
            return ProposalLoss(ranking, classes, lists=self.lists, **weights)
        return DetectionLoss(ranking, self.model.anchors(schema.size), classes, lists=self.lists, **weights)

    def train_loader(self, train: DetectionPart, seed: int) -> DataLoader[Batch]:
        sampler = ShuffledBatchSampler(train.rows, batch_size=self._size(train), drop_last=True, seed=seed)
        view = box_augmentation(self.augmentation)
        return viewed_batches(train, sampler, view, seed=seed, workers=self.data.workers)

    def training_step(
        self, model: nn.Module, loss: nn.Module, batch: Batch, *, previous: Outputs | None = None
    ) -> Tensor:
        if isinstance(loss, ProposalLoss):
            return _proposal_step(model, loss, batch, previous)
        before = None if previous is None else previous(batch.features)
        value: Tensor = loss(model(batch.features), batch.labels, batch.boxes, previous=before)
        return value

    def predict(self, model: nn.Module, part: DetectionPart) -> BoxTable:
        """Return the boxes in the images of a part, in pixels of their files."""
        if not isinstance(model, Detector):
            raise TypeError(f"model: expected a detector, got {type(model).__name__}")
        return detect_boxes(model, part, overlap=self.overlap, most=MOST, workers=self.data.workers)

    def evaluate(self, model: nn.Module, part: DetectionPart, *, bootstrap: int = 0) -> Evaluation:
        """Return the metrics of all classes together; `inspect` adds those of each class and of each image."""
        result = self._evaluate(self.predict(model, part), part, bootstrap)
        return replace(result, means={name: result.means[name] for name in self.measured})

    def inspect(
        self, model: nn.Module, part: DetectionPart, *, bootstrap: int = 0, calibration: Mapping[str, Any] | None = None
    ) -> Inspection:
        """Return the metrics on a part, its images as lists of boxes, and, with a calibration, drawings of some."""
        predicted, truth = self.predict(model, part), true_boxes(part)
        drawings = []
        if calibration:
            images = spread_over(len(part), DRAWN).tolist()
            drawings = draw_boxes(part, predicted, truth, calibration["thresholds"], images)
        return inspect_boxes(part, predicted, truth, self._evaluate(predicted, part, bootstrap), drawings)

    def probe_batch(self, train: DetectionPart) -> Batch:
        return train.__getitems__(spread_over(len(train), self._size(train)).tolist())

    def calibrate(self, model: nn.Module, validation: DetectionPart) -> dict[str, Any]:
        """Return `thresholds`: for each class the score that a box should reach to be shown, see `box_thresholds`; None
        for a class of which no box was right."""
        predicted = self.predict(model, validation)
        best = box_thresholds(
            predicted, true_boxes(validation), images=len(validation), classes=len(validation.classes), most=MOST
        )
        return {"thresholds": [None if each == float("inf") else each for each in best.tolist()]}

    def _size(self, train: DetectionPart) -> int:
        return batch_size("batches.size", self.batches.size, 8, len(train), "images to train on")

    def _evaluate(self, predicted: BoxTable, part: DetectionPart, bootstrap: int) -> Evaluation:
        return evaluate_boxes(
            predicted,
            true_boxes(part),
            self.measured,
            images=len(part),
            classes=part.classes,
            most=MOST,
            bootstrap=bootstrap,
        )


def _proposal_step(model: nn.Module, loss: ProposalLoss, batch: Batch, previous: Outputs | None) -> Tensor:
    # Proposals are drawn anew in every forward pass: a second one would see others.
    if isinstance(model, InChunks):
        raise ValueError("rows_at_once: expected a RetinaNet, got Faster R-CNN")
    assert batch.boxes is not None
    sampled = model(batch.features, batch.labels, *batch.boxes)
    # The previous weights score the same proposals: their own would not be the same items.
    before = None if previous is None else previous(batch.features, sampled.proposals, method="score_proposals")
    value: Tensor = loss(sampled, previous=before)
    return value
