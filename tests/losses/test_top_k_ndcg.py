"""K-SONG: the threshold, the selection, both gradients, and its memory."""

from __future__ import annotations

import pytest
import torch

from oracles import ndcg as oracle
from rankwise.estimators import ThresholdTracker
from rankwise.losses import ListStatistics, NDCGLoss, TopKNDCGLoss
from rankwise.metrics import ndcg


def random_lists(seed, lists=3, length=20):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(lists, length, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 4, (lists, length), generator=generator) * (
        torch.rand(lists, length, generator=generator) < 0.5
    )
    labels[:, 0], labels[:, 1] = 0, 2
    return scores, labels


def equal_shares(scores):
    return torch.full_like(scores, 1 / scores.shape[1])


@pytest.mark.parametrize("seed", range(5))
def test_the_threshold_is_the_score_after_the_kth(seed):
    # At least eight times tau apart: closer scores share the step.
    generator = torch.Generator().manual_seed(seed)
    places = torch.rand(4, 50, generator=generator).argsort(1)
    scores = (places + 0.6 * torch.rand(4, 50, generator=generator, dtype=torch.float64)) / 50
    tracker = ThresholdTracker(10, tau=0.001, tau_norm=0.001)
    found = tracker(scores, equal_shares(scores), torch.full((4,), 50), None)
    eleventh = scores.sort(1, descending=True).values[:, 10]
    torch.testing.assert_close(found.value, eleventh, rtol=0, atol=1e-3)


@pytest.mark.parametrize("tau, tau_norm", [(0.001, 0.001), (0.01, 1e-4), (0.5, 0.1)])
def test_the_threshold_is_the_minimum(tau, tau_norm):
    scores, _ = random_lists(1)
    found = ThresholdTracker(5, tau=tau, tau_norm=tau_norm)(scores, equal_shares(scores), torch.full((3,), 20), None)
    expected = [oracle.threshold(row, 5, tau, tau_norm) for row in scores]
    torch.testing.assert_close(found.value, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-9)


def test_the_threshold_of_tied_and_far_apart_scores():
    scores = torch.tensor([[1.0] * 8, [0.0, 1e6, -1e6, 3.0, 3.0, 3.0, 2.0, -1e6]])
    tracker = ThresholdTracker(3, tau=0.01)
    found = tracker(scores, equal_shares(scores), torch.tensor([8, 8]), None)
    assert found.value[0].item() == pytest.approx(1.0, abs=0.01)
    assert bool(torch.isfinite(found.value).all())
    torch.testing.assert_close(tracker.pull(scores, equal_shares(scores), found).sum(1), torch.ones(2))


def test_a_remembered_threshold_goes_to_the_minimum_and_settles():
    """Gradient steps on samples of a fixed list end near the score after the k-th of the whole list."""
    generator = torch.Generator().manual_seed(0)
    whole = torch.rand(300, generator=generator)
    tracker = ThresholdTracker(30, tau=0.01)
    values = []
    for _ in range(600):
        drawn = whole[torch.randperm(300, generator=generator)[:40]][None]
        values.append(tracker(drawn, equal_shares(drawn), torch.tensor([300]), torch.tensor([4])).value.item())
    expected = whole.sort(descending=True).values[30].item()
    assert sum(values[200:]) / 400 == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_a_remembered_threshold_follows_scores_of_any_size(size):
    """The scores of a list spread and rise while it is trained; a tenth of it is seen at a time."""
    generator = torch.Generator().manual_seed(1)
    begin, end = torch.randn(2, 400, generator=generator)
    tracker = ThresholdTracker(20, tau=0.01 * size)
    for step in range(101):
        whole = size * (begin * (1 - step / 100) + (3 * end + 5) * step / 100)
        drawn = whole[torch.randperm(400, generator=generator)[:40]][None]
        found = tracker(drawn, equal_shares(drawn), torch.tensor([400]), torch.tensor([7])).value.item()
    ahead = (whole > found).sum().item()
    assert 10 <= ahead <= 40


def test_the_first_observation_starts_the_threshold_at_the_batch():
    scores = torch.tensor([[0.9, 0.5, 0.1, -0.3]])
    tracker = ThresholdTracker(2, tau=0.001)
    found = tracker(scores, equal_shares(scores), torch.tensor([4]), torch.tensor([4]))
    assert found.value.item() == pytest.approx(0.1)
    assert tracker.table.rows[0, 0].item() == pytest.approx(0.1)


@pytest.mark.parametrize("selector_gradient", ["stopped", "full"])
def test_whole_lists_have_the_value_of_the_definition(selector_gradient):
    scores, labels = random_lists(2)
    loss = TopKNDCGLoss(k=4, selector_gradient=selector_gradient)
    total = 0.0
    for h, y in zip(scores, labels, strict=True):
        lam = oracle.threshold(h, 4, 0.01, 1e-6)
        total += oracle.song(list(h), y.tolist(), select=lambda s, lam=lam: torch.sigmoid((s - lam) / 0.5), k=4)
    assert loss(scores, labels).item() == pytest.approx((total / 3).item(), abs=1e-9)


def test_the_squared_hinge_selects_items_above_the_threshold_only():
    scores, labels = random_lists(2)
    loss = TopKNDCGLoss(k=4, selector="squared-hinge", temperature=0.7)
    total = 0.0
    for h, y in zip(scores, labels, strict=True):
        lam = oracle.threshold(h, 4, 0.01, 1e-6)
        total += oracle.song(list(h), y.tolist(), select=lambda s, lam=lam: max(0.0, (s - lam) / 0.7) ** 2, k=4)
    assert loss(scores, labels).item() == pytest.approx(float(total / 3), abs=1e-9)


def test_the_rank_selects_items_by_their_surrogate_rank():
    scores, labels = random_lists(2)
    loss = TopKNDCGLoss(k=4, selector="rank", temperature=2.0)
    total = 0.0
    for h, y in zip(scores, labels, strict=True):
        ranks = {float(h[i]): len(h) * oracle.mean_loss(list(h), i, 1.0) for i in range(len(h))}
        total += oracle.song(list(h), y.tolist(), select=lambda s, r=ranks: torch.sigmoid((4 - r[float(s)]) / 2.0), k=4)
    assert loss(scores, labels).item() == pytest.approx(float(total / 3), abs=1e-9)
    short = TopKNDCGLoss(k=20, selector="rank")
    torch.testing.assert_close(short(scores, labels), NDCGLoss()(scores, labels))


def test_the_plain_step_moves_the_threshold_by_the_slope():
    generator = torch.Generator().manual_seed(0)
    whole = torch.rand(50, generator=generator, dtype=torch.float64)
    tracker = ThresholdTracker(5, tau=0.05, tau_norm=1e-3, step_size=0.2, step_unit="score")
    lam = None
    for _ in range(4):
        drawn = whole[torch.randperm(50, generator=generator)[:20]]
        value = tracker(drawn[None], equal_shares(drawn[None]), torch.tensor([50]), torch.tensor([4])).value.item()
        if lam is None:
            lam = value  # the first batch starts it
            continue
        above = sum(torch.sigmoid((drawn - lam) / 0.05).tolist()) / 20
        lam -= 0.2 * (5.5 / 50 + 1e-3 * (lam - drawn.mean().item()) - above)
        assert value == pytest.approx(lam, rel=1e-6)


@pytest.mark.parametrize("selector", ["sigmoid", "squared-hinge", "rank"])
def test_the_full_gradient_is_that_of_the_value(selector):
    """Finite differences of the whole objective, the threshold solved anew at every point."""
    scores, labels = random_lists(3, lists=2, length=9)
    loss = TopKNDCGLoss(k=3, selector=selector, selector_gradient="full", threshold_tau=0.3, temperature=0.5)
    scores.requires_grad_()
    assert torch.autograd.gradcheck(lambda s: loss(s, labels), scores, eps=1e-6, atol=1e-7)


def test_the_stopped_gradient_holds_the_selection_fixed():
    scores, labels = random_lists(4)
    scores.requires_grad_()
    value = TopKNDCGLoss(k=4)(scores, labels)
    total = 0.0
    for h, y in zip(scores, labels, strict=True):
        lam = oracle.threshold(h.detach(), 4, 0.01, 1e-6)
        fixed = torch.sigmoid((h.detach() - lam) / 0.5)
        places = iter([i for i, grade in enumerate(y.tolist()) if grade > 0])
        total = total + oracle.song(list(h), y.tolist(), select=lambda _, p=places, f=fixed: f[next(p)], k=4)
    (expected,) = torch.autograd.grad(total / 3, scores)
    torch.testing.assert_close(torch.autograd.grad(value, scores)[0], expected, rtol=0, atol=1e-9)


def test_the_sampled_full_gradient_of_all_items_is_that_of_whole_lists():
    """With every item drawn the first step starts at the batch threshold, the minimum up to tau."""
    scores, labels = random_lists(5)
    items = torch.arange(labels.numel()).view(labels.shape)
    queries = torch.arange(3)
    statistics = ListStatistics(labels.flatten(), queries.repeat_interleave(20))
    options = {"k": 4, "selector_gradient": "full", "threshold_tau": 1e-4}
    scores.requires_grad_()
    whole = TopKNDCGLoss(**options)(scores, labels)
    sampled = TopKNDCGLoss(statistics=statistics, **options)(scores, labels, query_ids=queries, sample_ids=items)
    assert sampled.item() == pytest.approx(whole.item(), abs=1e-3)
    expected, found = (torch.autograd.grad(value, scores)[0] for value in (whole, sampled))
    assert (found - expected).norm() < 0.02 * expected.norm()


def test_lists_of_at_most_k_items_are_plain_ndcg():
    scores, labels = random_lists(6, length=8)
    assert TopKNDCGLoss(k=8)(scores, labels).item() == pytest.approx(NDCGLoss()(scores, labels).item(), abs=1e-12)


def test_short_and_long_lists_in_one_batch():
    scores, labels = random_lists(7)
    mask = torch.ones_like(labels, dtype=torch.bool)
    mask[0, 5:] = False
    together = TopKNDCGLoss(k=6, reduction="none")(scores, labels, mask=mask)
    assert together[0].item() == pytest.approx(NDCGLoss()(scores[0, :5], labels[0, :5]).item(), abs=1e-12)
    assert together[1].item() == pytest.approx(TopKNDCGLoss(k=6)(scores[1], labels[1]).item(), abs=1e-12)


def test_the_selection_leaves_out_what_stands_below_the_first_k():
    """The relevant item in third place counts in NDCG, but hardly in NDCG@1."""
    scores, labels = torch.tensor([[9.0, 6.0, 3.0, 0.0]], requires_grad=True), torch.tensor([[1, 0, 1, 0]])
    assert TopKNDCGLoss(k=1)(scores, labels).item() == pytest.approx(
        1 - ndcg(scores.detach(), labels, k=1).item(), abs=0.01
    )
    all_items, first = (
        torch.autograd.grad(loss(scores, labels), scores)[0] for loss in (NDCGLoss(), TopKNDCGLoss(k=1))
    )
    assert first[0, 2].abs() < 0.01 * all_items[0, 2].abs()


@pytest.mark.parametrize("k", [0, None, 2.5])
def test_k_must_be_a_whole_number(k):
    with pytest.raises((ValueError, TypeError), match="k: expected a whole number of at least 1"):
        TopKNDCGLoss(k=k)


def test_an_unknown_selector_gradient_is_refused():
    with pytest.raises(ValueError, match="selector_gradient: unknown word 'practical'"):
        TopKNDCGLoss(selector_gradient="practical")
