"""ResNet-18 and ResNet-50 as embedders of images. Needs `pip install "rankwise[vision]"`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rankwise.checks import check_choice
from rankwise.models.convolution import FeatureMixup

__all__ = ["IMAGENET", "MEAN", "SPREAD", "ResNetEmbedder", "load_weights", "torchvision_for"]

IMAGENET = "imagenet"
DEPTHS = {18: "ResNet18_Weights", 50: "ResNet50_Weights"}
# Mean and spread of the colours in ImageNet, on which the published weights rely.
MEAN, SPREAD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class ResNetEmbedder(nn.Module):
    """One vector per image, by torchvision's ResNet with a linear layer of its own at the end.

    Args:
        depth: 18 or 50.
        outputs: d, the numbers in a vector.
        weights: "imagenet" (downloaded by torchvision and kept), a file with a state dict of torchvision's ResNet of
            this depth, or None to start at random. The last layer always starts at random.
        frozen_batch_norm: keep statistics and scales of batch normalisation as the weights have them, as is usual for
            retrieval; without weights they are to be loaded later.
        stem: "large" for pictures of 100 pixels and more; "small" sees every pixel of pictures like CIFAR's (3 x 3, no
            pooling); published weights fit the large one.
        mixup: `FeatureMixup` before each of the last two stages while training: a batch of B leaves as one of 4B, see
            `mixed`.
        normalise: vectors of length 1, so that their products are cosines; otherwise as the last layer gives them.

    Example:
        >>> vectors = ResNetEmbedder(18, 32)(torch.rand(2, 3, 64, 64))
        >>> vectors.shape, bool(torch.allclose(vectors.norm(dim=1), torch.ones(2)))
        (torch.Size([2, 32]), True)
    """

    mean: Tensor
    spread: Tensor

    def __init__(
        self,
        depth: int,
        outputs: int,
        *,
        weights: str | Path | None = None,
        frozen_batch_norm: bool = False,
        stem: str = "large",
        mixup: bool = False,
        normalise: bool = True,
    ) -> None:
        super().__init__()
        check_choice("stem", stem, ("large", "small"))
        if depth not in DEPTHS:
            raise ValueError(f"depth: expected 18 or 50, got {depth!r}")
        if stem == "small" and weights is not None:
            raise ValueError('stem: expected "large" with given weights, got "small"')
        vision = torchvision_for("ResNet")
        build = {18: vision.models.resnet18, 50: vision.models.resnet50}[depth]
        self.body = build(norm_layer=vision.ops.FrozenBatchNorm2d) if frozen_batch_norm else build()
        width = self.body.fc.in_features
        self.body.fc = nn.Identity()
        if stem == "small":
            self.body.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
            self.body.maxpool = nn.Identity()
        self.depth = depth
        if weights is not None:
            self.load(weights)
        self.last = nn.Linear(width, outputs)
        self.mix = FeatureMixup() if mixup else None
        self.normalise = normalise
        self.register_buffer("mean", torch.tensor(MEAN).view(3, 1, 1), persistent=False)
        self.register_buffer("spread", torch.tensor(SPREAD).view(3, 1, 1), persistent=False)

    @property
    def mixes(self) -> bool:
        """Return whether training should call `mixed` instead of `forward`."""
        return self.mix is not None

    def load(self, weights: str | Path) -> None:
        """Load "imagenet" or a file of weights, all but the last layer."""
        load_weights(self.body, self.depth, weights)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (N, 3, H, W) of numbers from 0 to 1 to vectors (N, d)."""
        return self.project(self.features(images))

    def features(self, images: Tensor) -> Tensor:
        """Map images (N, 3, H, W) to what the last layer takes, (N, `last.in_features`)."""
        return self._pool(self.body.layer4(self.body.layer3(self._begin(images))))

    def project(self, features: Tensor) -> Tensor:
        """Map features to vectors (N, d)."""
        vectors: Tensor = self.last(features)
        return functional.normalize(vectors, dim=1) if self.normalise else vectors

    def mixed(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Map with feature mixup: images (N, 3, H, W) and classes (N,) to vectors (4N, d) and classes (4N,)."""
        if self.mix is None:
            raise ValueError("mixup: expected a network with mixup=True, got one without")
        features = self._begin(images)
        for stage in (self.body.layer3, self.body.layer4):
            features, labels = self.mix(features, labels)
            features = stage(features)
        return self.project(self._pool(features)), labels

    def _begin(self, images: Tensor) -> Tensor:
        body = self.body
        first = body.maxpool(body.relu(body.bn1(body.conv1((images - self.mean) / self.spread))))
        features: Tensor = body.layer2(body.layer1(first))
        return features

    def _pool(self, features: Tensor) -> Tensor:
        pooled: Tensor = self.body.avgpool(features)
        return pooled.flatten(1)


def torchvision_for(purpose: str) -> Any:
    """Return torchvision; raise an error that says what needs it and how to install it."""
    try:
        import torchvision
    except ModuleNotFoundError as problem:
        raise ModuleNotFoundError(
            f"{purpose} needs torchvision: pip install 'rankwise[vision]'", name=problem.name
        ) from None
    return torchvision


def load_weights(body: nn.Module, depth: int, weights: str | Path) -> None:
    """Load "imagenet" or a file of weights into torchvision's ResNet of this depth, all but the last layer."""
    _load(body, _published(depth) if weights == IMAGENET else _from_file(Path(weights)), weights)


def _published(depth: int) -> Mapping[str, Any]:
    """Return the weights of the original training on ImageNet, those of the papers."""
    weights = getattr(torchvision_for("ResNet").models, DEPTHS[depth]).IMAGENET1K_V1
    try:
        state: Mapping[str, Any] = weights.get_state_dict(progress=False, check_hash=True)
    except OSError as problem:  # URLError among them
        raise ValueError(
            f'weights: expected to download "{IMAGENET}" from {weights.url}, which failed ({problem}); get that file '
            "where there is a network and give its path"
        ) from None
    return state


def _from_file(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file of weights")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as problem:  # pickle, zip and torch each have errors of their own for a file that is not one
        said = (str(problem).splitlines() or [type(problem).__name__])[0]
        raise ValueError(f"{path}: expected weights saved by torch.save, as tensors alone ({said})") from None
    if not isinstance(state, Mapping):
        raise ValueError(f"{path}: expected a state dict, got a {type(state).__name__}")
    return state


def _load(body: nn.Module, state: Mapping[str, Any], origin: str | Path) -> None:
    kept = {name: value for name, value in state.items() if not name.startswith("fc.")}
    try:
        missing, unknown = body.load_state_dict(kept, strict=False)
    except RuntimeError as problem:
        raise ValueError(f"weights: {origin} does not fit this network ({' '.join(str(problem).split())})") from None
    if missing or unknown:
        what = f"lacks {missing[0]!r}" if missing else f"has {unknown[0]!r}, which this network has not"
        raise ValueError(f"weights: expected those of torchvision's ResNet of this depth; {origin} {what}")
