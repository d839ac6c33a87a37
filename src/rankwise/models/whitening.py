"""Vectors of images in closed form on top of a trained network: its outputs, its features and the pixels, whitened."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, normalize

from rankwise.checks import check_share
from rankwise.models.convolution import ConvEmbedder
from rankwise.models.resnet import ResNetEmbedder

__all__ = ["WhitenedEmbedder", "fit_whitening"]

# Pixels are averaged to a grid of so many rows and columns, the features of a small network to one of so many.
PIXEL_GRID, FEATURE_GRID = 16, 4


class WhitenedEmbedder(nn.Module):
    """A network from images to vectors, and what replaces its vectors after training.

    An image has three blocks of numbers: the vector of the network, its features before the last layer, and its pixels
    on a coarse grid. Each block x becomes

        u = (x - mean) W,   W = (within-class covariance, shrunk)^(-1/2),

    scaled to length 1. The blocks are multiplied by their weights, joined, and projected to d numbers of length 1.
    With few classes to train on, features and pixels keep what the last layer unlearned. In training mode, and before
    `fit`, the vectors are those of the network.

    Args:
        network: a `ConvEmbedder` or `ResNetEmbedder` with d outputs.
        channels: of the images.

    Example:
        >>> images, labels = torch.rand(24, 1, 16, 16), torch.arange(24) // 4
        >>> model = WhitenedEmbedder(ConvEmbedder(1, 16, 8), channels=1).eval()
        >>> before = model(images)
        >>> model.fit(model.blocks(images), labels, weights=(1.0, 1.0, 0.5), shrinkage=0.5)
        >>> before.shape == model(images).shape, bool(torch.allclose(before, model(images)))
        (True, False)
    """

    mean: Tensor
    projection: Tensor

    def __init__(self, network: ConvEmbedder | ResNetEmbedder, *, channels: int) -> None:
        super().__init__()
        self.network = network
        outputs = network.last.out_features
        self.grid = network.grid if isinstance(network, ConvEmbedder) else 1
        maps = network.last.in_features // self.grid**2
        self.sizes = (outputs, maps * min(self.grid, FEATURE_GRID) ** 2, channels * PIXEL_GRID**2)
        self.register_buffer("mean", torch.zeros(sum(self.sizes)))
        for name, size in zip(("of_vectors", "of_features", "of_pixels"), self.sizes, strict=True):
            self.register_buffer(name, torch.eye(size))
        self.register_buffer("projection", torch.eye(sum(self.sizes), outputs))

    @property
    def mixes(self) -> bool:
        """Return whether training should call `mixed`."""
        return self.network.mixes

    def mixed(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Map with feature mixup, see `ConvEmbedder.mixed`."""
        return self.network.mixed(images, labels)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (N, C, H, W) to vectors (N, d)."""
        if self.training:
            vectors: Tensor = self.network(images)
            return vectors
        return self.join(self.blocks(images))

    def join(self, blocks: Tensor) -> Tensor:
        """Map the blocks of images, see `blocks`, to vectors (N, d)."""
        return normalize(self._whitened(blocks) @ self.projection)

    def blocks(self, images: Tensor) -> Tensor:
        """Return the three blocks (N, sum of their sizes) of images, as they are."""
        features = self.network.features(images)
        pooled = features.unflatten(1, (-1, self.grid, self.grid))
        if self.grid > FEATURE_GRID:
            pooled = adaptive_avg_pool2d(pooled, FEATURE_GRID)
        pixels = adaptive_avg_pool2d(images, PIXEL_GRID)
        return torch.cat([self.network.project(features), pooled.flatten(1), pixels.flatten(1)], dim=1)

    @torch.no_grad()
    def fit(self, blocks: Tensor, labels: Tensor, *, weights: Sequence[float], shrinkage: float) -> None:
        """Fit whitening and projection.

        Args:
            blocks: (N, sum of sizes) of the training images, see `blocks`.
            labels: (N,) classes.
            weights: of the three blocks.
            shrinkage: see `fit_whitening`.
        """
        self.fit_whitening(blocks, labels, shrinkage=shrinkage)
        self.fit_projection(blocks, weights)

    @torch.no_grad()
    def fit_whitening(self, blocks: Tensor, labels: Tensor, *, shrinkage: float) -> None:
        """Fit mean and whitening of each block, see `fit`."""
        self.mean.copy_(blocks.double().mean(0))
        for matrix, block in zip(self._matrices(), blocks.split(self.sizes, dim=1), strict=True):
            matrix.copy_(fit_whitening(block, labels, shrinkage=shrinkage))

    @torch.no_grad()
    def fit_projection(self, blocks: Tensor, weights: Sequence[float]) -> None:
        """Fit the projection of the weighted blocks that keeps most of the products of the training images."""
        scale = torch.cat([torch.full((size,), weight) for size, weight in zip(self.sizes, weights, strict=True)])
        joined = self._whitened(blocks.to(self.mean)) * scale.to(self.mean)
        _, directions = torch.linalg.eigh((joined.mT @ joined).double())
        kept = min(self.projection.shape)
        self.projection.zero_()
        self.projection[:, :kept] = scale.to(self.mean)[:, None] * directions.flip(1)[:, :kept].to(self.mean)

    def _matrices(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.of_vectors, self.of_features, self.of_pixels  # type: ignore[return-value]

    def _whitened(self, blocks: Tensor) -> Tensor:
        """Return the whitened blocks, each of length 1."""
        centred = (blocks - self.mean).split(self.sizes, dim=1)
        return torch.cat([normalize(x @ matrix) for x, matrix in zip(centred, self._matrices(), strict=True)], dim=1)


def fit_whitening(rows: Tensor, labels: Tensor, *, shrinkage: float) -> Tensor:
    """Return the symmetric matrix (D, D), float64, that whitens rows within their classes.

        S = (1 - shrinkage) S_within + shrinkage (trace S_within / D) I,   W = S^(-1/2)

    Args:
        rows: (N, D).
        labels: (N,) classes; a class of one row adds nothing.
        shrinkage: in (0, 1); keeps the matrix finite where there are fewer rows than numbers.

    Example:
        >>> rows = torch.tensor([[-2.0, 0.0], [2.0, 0.0], [5.0, -1.0], [5.0, 1.0]])
        >>> fit_whitening(rows, torch.tensor([0, 0, 1, 1]), shrinkage=1e-9).mul(10).round()
        tensor([[ 5.,  0.],
                [ 0., 10.]], dtype=torch.float64)
    """
    check_share("shrinkage", shrinkage)
    rows = rows.detach().double()
    classes, index = labels.unique(return_inverse=True)
    means = torch.zeros(len(classes), rows.shape[1], dtype=rows.dtype, device=rows.device).index_add(0, index, rows)
    rows = rows - (means / index.bincount()[:, None])[index]
    covariance = rows.mT @ rows / max(1, len(rows) - len(classes))
    level = covariance.diagonal().mean().clamp_min(torch.finfo(torch.float32).tiny)
    covariance = torch.lerp(covariance, torch.eye(len(covariance)).to(covariance) * level, shrinkage)
    values, directions = torch.linalg.eigh(covariance)
    whitening: Tensor = directions * values.clamp_min(level * 1e-12).rsqrt() @ directions.mT
    return whitening
