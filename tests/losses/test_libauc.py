"""The first step of LibAUC's AP loss, whose formula is that of SOAP (`make bench` installs libauc)."""

from __future__ import annotations

import pytest
import torch

from rankwise.losses.baselines import SOAPLoss


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("gamma", [1.0, 0.9, 0.3])
@pytest.mark.parametrize("margin", [1.0, 0.6])
def test_the_gradient_of_the_first_step(gamma, margin):
    """LibAUC's averages begin at 0, which divides its first gradient by gamma; ours begin with what is observed."""
    losses = pytest.importorskip("libauc.losses")
    generator = torch.Generator().manual_seed(0)
    for case in range(50):
        size = int(torch.randint(3, 40, (1,), generator=generator))
        scores = torch.rand(size, generator=generator).requires_grad_()
        labels = (torch.rand(size, generator=generator) < 0.4).long()
        labels[case % size] = 1
        index = torch.arange(size)
        theirs = losses.APLoss(data_len=size, gamma=gamma, margin=margin)(scores, labels, index)
        (expected,) = torch.autograd.grad(theirs, scores)
        ours = SOAPLoss(margin, gamma, link="none")(scores, labels, sample_ids=index)
        (found,) = torch.autograd.grad(ours, scores)
        torch.testing.assert_close(found, gamma * expected, rtol=1e-4, atol=1e-6)
