"""Unit vectors and their similarities: those of plain torch, with its gradients."""

from __future__ import annotations

import pytest
import torch

from rankwise.losses.similarity import self_similarities, unit_vectors


@pytest.mark.parametrize("size", [0, 1, 7, 513, 700])
def test_values_and_gradients_are_those_of_the_product(size):
    random = torch.Generator().manual_seed(size)
    vectors = torch.randn(size, 5, generator=random, dtype=torch.float64).requires_grad_()
    upstream = torch.randn(size, size, generator=random, dtype=torch.float64)
    ours, plain = self_similarities(vectors), vectors @ vectors.T
    # Not bit for bit: a product may be rounded otherwise in tiles than as a whole.
    torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-12)
    (got,), (expected,) = (torch.autograd.grad(value, vectors, upstream) for value in (ours, plain))
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


def test_the_gradient_can_be_differentiated_again():
    vectors = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda v: self_similarities(v).square(), (vectors,))


def test_unit_vectors_and_their_gradients_are_those_of_torch():
    random = torch.Generator().manual_seed(0)
    vectors = torch.randn(9, 5, generator=random, dtype=torch.float64)
    vectors[3], vectors[4], vectors[5] = 0, 1e-13, 1e150
    upstream = torch.randn(9, 5, generator=random, dtype=torch.float64)
    vectors.requires_grad_()
    ours, plain = unit_vectors(vectors), torch.nn.functional.normalize(vectors)
    torch.testing.assert_close(ours, plain, rtol=1e-14, atol=0)
    (got,), (expected,) = (torch.autograd.grad(value, vectors, upstream) for value in (ours, plain))
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


def test_unit_vectors_can_be_differentiated_twice():
    vectors = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(unit_vectors, (vectors,))
    assert torch.autograd.gradgradcheck(unit_vectors, (vectors,))
