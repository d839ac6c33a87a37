"""A small convolutional network for small images, and feature mixup between its stages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from rankwise.checks import check_count, check_ids, check_same_shape, check_share

__all__ = ["ConvEmbedder", "FeatureMixup"]


class ConvEmbedder(nn.Module):
    """One vector per image: stages of a 3 x 3 convolution, batch normalisation and ReLU, then a linear layer.

    Height and width are halved between stages, so an image needs at least 2^(stages - 1) pixels each way.

    Args:
        channels: C of the images, 1 or 3; size: their height and width.
        outputs: d, the numbers in a vector.
        widths: channels of each stage.
        mixup: `FeatureMixup` before each of the last two stages while training: a batch of B leaves as one of 4B, see
            `mixed`; needs three stages.
        normalise: vectors of length 1, so that their products are cosines; otherwise as the last layer gives them.

    Example:
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
        mixup: bool = False,
        normalise: bool = True,
    ) -> None:
        super().__init__()
        if mixup and len(widths) < 3:
            raise ValueError(
                f"mixup: expected at least 3 stages, because it comes before the last two, got {len(widths)}"
            )
        least = 2 ** (len(widths) - 1)
        check_count("size", size, least=least)
        stages: list[nn.Module] = []
        for number, width in enumerate(widths, start=1):
            stages += [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)]
            if number < len(widths):
                stages.append(nn.MaxPool2d(2))  # the largest is the same after ReLU, which has less to do here
            stages.append(nn.ReLU())
            channels = width
        # Pixels with all their channels beside each other: the same sums in half the time on a CPU.
        self.stages = nn.Sequential(*stages, nn.Flatten()).to(memory_format=torch.channels_last)
        self.grid = size // least  # height and width of the features
        self.last = nn.Linear(channels * self.grid**2, outputs)
        self.mix = FeatureMixup() if mixup else None
        self.normalise = normalise

    @property
    def mixes(self) -> bool:
        """Return whether training should call `mixed`."""
        return self.mix is not None

    def forward(self, images: Tensor) -> Tensor:
        """Map images (N, C, size, size) to vectors (N, d)."""
        return self.project(self.features(images))

    def features(self, images: Tensor) -> Tensor:
        """Map images (N, C, size, size) to what the last layer takes, (N, `last.in_features`)."""
        features = self._begin(images)
        for layer in self.stages[2:]:
            features = layer(features)
        return features

    def project(self, features: Tensor) -> Tensor:
        """Map features to vectors (N, d)."""
        vectors = cast(Tensor, self.last(features))
        return functional.normalize(vectors, dim=1) if self.normalise else vectors

    def mixed(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Map with feature mixup: images (N, C, size, size) and classes (N,) to vectors (4N, d), classes (4N,)."""
        if self.mix is None:
            raise ValueError("mixup: expected a network with mixup=True, got one without")
        last_two = [layer for layer in self.stages if isinstance(layer, nn.Conv2d)][-2:]
        features = self._begin(images)
        for layer in self.stages[2:]:
            if layer in last_two:
                features, labels = self.mix(features, labels)
            features = layer(features)
        return self.project(features), labels

    def _begin(self, images: Tensor) -> Tensor:
        convolution, norm = self.stages[:2]
        return _normalised_convolution(images, cast(nn.Conv2d, convolution), cast(nn.BatchNorm2d, norm))


def _normalised_convolution(images: Tensor, convolution: nn.Conv2d, norm: nn.BatchNorm2d) -> Tensor:
    """Compute `norm(convolution(images))` without a pass over its many outputs.

    An output is a product w p with a patch p of the image. With the mean m and the covariance S of all patches it has
    the mean w m and the variance w S w, so that normalising is a change of the few weights.
    """
    images = images.contiguous(memory_format=torch.channels_last)
    weight, epsilon = convolution.weight, norm.eps
    assert norm.running_mean is not None
    assert norm.running_var is not None
    if norm.training:
        patches = functional.unfold(images, 3, padding=1)
        count = patches.shape[0] * patches.shape[2]
        centre = patches.mean((0, 2))
        patches = patches - centre[:, None]
        covariance = (patches @ patches.mT).sum(0) / count
        rows = weight.flatten(1)
        mean, variance = rows @ centre, ((rows @ covariance) * rows).sum(1)
        _remember(norm, mean.detach(), variance.detach() * count / (count - 1))
    else:
        mean, variance = norm.running_mean, norm.running_var
    scale = norm.weight * (variance + epsilon).rsqrt()
    return functional.conv2d(images, weight * scale[:, None, None, None], norm.bias - scale * mean, padding=1)


def _remember(norm: nn.BatchNorm2d, mean: Tensor, variance: Tensor) -> None:
    """Update the running statistics as batch normalisation does."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    norm.num_batches_tracked.add_(1)
    norm.running_mean.lerp_(mean.to(norm.running_mean), cast(float, norm.momentum))
    norm.running_var.lerp_(variance.to(norm.running_var), cast(float, norm.momentum))


class FeatureMixup(nn.Module):
    """Deep feature mixup: adds to every sample one that leans towards a random mean of its class.

        z~_i = keep z_i + (1 - keep) sum_j v_ij z_j,   v_ij uniform on (0, 1] for j of the class of i, of sum 1 over j,

    i itself among the j. The new samples have the labels of the old ones and come after them, so that a batch of B
    leaves as one of 2B. Put it before any stage of a network: only the stages after it have more to do. Before the last
    two stages, as in the paper, it makes the batch four times as large.

    Does nothing in eval mode. Draws from torch's random state, so `torch.manual_seed` makes it repeatable. The one
    sample of a class is mixed with itself: it comes twice.

    Args:
        keep: the share of the sample itself, in (0, 1).

    Example:
        >>> mix = FeatureMixup()
        >>> features, labels = mix(torch.rand(4, 8, 7, 7), torch.tensor([0, 0, 1, 1]))
        >>> features.shape, labels
        (torch.Size([8, 8, 7, 7]), tensor([0, 0, 1, 1, 0, 0, 1, 1]))

    Paper: Wen et al., Generalizable Stochastic Average Precision Learning via Stable Surrogate Loss, Chinese Journal of
    Computers 2025, section 7.1.
    """

    def __init__(self, keep: float = 0.9) -> None:
        super().__init__()
        self.keep = check_share("keep", keep)

    def forward(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Map features (B, ...) and integer classes (B,) to (2B, ...) and (2B,) in training, unchanged in
        evaluation.
        """
        if not self.training:
            return features, labels
        classes = check_ids("labels", labels)
        check_same_shape("labels", classes, "one class per row of features", features.shape[:1])
        same = classes[:, None] == classes
        # 1 - rand lies in (0, 1]: a weight of 0 for all would leave nothing to divide by.
        weights = (1 - torch.rand(same.shape, device=features.device)) * same
        weights = weights / weights.sum(1, keepdim=True)
        flat = features.flatten(1)
        means = (weights.to(flat.dtype) @ flat).view_as(features)
        mixed = features.lerp(means, 1 - self.keep)
        return torch.cat([features, mixed]), torch.cat([labels, labels])
