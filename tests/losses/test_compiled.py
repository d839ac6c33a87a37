"""A compiled training step: one graph break for each loss, the values and gradients of the plain one."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

from rankwise.losses import AUPRCLoss, EmbeddingLoss, ListStatistics, NDCGLoss, PApLoss, StableAPLoss, TopKNDCGLoss

# The compiler looks at gradients of inner tensors where it goes on after a break.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")

LABELS = torch.arange(24) % 4 == 0
GRADES = torch.randint(0, 3, (4, 6), generator=torch.Generator().manual_seed(0))
QUERIES, ITEMS = torch.arange(4), torch.arange(24).view(4, 6)
STATISTICS = ListStatistics(GRADES.flatten(), QUERIES.repeat_interleave(6), size=50)
SAMPLED = {"query_ids": QUERIES, "sample_ids": ITEMS}
# How the loss is made, the shape of its scores, labels and options of a call.
CASES = {
    "soprc": (AUPRCLoss, (24,), LABELS, {}),
    "stable-ap": (StableAPLoss, (24,), LABELS, {}),
    "pap": (partial(PApLoss, 3), (24,), LABELS, {}),
    "song": (NDCGLoss, (4, 6), GRADES, {}),
    "song, sampled": (partial(NDCGLoss, STATISTICS), (4, 6), GRADES, SAMPLED),
    "k-song": (partial(TopKNDCGLoss, 2), (4, 6), GRADES, {}),
    "retrieval": (lambda: EmbeddingLoss(AUPRCLoss()), (12, 2), torch.arange(12) // 3, {}),
}


def make_step(case):
    """A function of features that gives a loss, and the model whose weights it depends on."""
    build, shape, labels, options = CASES[case]
    torch.manual_seed(0)
    model, loss = nn.Linear(5, 1), build()
    return (lambda features: 2 * loss(model(features).view(shape), labels, **options)), model


@pytest.mark.parametrize("case", CASES)
def test_a_compiled_step_is_the_plain_one(case):
    torch._dynamo.reset()
    (plain, plain_model), (step, model) = make_step(case), make_step(case)
    compiled = torch.compile(step, backend="aot_eager")
    random = torch.Generator().manual_seed(1)
    for _ in range(3):  # what the loss remembers comes in, too
        features = torch.randn(24, 5, generator=random)
        values = [run(features) for run in (plain, compiled)]
        torch.testing.assert_close(*values, rtol=1e-5, atol=1e-7)
        for value in values:
            value.backward()
        torch.testing.assert_close(model.weight.grad, plain_model.weight.grad, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("case", CASES)
def test_a_loss_is_one_graph_break(case):
    torch._dynamo.reset()
    found = torch._dynamo.explain(make_step(case)[0])(torch.randn(24, 5))
    assert (found.graph_count, found.graph_break_count) == (2, 1)


def test_one_graph_of_all_is_refused():
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="disable"):
        torch.compile(make_step("soprc")[0], backend="eager", fullgraph=True)(torch.randn(24, 5))
