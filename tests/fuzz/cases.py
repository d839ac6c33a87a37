"""Batches of lists as nobody would draw them by hand, and a search through them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

# How often a search looks: a little in `make test`, long in `make test-all` (RANKWISE_EXAMPLES says how long).
FEW = 12
MANY = int(os.environ.get("RANKWISE_EXAMPLES", "2000"))
searches = pytest.mark.parametrize("examples", [FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=["few", "many"])

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
SPREADS = ("normal", "ties", "constant", "zeros of both signs", "denormal", "huge", "every size", "one far away")
WEIGHTS = ("zeros", "tiny", "large", "beyond float32", "every size")
LAYOUTS = ("contiguous", "strided", "transposed", "expanded")
LABEL_DTYPES = (torch.bool, torch.uint8, torch.int32, torch.int64, torch.float32, torch.float64)
SMALLEST, LARGEST = -(2**63), 2**63 - 1
IDS_OF_ALL_KINDS = st.one_of(st.integers(-2, 2), st.sampled_from([SMALLEST, LARGEST]), st.integers(SMALLEST, LARGEST))


def search(check: Callable[[Any], None], strategy: st.SearchStrategy[Any], examples: int) -> None:
    """Run `check` on so many examples; hypothesis gives back the smallest that fails."""

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=examples == FEW,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def run(case: Any) -> None:
        check(case)

    run()


@dataclass(frozen=True)
class Case:
    """A batch as a caller passes it: scores, labels, and what goes with them by name."""

    scores: Tensor
    labels: Tensor
    given: dict[str, Tensor] = field(default_factory=dict)
    layout: str = "contiguous"

    @property
    def counted(self) -> Tensor:
        """Which items count."""
        counted = self.given.get("mask", torch.ones(self.scores.shape, dtype=torch.bool))
        return counted & (self.given["weights"] > 0) if "weights" in self.given else counted

    def laid_out(self, tensor: Tensor) -> Tensor:
        """The same numbers, otherwise in memory."""
        if self.layout == "strided":
            return torch.stack([tensor, torch.zeros_like(tensor)], -1)[..., 0]
        if self.layout == "transposed":
            return tensor.mT.contiguous().mT if tensor.dim() > 1 else tensor
        return tensor


@st.composite
def cases(draw: st.DrawFn, labels: str = "binary", longest: int = 40) -> Case:
    """One list, ragged lists or rows of them."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = draw(st.sampled_from(("one list", "ragged", "rows")))
    length = draw(st.one_of(st.integers(1, 6), st.integers(1, longest)))
    lists = draw(st.integers(1, 6)) if shape == "rows" else 1
    size = (lists, length) if shape == "rows" else (length,)
    dtype = draw(st.sampled_from(DTYPES))
    layout = draw(st.sampled_from(LAYOUTS))
    most = min(torch.finfo(dtype).max, 1e30)
    scores = torch.from_numpy(_spread(draw(st.sampled_from(SPREADS)), random, size).clip(-most, most)).to(dtype)
    if layout == "expanded":
        scores = scores.flatten()[:1].expand(size)
    given: dict[str, Tensor] = {}
    # Rows of one item need a mask.
    if shape == "rows" and (draw(st.booleans()) or length == 1):
        given["mask"] = torch.from_numpy(random.random(size) < draw(st.sampled_from((0.2, 0.7, 1.0))))
        given["mask"].view(-1)[int(random.integers(given["mask"].numel()))] = True
    if draw(st.integers(0, 3)) == 0:
        given["weights"] = torch.from_numpy(_weights(draw(st.sampled_from(WEIGHTS)), random, size))
    if shape == "ragged" or (shape == "rows" and draw(st.booleans())):
        given["query_ids"] = _ids(draw, random, lists if shape == "rows" else length)
        if draw(st.integers(0, 3)) == 0:
            given["sample_ids"] = _ids(draw, random, int(np.prod(size))).view(size)
    return Case(scores, _labels(draw, random, labels, size), given, layout)


def drawn(kind: str, seed: int, size: tuple[int, ...]) -> Tensor:
    """Numbers of one of the `SPREADS`, float64."""
    return torch.from_numpy(_spread(kind, np.random.default_rng(seed), size))


def _spread(kind: str, random: np.random.Generator, size: tuple[int, ...]) -> np.ndarray:
    normal = random.normal(size=size)
    if kind == "ties":
        return normal.round()
    if kind == "constant":
        return np.full(size, normal.flat[0])
    if kind == "zeros of both signs":
        return np.where(normal > 0, 0.0, -0.0)
    if kind == "denormal":
        return normal * 1e-40
    if kind == "huge":
        return normal * 10.0 ** random.integers(4, 31)
    if kind == "every size":
        return np.sign(normal) * 10.0 ** random.uniform(-38, 30, size)
    if kind == "one far away":
        normal.flat[0] = random.choice((-1e30, 1e30, 3e4))
    return normal


def _weights(kind: str, random: np.random.Generator, size: tuple[int, ...]) -> np.ndarray:
    drawn = random.integers(0, 3, size).astype(np.float64)
    if kind == "every size":
        return drawn * 10.0 ** random.uniform(-60, 60, size)
    return drawn * {"zeros": 1.0, "tiny": 1e-20, "large": 1e6, "beyond float32": 1e60}[kind]


def _ids(draw: st.DrawFn, random: np.random.Generator, count: int) -> Tensor:
    kind = draw(st.sampled_from(("repeated", "different", "extreme", "int32")))
    if kind == "int32":
        return torch.from_numpy(random.integers(-5, 5, count).astype(np.int32))
    if kind == "extreme":
        return torch.tensor([SMALLEST, SMALLEST + 1, -1, 0, LARGEST])[torch.from_numpy(random.integers(0, 5, count))]
    few = 3 if kind == "repeated" else 2**40
    return torch.from_numpy(random.integers(-few, few, count))


def _labels(draw: st.DrawFn, random: np.random.Generator, kind: str, size: tuple[int, ...]) -> Tensor:
    dtype = draw(st.sampled_from(LABEL_DTYPES))
    share = draw(st.sampled_from((0.0, 0.1, 0.5, 1.0)))
    relevant = random.random(size) < share
    most = 1 if kind == "binary" or dtype == torch.bool else int(draw(st.sampled_from((1, 4, 30))))
    return torch.from_numpy(relevant * random.integers(1, most + 1, size)).to(dtype)


@st.composite
def refused_scores(draw: st.DrawFn, labels: str = "binary") -> tuple[Case, Tensor]:
    """A batch, and the same scores with something that is no number among those that count."""
    case = draw(cases(labels).filter(lambda case: bool(case.counted.any())))
    places = case.counted.flatten().nonzero()[:, 0]
    bad = case.scores.clone().flatten()
    bad[places[draw(st.integers(0, len(places) - 1))]] = draw(
        st.sampled_from([float("nan"), float("inf"), -float("inf")])
    )
    return case, bad.view(case.scores.shape)
