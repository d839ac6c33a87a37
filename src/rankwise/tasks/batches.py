"""Data loaders over a part of a data set that is in memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader

from rankwise.data import Batch, Part

__all__ = ["batches_of", "predict_all", "shuffled_batches"]

Batches = DataLoader[Batch]


def batches_of(part: Part, sampler: BatchSampler) -> Batches:
    """Batches as a batch sampler puts them together."""
    return DataLoader(part, batch_sampler=sampler, collate_fn=_as_it_is)


def shuffled_batches(part: Part, batch_size: int, seed: int) -> Batches:
    """Full batches in random order, each row at most once per pass."""
    generator = torch.Generator().manual_seed(seed)
    return DataLoader(
        part, batch_size=batch_size, shuffle=True, drop_last=True, generator=generator, collate_fn=_as_it_is
    )


def predict_all(model: nn.Module, features: Tensor) -> Tensor:
    """The output of a model for all rows, in evaluation mode and without a graph; its mode is left as it was."""
    training = model.training
    model.eval()
    with torch.no_grad():
        outputs: Tensor = model(features)
    model.train(training)
    return outputs


def _as_it_is(batch: Any) -> Any:
    # `Part.__getitems__` has already put the batch together.
    return batch
