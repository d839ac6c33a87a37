"""The boxes of all images of a part in one table: the true ones, and those a detector finds."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from rankwise.data import Batch, DetectionPart
from rankwise.distributed import gather_rows, own_share
from rankwise.metrics import BoxTable
from rankwise.models import Detector, Found
from rankwise.tasks.batches import as_it_is

__all__ = ["found_boxes", "true_boxes"]

IMAGES_AT_ONCE = 16
# Anchors of a class that are looked at in an image, the best.
CANDIDATES = 1000


def true_boxes(part: DetectionPart) -> BoxTable:
    """The annotated boxes, in pixels of the files."""
    known = [part.truth(place) for place in range(len(part))]
    counts = torch.tensor([len(image.labels) for image in known])
    return BoxTable(
        torch.arange(len(part)).repeat_interleave(counts),
        torch.cat([image.labels for image in known]),
        torch.cat([image.corners for image in known]),
        ignored=torch.cat([image.ignored for image in known]),
    )


def found_boxes(model: Detector, part: DetectionPart, *, overlap: float, most: int, workers: int = 0) -> BoxTable:
    """What a detector finds in all images of a part, in pixels of the files, in evaluation mode; its mode stays.

    Of the 1,000 best scores of an image, those of boxes that overlap a better one of their class by more than `overlap`
    are dropped (non-maximum suppression), and the `most` best of the others kept. Scores are logits. Several processes
    take a share of the images each and give each other the boxes.
    """
    weight = next(model.parameters())
    places = own_share(torch.arange(len(part)))
    blocks = [block.tolist() for block in places.split(IMAGES_AT_ONCE) if len(block)]
    loader: DataLoader[Batch] = DataLoader(
        part, batch_sampler=blocks, collate_fn=as_it_is, generator=torch.Generator(), num_workers=workers
    )
    training = model.training
    model.eval()
    rows = [torch.zeros(0, 7, dtype=torch.float64)]
    with torch.no_grad():
        for batch in loader:
            candidates = model.find(batch.features.to(weight.device, weight.dtype))
            for place, found in zip(batch.sample_ids.tolist(), candidates, strict=True):
                rows.append(_best_boxes(place, found, part, overlap, most))
    model.train(training)
    table = gather_rows(torch.cat(rows).to(weight.device)).cpu()
    return BoxTable(table[:, 0].long(), table[:, 1].long(), table[:, 2:6], table[:, 6])


def _best_boxes(place: int, found: Found, part: DetectionPart, overlap: float, most: int) -> Tensor:
    """Rows of image, class, four edges and score."""
    from torchvision.ops import batched_nms, clip_boxes_to_image, remove_small_boxes

    scores, pair = found.scores.flatten().topk(min(CANDIDATES, found.scores.numel()))
    candidate, label = pair // found.scores.shape[1], pair % found.scores.shape[1]
    corners = clip_boxes_to_image(found.corners[candidate, label], part.size)
    kept = remove_small_boxes(corners, 1e-3)
    kept = kept[batched_nms(corners[kept], scores[kept], label[kept], overlap)[:most]]
    truth = part.truth(place)
    scale = torch.tensor([truth.width / part.size[1], truth.height / part.size[0]] * 2, dtype=torch.float64)
    of_image = torch.full((len(kept),), place, dtype=torch.float64)
    edges = corners[kept].double().cpu() * scale
    return torch.cat([of_image[:, None], label[kept, None].double().cpu(), edges, scores[kept, None].double().cpu()], 1)
