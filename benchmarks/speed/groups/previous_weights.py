"""What a variance-reduced memory costs: a training step with and without the outputs under the previous weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmarks.speed.contest import Contender, Group, Row
from rankwise.losses import EmbeddingLoss, StableAPLoss
from rankwise.models import ConvEmbedder, MLPEmbedder
from rankwise.training import PreviousWeights

__all__ = ["PREVIOUS_WEIGHTS"]

_INPUTS, _WIDTH, _DIMENSIONS, _PER_CLASS, _PIXELS = 512, 1024, 128, 4, 28


@dataclass(frozen=True)
class _Batch:
    features: Tensor
    labels: Tensor

    def model(self) -> nn.Module:
        torch.manual_seed(0)
        if self.features.ndim == 2:
            return MLPEmbedder(_INPUTS, _DIMENSIONS, hidden=(_WIDTH, _WIDTH))
        return ConvEmbedder(1, _PIXELS, _DIMENSIONS)


def _make(size: int, shape: tuple[int, ...] = (_INPUTS,)) -> _Batch:
    random = torch.Generator().manual_seed(0)
    labels = torch.arange(size // _PER_CLASS).repeat_interleave(_PER_CLASS)
    return _Batch(torch.randn(size, *shape, generator=random), labels)


def _step(with_previous: bool) -> Callable[[_Batch], Callable[[], object]]:
    def prepare(batch: _Batch) -> Callable[[], object]:
        model, loss = batch.model(), EmbeddingLoss(StableAPLoss())
        optimiser = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, nesterov=True)
        previous = PreviousWeights(model, optimiser) if with_previous else None

        def call() -> None:
            before = None if previous is None else previous(batch.features)
            value = loss(model(batch.features), batch.labels, previous_embeddings=before)
            optimiser.zero_grad()
            value.backward()
            optimiser.step()

        return call

    return prepare


def _forward(batch: _Batch) -> Callable[[], object]:
    model = batch.model()

    def call() -> Tensor:
        with torch.no_grad():
            output: Tensor = model(batch.features)
        return output

    return call


PREVIOUS_WEIGHTS = Group(
    key="previous-weights",
    title="Stable AP with the outputs under the previous weights",
    problem="B",
    about=(
        f"A whole training step, optimiser included: a network {_INPUTS}-{_WIDTH}-{_WIDTH}-{_DIMENSIONS}, or a small "
        f"convolutional one on images of {_PIXELS} x {_PIXELS}; {_PER_CLASS} per class, SGD. The limit is one "
        "forward without a graph: the least that the previous outputs can cost."
    ),
    rows=tuple(
        Row(
            name=name,
            make=lambda size=size, shape=shape: _make(size, shape),  # type: ignore[misc]
            small=lambda shape=shape: _make(16, shape),  # type: ignore[misc]
            contenders=(
                Contender("step with previous_embeddings", _step(with_previous=True), role="ours"),
                Contender("step without", _step(with_previous=False)),
                Contender("forward without a graph", _forward, role="limit"),
            ),
        )
        for name, size, shape in (
            ("112", 112, (_INPUTS,)),
            ("448", 448, (_INPUTS,)),
            ("112 images", 112, (1, _PIXELS, _PIXELS)),
            ("448 images", 448, (1, _PIXELS, _PIXELS)),
        )
    ),
)
