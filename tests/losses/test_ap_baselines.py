"""Baselines of the average precision losses: equal to their definitions, 0 for a perfect ranking, kind to bad input."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import baselines as oracle
from rankwise.losses import LOSSES, BinaryCrossEntropyLoss, EmbeddingLoss
from rankwise.losses.baselines import (
    APLoss,
    BalancedCrossEntropyLoss,
    BlackboxAPLoss,
    DistributionalRankingLoss,
    FastAPLoss,
    FocalLoss,
    HistogramAPLoss,
    LDAMLoss,
    PairwiseAUROCLoss,
    SmoothAPLoss,
    SOAPLoss,
    SoDeepLoss,
    train_sorter,
)
from rankwise.surrogates import Sigmoid

# Multiples of 1/64: ties are frequent, and exact whatever is added.
cases = st.integers(2, 12).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(-62, 62).map(lambda k: k / 64), min_size=n, max_size=n),
        st.lists(st.integers(0, 1), min_size=n, max_size=n).filter(lambda y: 0 < sum(y) < len(y)),
    )
)

DERIVED = {
    "smooth-ap": (lambda: SmoothAPLoss(0.1), lambda s, y: oracle.smooth_ap(s, y, 0.1)),
    "histogram-ap": (lambda: HistogramAPLoss(link="none"), lambda s, y: oracle.histogram_ap(s, y, 20)),
    "histogram-ap of 2 bins": (lambda: HistogramAPLoss(2, link="none"), lambda s, y: oracle.histogram_ap(s, y, 2)),
    "histogram-ap tanh": (HistogramAPLoss, lambda s, y: oracle.histogram_ap([t.tanh() for t in s], y, 20)),
    "fast-ap": (lambda: FastAPLoss(link="none"), lambda s, y: oracle.fast_ap(s, y, 10)),
    "auroc sigmoid": (PairwiseAUROCLoss, lambda s, y: oracle.pairwise_auroc(s, y, "sigmoid", 0.1)),
    "auroc huber": (
        lambda: PairwiseAUROCLoss("huber", 0.3),
        lambda s, y: oracle.pairwise_auroc(s, y, "huber", 0.3),
    ),
    "focal": (FocalLoss, lambda s, y: oracle.focal(s, y, 2.0, 0.25)),
    "ldam": (
        lambda: LDAMLoss(0.5, 3.0, counts=(90, 7), link="none"),
        lambda s, y: oracle.ldam(s, y, 0.5, 3.0, (90, 7)),
    ),
    "ldam of the list": (
        lambda: LDAMLoss(0.5, 3.0),
        lambda s, y: oracle.ldam([t.tanh() for t in s], y, 0.5, 3.0, (len(y) - sum(y), sum(y))),
    ),
    "class-balanced": (
        lambda: BalancedCrossEntropyLoss(0.9, counts=(90, 7)),
        lambda s, y: oracle.class_balanced(s, y, 0.9, (90, 7)),
    ),
    "class-balanced of the list": (
        lambda: BalancedCrossEntropyLoss(0.9),
        lambda s, y: oracle.class_balanced(s, y, 0.9, (len(y) - sum(y), sum(y))),
    ),
    "balanced": (
        BalancedCrossEntropyLoss,
        lambda s, y: oracle.class_balanced(s, y, 1.0, (len(y) - sum(y), sum(y))),
    ),
    "distributional-ranking": (
        DistributionalRankingLoss,
        lambda s, y: oracle.distributional_ranking(s, y, 1.0, 0.1 / math.log(3.5), 0.5, 6.0),
    ),
    "distributional-ranking, other temperatures": (
        lambda: DistributionalRankingLoss(
            positive_temperature=0.2, negative_temperature=0.5, margin=0.0, sharpness=2.0
        ),
        lambda s, y: oracle.distributional_ranking(s, y, 0.2, 0.5, 0.0, 2.0),
    ),
    "sodeep": (SoDeepLoss, lambda s, y: oracle.sodeep(s, y, train_sorter())),
}
OF_NUMBERS = {
    "blackbox-ap": (BlackboxAPLoss, lambda s, y: oracle.blackbox_ap(s, y, 4.0, 0.02)),
    "blackbox-ap without margin": (lambda: BlackboxAPLoss(0.5, 0.0), lambda s, y: oracle.blackbox_ap(s, y, 0.5, 0.0)),
    "ap-loss": (APLoss, lambda s, y: oracle.ap_loss(s, y, 1.0)),
    "ap-loss narrow": (lambda: APLoss(0.25), lambda s, y: oracle.ap_loss(s, y, 0.25)),
}


def run(loss, scores, labels, **given):
    leaf = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    value = loss(leaf, torch.tensor(labels), **given)
    (gradient,) = torch.autograd.grad(value, leaf)
    return value.detach(), gradient


def close(left, right):
    torch.testing.assert_close(left, torch.as_tensor(right, dtype=torch.float64), rtol=1e-9, atol=1e-9)


# Kinks of the kernels and surrogates lie on the grid of scores; there any slope between the two sides is right.
def off_the_kinks(scores):
    return [s + 0.000_731 * (i + 1) for i, s in enumerate(scores)]


# Enough for losses that are here for comparison.
fewer = settings(max_examples=settings.default.max_examples // 2)


@pytest.mark.parametrize("name", DERIVED)
@fewer
@given(case=cases)
def test_value_and_gradient_equal_the_definition(name, case):
    build, define = DERIVED[name]
    scores, labels = off_the_kinks(case[0]), case[1]
    leaves = [torch.tensor(s, dtype=torch.float64, requires_grad=True) for s in scores]
    expected = define(leaves, labels) + 0 * sum(leaves)
    value, gradient = run(build(), scores, labels)
    close(value, expected.detach())
    close(gradient, torch.stack(torch.autograd.grad(expected, leaves)))


@pytest.mark.parametrize("name", DERIVED)
@fewer
@given(case=cases)
def test_value_equals_the_definition_on_ties_and_kinks(name, case):
    build, define = DERIVED[name]
    leaves = [torch.tensor(s, dtype=torch.float64) for s in case[0]]
    close(run(build(), *case)[0], define(leaves, case[1]))


@pytest.mark.parametrize("name", OF_NUMBERS)
@given(case=cases)
def test_value_and_update_equal_the_definition(name, case):
    build, define = OF_NUMBERS[name]
    expected, update = define(*case)
    value, gradient = run(build(), *case)
    close(value, expected)
    close(gradient, update)


@pytest.mark.parametrize("name", [name for name in DERIVED if "ldam" not in name])
def test_gradient_is_that_of_the_value(name):
    generator = torch.Generator().manual_seed(3)
    scores = (torch.rand(3, 9, generator=generator, dtype=torch.float64) * 1.9 - 0.95).requires_grad_()
    labels = torch.tensor([[1, 1, 1, 0, 0, 0, 0, 1, 0]] * 3)
    loss = DERIVED[name][0]()
    assert torch.autograd.gradcheck(lambda s: loss(s, labels), (scores,))


@given(st.lists(cases, min_size=1, max_size=4), st.sampled_from([0.1, 0.9]), st.randoms(use_true_random=False))
def test_soap_equals_the_definition_batch_after_batch(batches, rate, random):
    loss, memory = SOAPLoss(1.0, rate, link="none").double(), {}
    for scores, labels in batches:
        ids = random.sample(range(-9, 9), len(scores))
        leaves = [torch.tensor(s, dtype=torch.float64, requires_grad=True) for s in scores]
        expected, step = oracle.soap(leaves, labels, ids, memory, 1.0, rate)
        value, gradient = run(loss, scores, labels, sample_ids=torch.tensor(ids))
        close(value, expected)
        close(gradient, torch.stack(torch.autograd.grad(step + 0 * sum(leaves), leaves)))
    assert sorted(memory) == sorted(loss.table.ids.tolist())


@given(cases)
def test_soap_without_ids_works_on_the_batch_alone(case):
    loss = SOAPLoss(link="none").double()
    leaves = [torch.tensor(s, dtype=torch.float64, requires_grad=True) for s in case[0]]
    expected, step = oracle.soap(leaves, case[1], None, {}, 1.0, 0.1)
    for _ in range(2):
        value, gradient = run(loss, *case)
        close(value, expected)
        close(gradient, torch.stack(torch.autograd.grad(step + 0 * sum(leaves), leaves, retain_graph=True)))
    assert len(loss.table) == 0


def test_soap_remembers_an_item_for_each_list():
    scores, labels = torch.tensor([0.5, -0.5, 0.1]), torch.tensor([1, 0, 1])
    columns, apart = SOAPLoss(lists="columns"), [SOAPLoss(), SOAPLoss()]
    ids = torch.tensor([3, 4, 5])
    for step in range(3):
        both = torch.stack([scores * (step + 1), -scores], 1)
        together = columns(both, labels[:, None].expand(3, 2), sample_ids=ids[:, None].expand(3, 2))
        alone = [loss(both[:, c], labels, sample_ids=ids) for c, loss in enumerate(apart)]
        torch.testing.assert_close(together, torch.stack(alone).mean())
    assert len(columns.table) == 4


def test_soap_reads_but_does_not_write_in_eval_mode():
    loss, ids = SOAPLoss(), torch.tensor([1, 2, 3])
    labels = torch.tensor([1, 0, 1])
    loss(torch.tensor([2.0, 0.0, 1.0]), labels, sample_ids=ids)
    before = loss.table.rows.clone()
    loss.eval()
    other = torch.tensor([-2.0, 0.0, -1.0])
    value = loss(other, labels, sample_ids=ids)
    assert torch.equal(loss.table.rows, before)
    assert float(value) != float(SOAPLoss()(other, labels))


def test_soap_refuses_item_ids_without_list_ids():
    loss = SOAPLoss()
    with pytest.raises(ValueError, match="query_ids: expected the id of each list with sample_ids"):
        loss(torch.zeros(2, 3), torch.tensor([[1, 0, 0]] * 2), sample_ids=torch.arange(6).view(2, 3))
    assert len(loss.table) == 0


RANKERS = ("smooth-ap", "soap", "histogram-ap", "fast-ap", "blackbox-ap", "ap-loss", "pairwise-auroc")


@pytest.mark.parametrize("name", [*RANKERS, "focal", "ldam", "class-balanced-cross-entropy"])
@pytest.mark.parametrize("sizes", [(1, 1), (1, 9), (4, 4), (6, 3)])
def test_a_perfect_ranking_costs_nothing_in_any_order(name, sizes):
    generator = torch.Generator().manual_seed(0)
    positives, negatives = sizes
    for _ in range(5):
        labels = (torch.arange(positives + negatives) < positives).long()
        order = torch.randperm(len(labels), generator=generator)
        noise = torch.rand(len(labels), generator=generator)
        scores = torch.where(labels == 1, 30.0, -30.0) + noise
        assert float(LOSSES.get(name).create()(scores[order], labels[order])) < 1e-5
        wrong = float(LOSSES.get(name).create()(-scores[order], labels[order]))
        assert wrong > 0.05 if name in RANKERS else wrong > 1


@pytest.mark.parametrize("name", RANKERS)
def test_a_perfectly_separated_batch_costs_nothing_whatever_the_classes(name):
    """28 x 4 sorted rows, shuffled rows and classes of different sizes: other Smooth-AP code fails here."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.cat([torch.arange(28).repeat_interleave(4), torch.tensor([3, 3, 9, 30, 30])])
    options = {"ap-loss": {"delta": 0.4}, "soap": {"margin": 0.9, "link": "none"}}.get(name, {})
    if name in ("histogram-ap", "fast-ap"):
        options = {"link": "none"}
    for order in (torch.arange(len(labels)), torch.randperm(len(labels), generator=generator)):
        vectors = torch.eye(31)[labels[order]]
        assert float(EmbeddingLoss(LOSSES.get(name).create(**options))(vectors, labels[order])) < 1e-3


def test_fast_ap_equals_that_of_pytorch_metric_learning():
    pytest.importorskip("pytorch_metric_learning")
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 4, (15,), generator=generator)
    results = []
    for loss in (EmbeddingLoss(FastAPLoss(link="none")), LOSSES.get("fast-ap-pairs").create()):
        vectors = torch.randn(15, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64).requires_grad_()
        value = loss(vectors, labels)
        results.append((value.detach(), torch.autograd.grad(value, vectors)[0]))
    for left, right in zip(*results, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-6, atol=1e-7)


def test_focal_equals_that_of_torchvision():
    ops = pytest.importorskip("torchvision.ops")
    scores, labels = torch.randn(20, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 3 == 0
    expected = ops.sigmoid_focal_loss(scores, labels.float(), reduction="mean")
    torch.testing.assert_close(FocalLoss()(scores, labels), expected)


def test_effective_numbers_lie_between_plain_and_balanced():
    scores, labels = torch.tensor([0.3, -0.2, 1.0, -1.0, 0.7]), torch.tensor([1, 0, 0, 0, 0])
    torch.testing.assert_close(BalancedCrossEntropyLoss(1e-9)(scores, labels), BinaryCrossEntropyLoss()(scores, labels))
    near = BalancedCrossEntropyLoss(1 - 1e-4)(scores, labels)
    torch.testing.assert_close(near, BalancedCrossEntropyLoss()(scores, labels), rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize(
    "build",
    [
        SmoothAPLoss,
        PairwiseAUROCLoss,
        HistogramAPLoss,
        FocalLoss,
        DistributionalRankingLoss,
        SoDeepLoss,
        lambda: SOAPLoss(link="none"),
    ],
)
def test_weight_two_counts_an_item_twice_among_the_others(build):
    """For negatives exactly; a positive is itself only once, so its double is left to the definitions."""
    scores, labels = torch.tensor([0.5, 0.2, 0.3, 0.1], dtype=torch.float64), torch.tensor([1, 1, 0, 0])
    weights = torch.tensor([1.0, 1.0, 3.0, 2.0])
    copies = torch.repeat_interleave(torch.arange(4), weights.long())
    torch.testing.assert_close(build()(scores, labels, weights=weights), build()(scores[copies], labels[copies]))


ERRORS = [
    (lambda: SmoothAPLoss(0.0), "temperature: expected a finite number > 0"),
    (lambda: SOAPLoss(update_rate=1.5), r"update_rate: expected a number in \(0, 1\]"),
    (lambda: HistogramAPLoss(1), "bins: expected a whole number of at least 2, got 1"),
    (lambda: HistogramAPLoss(link="scale"), 'link: expected "tanh" or "none"'),
    (lambda: FastAPLoss(0), "intervals: expected a whole number of at least 1, got 0"),
    (lambda: BlackboxAPLoss(strength=-1.0), "strength: expected a finite number > 0"),
    (lambda: APLoss(delta=0.0), "delta: expected a finite number > 0"),
    (lambda: PairwiseAUROCLoss("hubber"), "surrogate: unknown word 'hubber'; did you mean 'huber'"),
    (lambda: FocalLoss(alpha=1.0), r"alpha: expected a number in \(0, 1\)"),
    (
        lambda: LDAMLoss(counts=(3, 0)),
        r"counts: expected two whole numbers > 0, .* got \(3, 0\)",
    ),
    (
        lambda: DistributionalRankingLoss(negative_temperature=0.0),
        "negative_temperature: expected a finite number > 0",
    ),
    (lambda: train_sorter(steps=0), "steps: expected a whole number of at least 1, got 0"),
    (lambda: train_sorter(learning_rate=-1.0), "learning_rate: expected a finite number > 0"),
    (lambda: BalancedCrossEntropyLoss(0.0), r"beta: expected a number in \(0, 1\]"),
]


@pytest.mark.parametrize("build, message", ERRORS)
def test_a_wrong_option_is_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_histograms_refuse_scores_outside_their_range():
    with pytest.raises(ValueError, match=r"scores: expected numbers in \[-1, 1\] .* got 3 \(1 outside\)"):
        HistogramAPLoss(link="none")(torch.tensor([3.0, 0.0]), torch.tensor([1, 0]))


def test_ranks_refuse_unequal_weights():
    with pytest.raises(ValueError, match=r"weights: expected equal weights .* got some 2 times as large"):
        BlackboxAPLoss()(torch.tensor([3.0, 0.0]), torch.tensor([1, 0]), weights=torch.tensor([1.0, 2.0]))


class CountingSigmoid(Sigmoid):
    """Counts the pairs that it is asked of."""

    asked = 0

    def value(self, x):
        CountingSigmoid.asked += x.numel()
        return super().value(x)

    def slope(self, x):
        CountingSigmoid.asked += x.numel()
        return super().slope(x)


@pytest.mark.parametrize("spread", [0.3, 20.0])
@pytest.mark.parametrize("build", [PairwiseAUROCLoss, lambda: SmoothAPLoss(0.1)], ids=["auroc", "smooth AP"])
def test_long_lists_are_not_gone_through_pair_by_pair(build, spread):
    """And give the value and the gradient of going through them."""
    generator = torch.Generator().manual_seed(0)
    labels = (torch.arange(12_000) % 4 == 0).long()
    scores = spread * torch.randn(12_000, generator=generator, dtype=torch.float64) + 0.2 * spread * labels
    name = "surrogate" if build is PairwiseAUROCLoss else "step"
    losses = [build(), build()]
    temperature = getattr(losses[0], name).temperature
    setattr(losses[0], name, CountingSigmoid(temperature))
    setattr(losses[1], name, AllPairs(temperature))
    CountingSigmoid.asked = 0
    found = []
    for loss in losses:
        leaf = scores.clone().requires_grad_()
        value = loss(leaf, labels)
        found.append((value.detach(), *torch.autograd.grad(value, leaf)))
    torch.testing.assert_close(found[0], found[1], rtol=1e-9, atol=1e-14)
    assert CountingSigmoid.asked == 0


class AllPairs:
    """The same sigmoid, of which nothing more is known."""

    pieces = None

    def __init__(self, temperature):
        self.sigmoid = Sigmoid(temperature)

    def value(self, x):
        return self.sigmoid.value(x)

    def slope(self, x):
        return self.sigmoid.slope(x)
