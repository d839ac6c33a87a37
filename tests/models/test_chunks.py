"""Batches larger than memory in a user's own loop: the gradient of the whole batch, one more forward, less memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from rankwise.losses import AUPRCLoss, EmbeddingLoss
from rankwise.models import InChunks
from workers.patience import PATIENCE
from workers.processes import Program
from workers.step_in_chunks import step_in_chunks


class Counting(nn.Module):
    """How many rows have gone through."""

    def __init__(self, model):
        super().__init__()
        self.model, self.rows = model, 0

    def forward(self, features):
        self.rows += len(features)
        return self.model(features)


def make_model(dropout=0.0):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Dropout(dropout), nn.Linear(32, 8))


@pytest.mark.parametrize("rows", [1, 5, 12, 40])
def test_the_gradient_is_that_of_the_whole_batch(rows):
    features, labels = torch.randn(24, 6, dtype=torch.float64), torch.arange(6).repeat(4)
    gradients = []
    for wrapped in (lambda model: model, lambda model: InChunks(model, rows)):
        model = make_model().double()
        EmbeddingLoss(AUPRCLoss())(wrapped(model)(features), labels).backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-12)


def test_it_costs_exactly_one_more_forward():
    model = Counting(make_model())
    outputs = InChunks(model, 5)(torch.randn(24, 6))
    assert model.rows == 24
    outputs.sum().backward()
    assert model.rows == 48


def test_nothing_is_computed_twice_without_a_gradient():
    model = Counting(make_model())
    with torch.no_grad():
        InChunks(model, 5)(torch.randn(24, 6))
    assert model.rows == 24


def test_dropout_draws_the_same_numbers_again():
    """The gradient of the last layer's weights is made of the very activations that gave the outputs."""
    model, features = make_model(dropout=0.5), torch.randn(9, 6)
    seen = []
    model[2].register_forward_hook(lambda module, given, output: seen.append(output.detach().clone()))
    InChunks(model, 3)(features).sum().backward()
    torch.testing.assert_close(
        torch.cat(seen[:3]),
        torch.cat(sorted(seen[3:], key=lambda t: [torch.equal(t, s) for s in seen[:3]].index(True))),
    )
    torch.testing.assert_close(model[3].weight.grad[0], torch.cat(seen[:3]).sum(0))


def test_several_tensors_are_split_together():
    model = nn.Bilinear(3, 2, 1)
    left, right = torch.randn(7, 3), torch.randn(7, 2)
    torch.testing.assert_close(InChunks(model, 3)(left, right), model(left, right))
    with pytest.raises(ValueError, match="features"):
        InChunks(model, 3)(left, right[:5])
    with pytest.raises(ValueError, match="rows"):
        InChunks(model, 0)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peak memory is read as Linux tells it")
def test_a_step_takes_less_memory_in_a_process_of_its_own():
    programs = [Program(step_in_chunks, rows) for rows in (0, 512)]
    whole, chunked = (float(program.communicate(timeout=PATIENCE)[0]) for program in programs)
    # Three layers, each with 16,384 x 256 numbers before and after its tanh: 16 MiB each.
    assert whole > 90
    assert chunked < 0.1 * whole
