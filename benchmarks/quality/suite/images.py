"""Images: mean average precision of retrieval among new classes, with few or many classes to learn from.

Rivals have the procedure of the default (augmentation, whitening, choice of weights, refit) unless their name says
"alone": the last weights of the network, trained on all classes. Needs `omniglot` and `cifar10-jpg` under
RANKWISE_DATA.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import Tensor

import rankwise as rw
from benchmarks.find import find_data
from rankwise.data import ImagePart, Split
from rankwise.problems import ImageRetrieval
from rankwise.training import fit

__all__ = ["CONTENDERS", "METRIC", "OURS", "data_sets", "evaluate"]

METRIC = "mAP"
OURS = "rankwise train"
# Omniglot: classes to train on, and others to test on.
OMNIGLOT = {f"Omniglot, {count} classes": count for count in (20, 40, 100, 964)}
TESTED = 100
IMAGES_OF_CIFAR = 400

CONTENDERS: Mapping[str, dict[str, Any] | None] = {
    OURS: {},
    "multi-similarity": {"loss": {"name": "multi-similarity", "beta": 25.0}},
    "Smooth-AP": {"loss": {"name": "smooth-ap", "temperature": 0.05}},
    "triplet": {"loss": "triplet"},
    "multi-similarity alone": {"loss": {"name": "multi-similarity", "beta": 25.0}, "model": {"whitening": None}},
    "shrunk LDA of pixels": None,
    "pixels": None,
}


class Images(NamedTuple):
    """Images (N, H, W) or (N, H, W, 3) with classes (N,), to train on and, of other classes, to test on."""

    train: NDArray[Any]
    train_labels: NDArray[np.int64]
    test: NDArray[Any]
    test_labels: NDArray[np.int64]
    options: Mapping[str, Any]


def data_sets(half: str) -> Sequence[str]:
    """Return the names of the data sets; a half draws its own classes, and the development half has no large set."""
    names = [*OMNIGLOT, "digits, 5 classes", "CIFAR-10, 5 classes"]
    if half == "development":
        names.remove("Omniglot, 964 classes")
    return [f"{name} ({half})" for name in names]


def evaluate(data: str, contender: str, cut: int) -> float:
    """Return the mean average precision of a contender on images of new classes."""
    images = _images(data, cut)
    options = CONTENDERS[contender]
    problem = ImageRetrieval(data=images.options, seeds=(cut,), **(options or {}))
    if options is not None and problem.model.whitening is not None:
        return rw.train(problem, train=images[:2], test=images[2:4]).evaluate().means["map"]
    schema, split = problem.read({"train": images[:2], "test": images[2:4]})
    test = split.part("test")
    if options is None:
        vectors = _without_network(contender, split.train, test)
        return rw.evaluate_retrieval(vectors, test.labels, ["map"], bootstrap=0).means["map"]
    problem = problem.changed(evaluation={"every": None, "weights": "last"})
    model = fit(problem, schema, Split(split.train, None, test), seed=cut).model
    return float(problem.evaluate(model, test).means["map"])


def _without_network(contender: str, train: ImagePart, test: ImagePart) -> Tensor:
    known, new = (part.pixels(range(len(part))).flatten(1) for part in (train, test))
    if contender == "pixels":
        return new - known.mean(0)
    lda = LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto").fit(known.numpy(), train.labels.numpy())
    return torch.from_numpy(lda.transform(new.numpy()))


def _images(data: str, cut: int) -> Images:
    name, _, half = data.removesuffix(")").partition(" (")
    random = np.random.default_rng([cut, half == "confirmation"])
    if name in OMNIGLOT:
        (background, other), count = _omniglot(), OMNIGLOT[name]
        train = background[random.permutation(len(background))[:count]]
        test = other[random.permutation(len(other))[:TESTED]]
        options = {"size": 28, "channels": 1, "invert": True}
        return Images(*_listed(train), *_listed(test), options)
    images, labels = _digits() if name.startswith("digits") else _cifar()
    chosen = np.isin(labels, random.permutation(10)[:5])
    options = {"size": images.shape[1], "channels": 3 if images.ndim == 4 else 1}
    return Images(images[chosen], labels[chosen], images[~chosen], labels[~chosen], options)


def _listed(classes: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Turn images (C, K, H, W) into images (C K, H, W) and their classes."""
    return classes.reshape(-1, *classes.shape[2:]), np.repeat(np.arange(len(classes)), classes.shape[1])


@cache
def _omniglot() -> tuple[NDArray[Any], NDArray[Any]]:
    folder = find_data("omniglot")
    return tuple(np.load(folder / f"images_{part}.npz")["images"] for part in ("background", "evaluation"))  # type: ignore[return-value]


@cache
def _digits() -> tuple[NDArray[Any], NDArray[np.int64]]:
    digits = load_digits()
    return (digits.images * 15.9).astype(np.uint8).repeat(2, axis=1).repeat(2, axis=2), digits.target


@cache
def _cifar() -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The first images of each class of the training part."""
    from PIL import Image

    images: list[NDArray[Any]] = []
    labels: list[str] = []
    with tarfile.open(find_data("cifar10-jpg") / "cifar10-images.tar.xz") as archive:
        for member in archive:
            *_, part, label, name = ("", "", *member.name.split("/"))
            if part == "train" and name.endswith(".jpg") and labels.count(label) < IMAGES_OF_CIFAR:
                file = archive.extractfile(member)
                assert file is not None
                images.append(np.array(Image.open(io.BytesIO(file.read())).convert("RGB")))
                labels.append(label)
    return np.stack(images), np.unique(labels, return_inverse=True)[1]
