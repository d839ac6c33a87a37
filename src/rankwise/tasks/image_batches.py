"""Data loaders over images, and predictions for all images of a part."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from rankwise.data import AugmentedImages, Batch, ImagePart, augmentation
from rankwise.distributed import gather_rows, own_share
from rankwise.samplers import SeededBatchSampler
from rankwise.tasks.batches import as_it_is

__all__ = ["image_batches", "image_shape", "predict_images"]

IMAGES_AT_ONCE = 256


def image_shape(part: ImagePart) -> tuple[int, int, int]:
    """(C, H, W) of the images of a part."""
    channels, height, width = part[0].features.shape[1:]
    return channels, height, width


def image_batches(
    part: ImagePart, sampler: SeededBatchSampler, *, view: str, seed: int, workers: int
) -> DataLoader[Batch]:
    """Batches as a sampler puts them together, images seen through a named augmentation.

    Args:
        part: the images.
        sampler: of its batches.
        view: see `rankwise.data.augmentation`.
        seed: of what is drawn at random.
        workers: processes that decode images ahead; 0 decodes them when they are needed. The batches are the same.
    """
    drawn = augmentation(view, image_shape(part)[1])
    images: Dataset[Batch] = part
    if drawn is not None:
        images = AugmentedImages(part, drawn, seed=seed, epoch=partial(getattr, sampler, "epoch"))
    # A generator of its own: a loader draws a number for its workers, which must not come from the training's.
    return DataLoader(
        images, batch_sampler=sampler, collate_fn=as_it_is, generator=torch.Generator(), num_workers=workers
    )


def predict_images(model: nn.Module, part: ImagePart, *, workers: int = 0) -> Tensor:
    """The output of a model for all images, in evaluation mode and without a graph; its mode is left as it was.

    Several processes take a share of the images each and give each other the outputs.
    """
    weight = next(model.parameters(), torch.zeros(()))
    blocks = [block.tolist() for block in own_share(torch.arange(len(part))).split(IMAGES_AT_ONCE) if len(block)]
    loader: DataLoader[Batch] = DataLoader(
        part, batch_sampler=blocks, collate_fn=as_it_is, generator=torch.Generator(), num_workers=workers
    )
    training = model.training
    model.eval()
    with torch.no_grad():
        outputs = [model(batch.features.to(weight.device, weight.dtype)) for batch in loader]
        if not outputs:  # more processes than images
            outputs = [model(part[0].features.to(weight.device, weight.dtype))[:0]]
        joined = gather_rows(torch.cat(outputs))
    model.train(training)
    return joined.cpu()
