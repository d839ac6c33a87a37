"""Data loaders over a part, and the outputs of a model for all of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from rankwise.data import Batch, Part
from rankwise.data.mapped import FeatureRows
from rankwise.distributed import gather_rows, own_share
from rankwise.samplers import SeededBatchSampler, ShuffledBatchSampler

__all__ = ["ROWS_AT_ONCE", "as_it_is", "batches_of", "predict_all", "predict_lists", "shuffled_batches"]

ROWS_AT_ONCE = 8192


def batches_of(part: Dataset[Batch], sampler: SeededBatchSampler) -> DataLoader[Batch]:
    """Return the batches of a sampler."""
    # A loader draws a seed for its workers: from a generator of its own, so that it leaves the training's alone.
    return DataLoader(part, batch_sampler=sampler, collate_fn=as_it_is, generator=torch.Generator())


def shuffled_batches(part: Part, batch_size: int, seed: int) -> DataLoader[Batch]:
    """Return full batches in random order, each row at most once per epoch."""
    return batches_of(part, ShuffledBatchSampler(part.labels, batch_size=batch_size, drop_last=True, seed=seed))


def predict_all(model: nn.Module, features: FeatureRows) -> Tensor:
    """Return the output of a model for all rows, in evaluation mode and without a graph; the mode is restored.

    Several processes take a share of the rows each and gather the outputs.
    """
    weight = next(model.parameters(), torch.zeros(()))
    dtype = weight.dtype if features.dtype.is_floating_point else features.dtype
    training = model.training
    model.eval()
    own = own_share(torch.arange(len(features)))
    first, last = (int(own[0]), int(own[-1]) + 1) if len(own) else (0, 0)
    with torch.no_grad():
        blocks = (features[start : min(last, start + ROWS_AT_ONCE)] for start in range(first, last, ROWS_AT_ONCE))
        outputs = [model(block.to(weight.device, dtype)) for block in blocks]
        joined = gather_rows(torch.cat(outputs or [model(features[:0].to(weight.device, dtype))]))
    model.train(training)
    return joined.cpu()


def predict_lists(model: nn.Module, features: FeatureRows, query_ids: Tensor) -> Tensor:
    """Return the scores (N,) of all rows by a model that takes whole lists: `model(features, query_ids)`.

    Several processes take a share of the lists each and gather the scores.
    """
    _, list_of_row, lengths = query_ids.unique(return_inverse=True, return_counts=True)
    by_list = list_of_row.argsort(stable=True)
    rows_of = by_list.split(lengths.tolist())
    own = own_share(torch.arange(len(rows_of))).tolist()
    weight = next(model.parameters(), torch.zeros(()))
    training = model.training
    model.eval()
    scores, indices = [weight.new_zeros(0)], [by_list[:0]]
    with torch.no_grad():
        for block in _blocks([rows_of[number] for number in own]):
            rows = torch.cat(block)
            inputs = features[rows].to(weight.device, weight.dtype)
            scores.append(model(inputs, query_ids[rows].to(weight.device)))
            indices.append(rows)
    model.train(training)
    joined = gather_rows(torch.cat(scores)).cpu()
    order = gather_rows(torch.cat(indices).to(weight.device)).cpu()
    return joined[order.argsort()]


def _blocks(lists: list[Tensor]) -> Iterator[list[Tensor]]:
    """Yield lists in blocks of up to `ROWS_AT_ONCE` rows, a longer list alone."""
    block: list[Tensor] = []
    for rows in lists:
        if block and sum(map(len, block)) + len(rows) > ROWS_AT_ONCE:
            yield block
            block = []
        block.append(rows)
    if block:
        yield block


def as_it_is(batch: Any) -> Any:
    # `__getitems__` of a part returns a whole batch.
    return batch
