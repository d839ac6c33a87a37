"""Second derivatives: those of the gradient that a loss returns, or refused at the call. Never wrong, never missing."""

from __future__ import annotations

import pytest
import torch

from rankwise import metrics
from rankwise.losses import (
    LOSSES,
    AUPRCLoss,
    EmbeddingLoss,
    LateMemoryLoss,
    ListStatistics,
    ListwiseCELoss,
    NDCGLoss,
    SemiVarianceLoss,
    StableAPLoss,
    SumLoss,
    SwitchLoss,
)
from rankwise.losses.baselines import ALRPLoss, SmoothAPLoss

GENERATOR = torch.Generator().manual_seed(0)
SCORES = (torch.rand(3, 8, generator=GENERATOR, dtype=torch.float64) * 2 - 1) * 0.9
GRADES = torch.tensor([[0, 1, 3, 0, 2, 1, 0, 0], [0, 1, 0, 0, 0, 0, 2, 0], [1, 0, 1, 1, 0, 3, 2, 0]])
QUERIES = torch.tensor([3, 4, 5])
VECTORS = torch.randn(6, 3, generator=GENERATOR, dtype=torch.float64)
CLASSES = torch.tensor([0, 0, 1, 1, 2, 2])

# Their gradient holds fixed what moves with the scores (averages, weights, thresholds), or is no derivative at all.
FIRST_ORDER = {"auprc", "stable-ap", "soap", "top-k-ndcg", "blackbox-ap", "ap-loss", "neural-ndcg"}
FIRST_ORDER |= {"cross-batch-memory"}

REFUSAL = r"second derivatives \(create_graph=True\) are not supported, because "


def arguments(record):
    if record.inputs == "embeddings":
        pytest.importorskip("pytorch_metric_learning")
        return VECTORS, (CLASSES,), {}
    return SCORES, (GRADES.clamp_max(1) if record.labels == "binary" else GRADES,), {"query_ids": QUERIES}


def gradient(loss, scores, *labels, create_graph=False, **given):
    leaf = scores.detach().clone().requires_grad_()
    (found,) = torch.autograd.grad(loss(leaf, *labels, **given), leaf, create_graph=create_graph)
    return leaf, found


def check(build, scores, *labels, step=1e-5, **given):
    """The product of the second derivatives with a direction is the change of the gradient along it."""
    direction = torch.randn(scores.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    ahead, behind = (gradient(build(), scores + sign * step * direction, *labels, **given)[1] for sign in (1, -1))
    leaf, first = gradient(build(), scores, *labels, create_graph=True, **given)
    torch.testing.assert_close(first.detach(), gradient(build(), scores, *labels, **given)[1])
    (second,) = torch.autograd.grad((first * direction).sum(), leaf)
    expected = (ahead - behind) / (2 * step)
    torch.testing.assert_close(second, expected, rtol=1e-5, atol=1e-7 * max(1.0, float(expected.abs().max())))


@pytest.mark.parametrize("record", [r for r in LOSSES if r.name not in FIRST_ORDER], ids=lambda record: record.name)
def test_second_derivatives_are_those_of_the_gradient(record):
    scores, labels, given = arguments(record)
    try:
        check(record.build, scores, *labels, **given)
    except NotImplementedError as problem:
        pytest.skip(f"this version of torch refuses: {problem}")


@pytest.mark.parametrize("record", [r for r in LOSSES if r.name in FIRST_ORDER], ids=lambda record: record.name)
def test_losses_without_second_derivatives_say_so_at_the_call(record):
    scores, labels, given = arguments(record)
    with pytest.raises(RuntimeError, match=f"{type(record.build()).__name__}: {REFUSAL}"):
        gradient(record.build(), scores, *labels, create_graph=True, **given)
    leaf = scores.clone().requires_grad_()
    with pytest.raises(RuntimeError, match=REFUSAL):
        record.build()(leaf, *labels, **given).backward(create_graph=True)
    assert bool(torch.isfinite(gradient(record.build(), scores, *labels, **given)[1]).all())


STATISTICS = ListStatistics(torch.arange(4).repeat(3 * 15), QUERIES.repeat_interleave(60))
ITEMS = torch.arange(24).view(3, 8)


@pytest.mark.parametrize("build", [NDCGLoss, ListwiseCELoss])
def test_sampled_lists_have_second_derivatives_unless_an_average_is_remembered(build):
    given = {"query_ids": QUERIES, "sample_ids": ITEMS}
    check(lambda: build(STATISTICS, update_rate=1.0), SCORES, GRADES, **given)
    with pytest.raises(RuntimeError, match=f"{build.__name__}: {REFUSAL}"):
        gradient(build(STATISTICS), SCORES, GRADES, create_graph=True, **given)


@pytest.mark.parametrize("build", [SmoothAPLoss, SemiVarianceLoss])
def test_a_running_spread_is_refused_and_other_links_are_not(build):
    labels = GRADES.clamp_max(1)
    with pytest.raises(RuntimeError, match=f'link="scale": {REFUSAL}'):
        gradient(build(), 5 * SCORES, labels, create_graph=True)
    for link in ("none", "tanh", "sigmoid"):
        check(lambda link=link: build(link=link), 0.3 * SCORES, labels, step=1e-7)


def test_weights_by_rank_have_second_derivatives():
    for outer in ("list", "batch"):
        check(lambda outer=outer: StableAPLoss(weighting="rank", outer=outer), SCORES, GRADES.clamp_max(1))


def test_wrappers_have_those_of_the_losses_inside():
    labels = GRADES.clamp_max(1)
    check(lambda: SumLoss(SmoothAPLoss(0.1), SemiVarianceLoss(3, 15)), SCORES, labels)
    check(lambda: SwitchLoss(ListwiseCELoss(), NDCGLoss(), after=0), SCORES, GRADES)
    check(lambda: EmbeddingLoss(SmoothAPLoss(0.1)), VECTORS, CLASSES)
    for loss in (SumLoss(SmoothAPLoss(), AUPRCLoss()), SwitchLoss(AUPRCLoss(), SmoothAPLoss(), after=1)):
        with pytest.raises(RuntimeError, match=REFUSAL):
            gradient(loss, SCORES, labels, create_graph=True)
    for loss in (EmbeddingLoss(AUPRCLoss()), LateMemoryLoss(StableAPLoss(), memory=6)):
        with pytest.raises(RuntimeError, match=REFUSAL):
            gradient(loss, VECTORS, CLASSES, create_graph=True)


def test_alrp_refuses_for_scores_and_for_errors():
    errors = torch.rand(8, generator=GENERATOR, dtype=torch.float64, requires_grad=True)
    scores = SCORES[0].clone().requires_grad_()
    for leaf in (scores, errors):
        value = ALRPLoss()(scores, GRADES[0].clamp_max(1), errors)
        with pytest.raises(RuntimeError, match=f"ALRPLoss: {REFUSAL}"):
            torch.autograd.grad(value, leaf, create_graph=True)


@pytest.mark.parametrize("name", ["ndcg", "ranknet"])
def test_a_gradient_through_a_training_step_is_right(name):
    """As in meta-learning: how the loss after a step of gradient descent moves with the weights before it."""
    features = torch.randn(24, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    loss = LOSSES.get(name).build()

    def after_a_step(weights):
        def value(at):
            return loss((features @ at).view(3, 8), GRADES)

        return value(weights - 0.5 * torch.autograd.grad(value(weights), weights, create_graph=True)[0])

    start = torch.full((4,), 0.1, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(after_a_step, (start,), atol=1e-6)


@pytest.mark.parametrize("name", ["smooth-ap", "bpr"])
def test_third_derivatives_are_refused(name):
    leaf, first = gradient(LOSSES.get(name).build(), SCORES, GRADES.clamp_max(1), create_graph=True)

    def third():
        (second,) = torch.autograd.grad(first.square().sum(), leaf, create_graph=True)
        return torch.autograd.grad(second.square().sum(), leaf)

    with pytest.raises(RuntimeError, match="third derivatives are not supported"):
        third()


TRANSFORMS = {
    "grad": lambda value, scores: torch.func.grad(value)(scores),
    "jacrev": lambda value, scores: torch.func.jacrev(value)(scores),
    "hessian": lambda value, scores: torch.func.hessian(value)(scores),
    "jvp": lambda value, scores: torch.func.jvp(value, (scores,), (torch.ones_like(scores),)),
    "vmap": lambda value, scores: torch.func.vmap(value)(scores[None]),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:FutureWarning")  # of torch, on the first use of jvp
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("record", LOSSES, ids=lambda record: record.name)
def test_transforms_of_torch_func_are_refused_and_leave_the_state_alone(record, transform):
    scores, labels, given = arguments(record)
    loss = record.build()
    loss(scores, *labels, **given)
    before = {name: tensor.clone() for name, tensor in loss.state_dict().items()}
    with pytest.raises(RuntimeError, match=r"torch\.func transforms are not supported"):
        TRANSFORMS[transform](lambda s: loss(s, *labels, **given), scores)
    assert all(torch.equal(before[name], tensor) for name, tensor in loss.state_dict().items())


@pytest.mark.parametrize("name", ["ap", "ndcg", "auroc", "mrr"])
def test_metrics_refuse_vmap(name):
    metric = metrics.create_metric(name)
    with pytest.raises(RuntimeError, match=r"torch\.func transforms are not supported"):
        torch.func.vmap(lambda s: metrics.evaluate(s, GRADES[0].clamp_max(1), metric).per_query[metric.name])(SCORES)
