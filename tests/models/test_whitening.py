"""Whitened vectors of images: the formula, what they are before fitting, what the projection keeps."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import normalize

from oracles.models import whitening
from rankwise.models import ConvEmbedder, WhitenedEmbedder
from rankwise.models.whitening import fit_whitening
from workers.pictures import make_pictures


def make_model(outputs=12, size=16, channels=1):
    torch.manual_seed(0)
    return WhitenedEmbedder(ConvEmbedder(channels, size, outputs), channels=channels)


def some_images(**options):
    images, labels = make_pictures(**options)
    return images.float() / 255, labels


@pytest.mark.parametrize("shrinkage", [0.01, 0.5, 0.99])
def test_whitening_is_that_of_the_formula(shrinkage):
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(40, 6, generator=generator, dtype=torch.float64) * torch.tensor([1.0, 5, 0.1, 1, 1, 3])
    labels = torch.randint(0, 5, (40,), generator=generator)
    expected = torch.from_numpy(whitening(rows, labels, shrinkage))
    torch.testing.assert_close(fit_whitening(rows, labels, shrinkage=shrinkage), expected, rtol=1e-9, atol=1e-9)


def test_whitened_rows_have_the_identity_as_covariance_within_classes():
    generator = torch.Generator().manual_seed(2)
    mixed = torch.randn(4, 4, generator=generator, dtype=torch.float64)
    labels = torch.arange(300) % 3
    rows = torch.randn(300, 4, generator=generator, dtype=torch.float64) @ mixed + 10.0 * labels[:, None]
    white = rows @ fit_whitening(rows, labels, shrinkage=1e-12)
    residuals = torch.cat([white[labels == label] - white[labels == label].mean(0) for label in range(3)])
    torch.testing.assert_close(residuals.T @ residuals / 297, torch.eye(4).double(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("rows", [torch.zeros(6, 3), torch.ones(2, 3), torch.rand(1, 3)])
def test_rows_without_spread_give_a_finite_matrix(rows):
    assert fit_whitening(rows, torch.arange(len(rows)), shrinkage=0.5).isfinite().all()


@pytest.mark.parametrize("shrinkage", [0.0, 1.0, -1.0])
def test_a_wrong_shrinkage_is_refused(shrinkage):
    with pytest.raises(ValueError, match="shrinkage: expected a number in"):
        fit_whitening(torch.rand(4, 2), torch.arange(4), shrinkage=shrinkage)


@pytest.mark.parametrize("size", [16, 48])  # the features of the second are averaged to a smaller grid
def test_vectors_are_those_of_the_network_in_training_and_before_fitting(size):
    images, labels = some_images(size=size)
    model = make_model(size=size)
    torch.manual_seed(3)
    trained = model.train()(images)
    other = make_model(size=size).network.train()
    torch.testing.assert_close(trained, other(images))
    model.eval()
    torch.testing.assert_close(model(images), model.network(images))
    model.fit(model.blocks(images), labels, weights=(1.0, 1.0, 1.0), shrinkage=0.5)
    torch.testing.assert_close(model.train()(images), model.network(images))
    assert not torch.allclose(model.eval()(images), model.network(images))


def test_the_projection_keeps_the_products_of_images_that_it_was_fitted_to():
    images, labels = some_images(classes=5, each=3)  # fewer images than the 20 numbers of a vector
    model = make_model(outputs=20).eval()
    blocks, weights = model.blocks(images).detach(), (1.0, 0.5, 2.0)
    model.fit(blocks, labels, weights=weights, shrinkage=0.3)
    parts = []
    for x, weight in zip(blocks.double().split(model.sizes, 1), weights, strict=True):
        matrix = torch.from_numpy(whitening(x, labels, 0.3))
        parts.append(weight * normalize((x - x.mean(0)) @ matrix))
    expected = normalize(torch.cat(parts, 1))
    vectors = model(images).detach().double()
    assert vectors.shape == (15, 20)
    torch.testing.assert_close(vectors @ vectors.T, expected @ expected.T, rtol=0, atol=1e-4)


def test_a_block_of_weight_0_changes_nothing():
    images, labels = some_images()
    model = make_model().eval()
    model.fit(model.blocks(images), labels, weights=(1.0, 1.0, 0.0), shrinkage=0.5)
    noise = model.blocks(images)
    noise[:, -model.sizes[2] :] = torch.rand(len(images), model.sizes[2])
    torch.testing.assert_close(model.join(noise), model(images))


def test_what_was_fitted_is_in_the_state_dict():
    images, labels = some_images()
    model = make_model().eval()
    model.fit(model.blocks(images), labels, weights=(1.0, 1.0, 0.5), shrinkage=0.5)
    torch.manual_seed(9)
    other = WhitenedEmbedder(ConvEmbedder(1, 16, 12), channels=1).eval()
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(images), model(images))
