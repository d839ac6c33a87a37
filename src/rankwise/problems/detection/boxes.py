"""Boxes of all images of a part: the true ones, the detected ones, and drawings of both."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from rankwise.data import Batch, DetectionPart, require_labels
from rankwise.distributed import gather_rows, own_share
from rankwise.metrics import BoxTable, Evaluation, right_boxes
from rankwise.models import Detector, Found
from rankwise.problems.batches import as_it_is
from rankwise.problems.inspection import Box, Drawing, Inspection, SeenLists

__all__ = ["detect_boxes", "draw_boxes", "inspect_boxes", "true_boxes"]

IMAGES_AT_ONCE = 16
# Candidates of an image that are considered: those with the best scores.
CANDIDATES = 1000
HALF = 0.5


def true_boxes(part: DetectionPart) -> BoxTable:
    """Return the annotated boxes, in pixels of the files; raise an error if they are not given."""
    require_labels(part if part.annotated else None)
    known = [part.truth(index) for index in range(len(part))]
    counts = torch.tensor([len(image.labels) for image in known])
    return BoxTable(
        torch.arange(len(part)).repeat_interleave(counts),
        torch.cat([image.labels for image in known]),
        torch.cat([image.corners for image in known]),
        ignored=torch.cat([image.ignored for image in known]),
    )


def detect_boxes(model: Detector, part: DetectionPart, *, overlap: float, most: int, workers: int = 0) -> BoxTable:
    """Return the boxes that a detector finds in all images of a part, in pixels of the files.

    Of the 1,000 best scores of an image, those of boxes that overlap a better one of their class by more than `overlap`
    are dropped (non-maximum suppression), and the `most` best of the others kept. Scores are logits. The model runs in
    evaluation mode; its mode is restored. Several processes take a share of the images each and gather the boxes.
    """
    weight = next(model.parameters())
    blocks = [block.tolist() for block in own_share(torch.arange(len(part))).split(IMAGES_AT_ONCE) if len(block)]
    loader: DataLoader[Batch] = DataLoader(
        part, batch_sampler=blocks, collate_fn=as_it_is, generator=torch.Generator(), num_workers=workers
    )
    training = model.training
    model.eval()
    rows = [torch.zeros(0, 7, dtype=torch.float64)]
    with torch.no_grad():
        for batch in loader:
            candidates = model.find(batch.features.to(weight.device, weight.dtype))
            for index, predicted in zip(batch.sample_ids.tolist(), candidates, strict=True):
                rows.append(_best_boxes(index, predicted, part, overlap, most))
    model.train(training)
    table = gather_rows(torch.cat(rows).to(weight.device)).cpu()
    return BoxTable(table[:, 0].long(), table[:, 1].long(), table[:, 2:6], table[:, 6])


def inspect_boxes(
    part: DetectionPart, predicted: BoxTable, truth: BoxTable, evaluation: Evaluation, drawings: Sequence[Drawing]
) -> Inspection:
    """Return the images of a part as lists of the boxes in them; a box is relevant if it is right at an overlap of .5.

    Args:
        part: the images.
        predicted, truth: boxes of the part.
        evaluation: of the same boxes.
        drawings: of some of the images.
    """
    images = len(part)
    assert predicted.score is not None
    scores, right = predicted.score, right_boxes(predicted, truth, images=images, classes=len(part.classes))
    rows_of = [(predicted.image == image).nonzero().squeeze(1) for image in range(images)]
    wanted = torch.ones_like(truth.image, dtype=torch.bool) if truth.ignored is None else ~truth.ignored

    def look(numbers: Tensor) -> SeenLists:
        chosen = [rows_of[number] for number in numbers.tolist()]
        rows = torch.nn.utils.rnn.pad_sequence(chosen, batch_first=True, padding_value=-1)
        return SeenLists(scores[rows], right[rows].long(), rows >= 0)

    return Inspection(
        evaluation,
        "image",
        "box",
        "precision",
        look,
        list_name=lambda image: part.truth(image).file.name,
        item_name=lambda image, column: part.classes[int(predicted.label[rows_of[image][column]])],
        relevant=torch.bincount(truth.image[wanted], minlength=images),
        drawings=tuple(drawings),
    )


def draw_boxes(
    part: DetectionPart,
    predicted: BoxTable,
    truth: BoxTable,
    thresholds: Sequence[float | None],
    images: Sequence[int],
) -> list[Drawing]:
    """Return some images of a part with the boxes in them, right or wrong, and the objects that were missed.

    Args:
        part: the images.
        predicted, truth: boxes of the part.
        thresholds: for each class the score that a box must reach to be shown; None shows no box of the class.
        images: their indices in the part.
    """
    assert predicted.score is not None
    least = torch.tensor([float("inf") if each is None else each for each in thresholds], dtype=torch.float64)
    shown = predicted.take(predicted.score >= least[predicted.label])
    right = right_boxes(shown, truth, images=len(part), classes=len(part.classes))
    return [_draw(part, image, shown, right, truth) for image in images]


def _best_boxes(index: int, predicted: Found, part: DetectionPart, overlap: float, most: int) -> Tensor:
    """Return rows of image, class, four edges and score."""
    from torchvision.ops import batched_nms, clip_boxes_to_image, remove_small_boxes

    scores, pair = predicted.scores.flatten().topk(min(CANDIDATES, predicted.scores.numel()))
    candidate, label = pair // predicted.scores.shape[1], pair % predicted.scores.shape[1]
    image = part.truth(index)
    inside = part.inside((image.height, image.width))
    corners = clip_boxes_to_image(predicted.corners[candidate, label], inside)
    kept = remove_small_boxes(corners, 1e-3)
    kind = torch.promote_types(corners.dtype, scores.dtype)  # anchors are float32, a model of float64 scores in its own
    kept = kept[batched_nms(corners[kept].to(kind), scores[kept].to(kind), label[kept], overlap)[:most]]
    scale = torch.tensor([image.width / inside[1], image.height / inside[0]] * 2, dtype=torch.float64)
    numbers = torch.full((len(kept), 1), index, dtype=torch.float64)
    edges = corners[kept].double().cpu() * scale
    return torch.cat([numbers, label[kept, None].double().cpu(), edges, scores[kept, None].double().cpu()], 1)


def _draw(part: DetectionPart, image: int, shown: BoxTable, right: Tensor, truth: BoxTable) -> Drawing:
    from torchvision.ops import box_iou

    assert shown.score is not None
    known = part.truth(image)
    size = torch.tensor([known.width, known.height] * 2)
    boxes, missed = [], 0
    for row in (shown.image == image).nonzero().squeeze(1).tolist():
        left, top, right_edge, bottom = (shown.corners[row] / size).clamp(0, 1).tolist()
        caption = f"{part.classes[int(shown.label[row])]} {float(shown.score[row]):.1f}"
        boxes.append(Box(left, top, right_edge, bottom, caption, bool(right[row])))
    for label, corners, ignored in zip(known.labels.tolist(), known.corners, known.ignored.tolist(), strict=True):
        hits = shown.corners[(shown.image == image) & (shown.label == label) & right]
        if not ignored and not bool((box_iou(corners[None].double(), hits.double()) >= HALF).any()):
            missed += 1
            left, top, right_edge, bottom = (corners / size).clamp(0, 1).tolist()
            boxes.append(Box(left, top, right_edge, bottom, f"{part.classes[label]}, missed"))
    correct = sum(box.correct is True for box in boxes)
    wrong = sum(box.correct is False for box in boxes)
    caption = f"{known.file.name}: {correct} right, {wrong} wrong, {missed} missed"
    return Drawing(part.picture(image), caption, tuple(boxes))
