"""What a variance-reduced memory costs: a training step with and without the outputs under the previous weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmarks.speed.contest import Contender, Group, Row
from rankwise.losses import EmbeddingLoss, StableAPLoss
from rankwise.models import MLPEmbedder
from rankwise.training import PreviousWeights

__all__ = ["PREVIOUS_WEIGHTS"]

_INPUTS, _WIDTH, _DIMENSIONS, _PER_CLASS = 512, 1024, 128, 4


@dataclass(frozen=True)
class _Batch:
    features: Tensor
    labels: Tensor


def _make(size: int) -> _Batch:
    random = torch.Generator().manual_seed(0)
    labels = torch.arange(size // _PER_CLASS).repeat_interleave(_PER_CLASS)
    return _Batch(torch.randn(size, _INPUTS, generator=random), labels)


def _model() -> nn.Module:
    torch.manual_seed(0)
    return MLPEmbedder(_INPUTS, _DIMENSIONS, hidden=(_WIDTH, _WIDTH))


def _step(with_previous: bool) -> Callable[[_Batch], Callable[[], object]]:
    def prepare(batch: _Batch) -> Callable[[], object]:
        model, loss = _model(), EmbeddingLoss(StableAPLoss())
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
    model = _model()

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
        f"A whole training step, optimiser included: a network {_INPUTS}-{_WIDTH}-{_WIDTH}-{_DIMENSIONS}, "
        f"{_PER_CLASS} per class, SGD. The limit is one forward without a graph: the least that the previous outputs "
        "can cost."
    ),
    rows=tuple(
        Row(
            name=str(size),
            make=lambda size=size: _make(size),  # type: ignore[misc]
            small=lambda: _make(16),
            contenders=(
                Contender("step with previous_embeddings", _step(with_previous=True), role="ours"),
                Contender("step without", _step(with_previous=False)),
                Contender("forward without a graph", _forward, role="limit"),
            ),
        )
        for size in (112, 448)
    ),
)
