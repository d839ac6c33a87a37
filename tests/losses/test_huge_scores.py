"""Scores up to the ends of their dtype give finite values, gradients and states."""

from __future__ import annotations

import copy

import pytest
import torch

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
    TopKNDCGLoss,
)
from rankwise.losses.baselines import ALRPLoss

LABELS = (torch.arange(12) % 3 == 0).long().repeat(3, 1)
GRADES = torch.tensor([[0, 3, 1, 0, 2, 1, 0, 0, 3, 0, 1, 2], [0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], [1, 3] + [0] * 10])
DIRECTIONS = {
    "normal": torch.randn(3, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64).clamp(-3, 3) / 9,
    "both ends": torch.tensor([1.0, -1.0, -1.0, 1.0, 1.0, -1.0], dtype=torch.float64).repeat(3, 2),
    "one high": (torch.arange(12) == 4).double().repeat(3, 1),
    "one low": -(torch.arange(12) == 4).double().repeat(3, 1),
    "one relevant high": (torch.arange(12) == 3).double().repeat(3, 1),
    "one relevant low": -(torch.arange(12) == 3).double().repeat(3, 1),
    "all the same": torch.ones(3, 12, dtype=torch.float64),
    "right": (2 * LABELS - 1).double() / 3,
    "wrong": (1 - 2 * LABELS).double() / 3,
}
DTYPES = (torch.bfloat16, torch.float32, torch.float64)
STATISTICS = ListStatistics(torch.arange(4).repeat(3 * 15), torch.arange(3).repeat_interleave(60))
BUILDS = {record.name: (record.build, record.labels) for record in LOSSES if record.inputs == "scores"} | {
    "sampled song": (lambda: NDCGLoss(STATISTICS), "grades"),
    "sampled k-song": (lambda: TopKNDCGLoss(3, STATISTICS), "grades"),
    "sampled k-song, full": (lambda: TopKNDCGLoss(3, STATISTICS, selector_gradient="full"), "grades"),
    "sampled solc": (lambda: ListwiseCELoss(STATISTICS), "grades"),
    "no link": (lambda: AUPRCLoss(link="none"), "binary"),
    "stable, no link": (lambda: StableAPLoss(link="none"), "binary"),
    "combined": (lambda: SumLoss(AUPRCLoss(), SemiVarianceLoss(3, 15)), "binary"),
}


def finite(*tensors):
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors if tensor.is_floating_point())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", BUILDS)
def test_scores_up_to_the_largest_of_their_dtype_stay_finite(name, dtype):
    build, kind = BUILDS[name]
    labels, largest = LABELS if kind == "binary" else GRADES, torch.finfo(dtype).max
    given = {"query_ids": torch.arange(3), "sample_ids": torch.arange(36).view(3, 12)}
    for direction in DIRECTIONS.values():
        loss = build()
        # The second time, and for other scores, the loss remembers what it has seen.
        for times in (1.0, 1.0, -0.5):
            scores = (direction * times).to(dtype) * largest
            leaf = scores.clone().requires_grad_()
            value = loss(leaf, labels, **given)
            (gradient,) = torch.autograd.grad(value, leaf)
            assert finite(value.detach(), gradient, *loss.state_dict().values()), (value, gradient)
        assert finite(copy.deepcopy(loss).eval()(direction.to(dtype), labels, **given))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", BUILDS)
def test_scores_down_to_the_smallest_of_their_dtype_stay_finite(name, dtype):
    build, kind = BUILDS[name]
    labels, limits = LABELS if kind == "binary" else GRADES, torch.finfo(dtype)
    given = {"query_ids": torch.arange(3), "sample_ids": torch.arange(36).view(3, 12)}
    for size in (limits.tiny, limits.tiny * limits.eps, 64 * limits.tiny * limits.eps):
        scores = (DIRECTIONS["normal"] * 9 * size).to(dtype).requires_grad_()
        loss = build()
        value = loss(scores, labels, **given)
        (gradient,) = torch.autograd.grad(value, scores)
        assert finite(value.detach(), gradient, *loss.state_dict().values()), (value, gradient)


@pytest.mark.parametrize("name", ["cross-entropy", "listnet", "ranknet", "pap", "ndcg"])
def test_items_beyond_the_limit_still_get_a_gradient(name):
    """Where one item is far too high the loss is the same as at the limit, and so is the way back."""
    build, _ = BUILDS[name]
    found = []
    for size in (1e30, 3e38):
        scores = torch.tensor([0.0, size, 0.5, -1.0], requires_grad=True)
        value = build()(scores, torch.tensor([1, 0, 0, 1]))
        found.append((value.detach(), *torch.autograd.grad(value, scores)))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)
    if name != "ndcg":  # flat so far out
        assert found[1][1][1] > 0


def test_scores_within_the_limit_are_taken_as_they_are():
    scores = torch.tensor([1e30, 9e29, -1e30, 0.0], requires_grad=True)
    value = LOSSES.get("pap").build()(scores, torch.tensor([0, 1, 1, 0]))
    assert value.item() == pytest.approx((1e29 + 0 + 2e30 + 1e30) / 4)


@pytest.mark.parametrize("bad", [float("inf"), -float("inf"), float("nan")])
def test_what_is_no_number_is_still_refused(bad):
    with pytest.raises(ValueError, match="scores: expected finite numbers, got 1"):
        AUPRCLoss()(torch.tensor([3e38, bad, 0.0]), torch.tensor([1, 0, 0]))


def test_previous_scores_of_any_size_stay_finite():
    loss = StableAPLoss(update_rate=0.5)
    for _ in range(3):
        loss(torch.linspace(-1, 1, 6), torch.tensor([1, 0, 1, 0, 0, 1]), previous_scores=torch.full((6,), 3e38))
    assert finite(*loss.state_dict().values())


def test_alrp_stays_finite():
    for direction in DIRECTIONS.values():
        scores = (direction[0].float() * 3.4e38).requires_grad_()
        value = ALRPLoss()(scores, LABELS[0], torch.full((12,), 0.5))
        assert finite(value.detach(), *torch.autograd.grad(value, scores))


@pytest.mark.parametrize(
    "similarity, size", [("cosine", 1e15), ("cosine", 1e25), ("cosine", 3e38), ("dot", 1e10), ("dot", 1e18)]
)
def test_embeddings_of_any_size_stay_finite(similarity, size):
    vectors = torch.nn.functional.normalize(torch.randn(6, 4, generator=torch.Generator().manual_seed(0)))
    classes = torch.tensor([0, 0, 1, 1, 2, 2])
    plain = EmbeddingLoss(AUPRCLoss())(vectors, classes)
    for build in (EmbeddingLoss, lambda loss, **options: LateMemoryLoss(loss, memory=12, **options)):
        loss = build(AUPRCLoss(), similarity=similarity)
        for _ in range(2):
            leaf = (vectors * size).requires_grad_()
            value = loss(leaf, classes)
            assert finite(value.detach(), *torch.autograd.grad(value, leaf), *loss.state_dict().values())
    if similarity == "cosine":
        torch.testing.assert_close(EmbeddingLoss(AUPRCLoss())(vectors * size, classes), plain)


def test_products_that_are_no_numbers_are_refused():
    vectors = torch.tensor([[3e38, 3e38], [3e38, -3e38], [1.0, 0.0], [0.0, 1.0]])
    with pytest.raises(ValueError, match="embeddings: expected vectors whose products are numbers of float32"):
        EmbeddingLoss(AUPRCLoss(), similarity="dot")(vectors, torch.tensor([0, 0, 1, 1]))
