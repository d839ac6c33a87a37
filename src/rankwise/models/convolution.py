"""A small convolutional network for small images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn
from torch.nn import functional

from rankwise.checks import check_count

__all__ = ["ConvEmbedder"]


class ConvEmbedder(nn.Module):
    """One vector per image: stages of a 3 x 3 convolution, batch normalisation and ReLU, then a linear layer.

    Height and width are halved between stages, so an image needs at least 2^(stages - 1) pixels each way.

    Args:
        channels: C of the images, 1 or 3; size: their height and width.
        outputs: d, the numbers in a vector.
        widths: channels of each stage.
        normalise: vectors of length 1, so that their products are cosines; otherwise as the last layer gives them.

    Example:
        >>> import torch
        >>> vectors = ConvEmbedder(1, 28, 64)(torch.rand(5, 1, 28, 28))
        >>> vectors.shape, bool(torch.allclose(vectors.norm(dim=1), torch.ones(5)))
        (torch.Size([5, 64]), True)
    """

    def __init__(
        self,
        channels: int,
        size: int,
        outputs: int,
        *,
        widths: Sequence[int] = (32, 32, 64, 64),
        normalise: bool = True,
    ) -> None:
        super().__init__()
        least = 2 ** (len(widths) - 1)
        check_count("size", size, least=least)
        stages: list[nn.Module] = []
        for number, width in enumerate(widths):
            if number:
                stages.append(nn.MaxPool2d(2))
            stages += [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
            channels = width
        self.stages = nn.Sequential(*stages, nn.Flatten())
        self.last = nn.Linear(channels * (size // least) ** 2, outputs)
        self.normalise = normalise

    def forward(self, images: Tensor) -> Tensor:
        """Images (N, C, size, size) to vectors (N, d)."""
        vectors = cast(Tensor, self.last(self.stages(images)))
        return functional.normalize(vectors, dim=1) if self.normalise else vectors
