"""Baselines of the NDCG losses: value and gradient of the slow definitions, ties, weights, limits, memory, refusals."""

from __future__ import annotations

from functools import partial
from itertools import permutations, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oracles import ndcg_baselines as oracle
from rankwise.losses import LOSSES, create_loss
from rankwise.losses.baselines import (
    ApproxNDCGLoss,
    BPRLoss,
    GumbelApproxNDCGLoss,
    LambdaLoss,
    LambdaRankLoss,
    ListMLELoss,
    ListNetLoss,
    NeuralNDCGLoss,
    RankNetLoss,
    SampledSoftmaxLoss,
    SoftmaxLoss,
    SquaredErrorLoss,
)
from rankwise.losses.baselines.listwise import counted_uniform
from rankwise.metrics import ndcg
from rankwise.testing import check_loss

CASES = {
    "ranknet": (RankNetLoss, oracle.ranknet),
    "ranknet sigma": (partial(RankNetLoss, sigma=2.5), partial(oracle.ranknet, sigma=2.5)),
    "bpr": (BPRLoss, oracle.ranknet),
    "listnet": (ListNetLoss, oracle.listnet),
    "listmle": (ListMLELoss, oracle.listmle),
    "softmax": (SoftmaxLoss, oracle.softmax),
    "sampled softmax": (SampledSoftmaxLoss, oracle.sampled_softmax),
    "sampled softmax of many": (partial(SampledSoftmaxLoss, 70), partial(oracle.sampled_softmax, negatives=70)),
    "squared error": (SquaredErrorLoss, oracle.squared_error),
    "squared error of gains": (partial(SquaredErrorLoss, "gains"), partial(oracle.squared_error, gain=oracle.exp2)),
    "lambdaloss": (LambdaLoss, oracle.lambdaloss),
    "lambdaloss options": (
        partial(LambdaLoss, sigma=2, mu=3, k=2),
        partial(oracle.lambdaloss, sigma=2, mu=3, k=2),
    ),
    "lambdarank": (LambdaRankLoss, partial(oracle.lambdaloss, mu=0)),
    "lambdarank at 3": (partial(LambdaRankLoss, k=3), partial(oracle.lambdaloss, mu=0, k=3)),
    "approx-ndcg": (ApproxNDCGLoss, oracle.approx_ndcg),
    "approx-ndcg alpha": (partial(ApproxNDCGLoss, 7), partial(oracle.approx_ndcg, alpha=7)),
    "neural-ndcg": (NeuralNDCGLoss, oracle.neural_ndcg),
    "neural-ndcg options": (
        partial(NeuralNDCGLoss, 0.3, k=2, iterations=4),
        partial(oracle.neural_ndcg, temperature=0.3, k=2, iterations=4),
    ),
    "neural-ndcg loose": (partial(NeuralNDCGLoss, tolerance=0.1), partial(oracle.neural_ndcg, tolerance=0.1)),
}
ONE_LIST = torch.tensor([0.4, -0.3, 0.9, 0.1], dtype=torch.float64)


def ragged(seed, binary, rounded):
    """Lists of 2 to 6 items with at least two grades: scores, grades, weights, list ids, shuffled together."""
    generator = torch.Generator().manual_seed(seed)
    columns = []
    for q, length in enumerate((2, 5, 6, 3, 4)):
        scores = torch.randn(length, generator=generator, dtype=torch.float64) * 2
        grades = torch.randint(2 if binary else 4, (length,), generator=generator)
        grades[0], grades[1] = 0, 1
        weights = torch.rand(length, generator=generator, dtype=torch.float64) + 0.1
        columns.append((scores.round() if rounded else scores, grades, weights, torch.full((length,), 100 - q)))
    joined = [torch.cat(column) for column in zip(*columns, strict=True)]
    order = torch.randperm(len(joined[0]), generator=generator)
    return [column[order] for column in joined]


def compare(build, slow, seed, *, weighted, rounded):
    loss = build()
    scores, grades, weights, ids = ragged(seed, loss.label_kind == "binary", rounded)
    scores.requires_grad_()
    value = loss(scores, grades, query_ids=ids, **({"weights": weights} if weighted else {}))
    (gradient,) = torch.autograd.grad(value, scores)
    parts = []
    for q in ids.unique():
        mine = (ids == q).nonzero()[:, 0].tolist()
        parts.append(
            slow(
                [scores[i] for i in mine],
                [grades[i].item() for i in mine],
                [weights[i].item() if weighted else 1.0 for i in mine],
            )
        )
    expected = sum(parts) / len(parts)
    (slope,) = torch.autograd.grad(expected, scores)
    torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(gradient, slope, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("seed", range(3))
def test_value_and_gradient_are_those_of_the_definition(name, weighted, seed):
    compare(*CASES[name], seed, weighted=weighted, rounded=False)


@pytest.mark.parametrize("name", [name for name in CASES if "neural" not in name])
def test_equal_scores_are_treated_as_the_definition_says(name):
    compare(*CASES[name], seed=5, weighted=True, rounded=True)


def test_gumbel_noise_is_that_of_the_definition():
    loss = GumbelApproxNDCGLoss(samples=3, seed=-4)
    scores, grades, weights, ids = ragged(1, binary=False, rounded=False)
    for step in range(2):
        value = loss(scores, grades, query_ids=ids, weights=weights)
        parts = []
        for q in ids.unique().tolist():
            mine = (ids == q).nonzero()[:, 0].tolist()
            columns = [scores[i] for i in mine], [grades[i].item() for i in mine], [weights[i].item() for i in mine]
            parts.append(oracle.gumbel_approx_ndcg(*columns, q, step, samples=3, seed=-4))
        torch.testing.assert_close(value, sum(parts) / len(parts))


@pytest.mark.parametrize(
    "name",
    [
        "lambdaloss", "lambdarank", "approx-ndcg", "gumbel-approx-ndcg", "neural-ndcg", "listnet", "listmle", "softmax",
        "sampled-softmax", "ranknet", "bpr", "squared-error",
    ],
)  # fmt: skip
def test_following_the_gradient_sorts_the_lists(name):
    record = LOSSES.get(name)
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(8, 10, generator=generator).requires_grad_()
    labels = torch.randint(2 if record.labels == "binary" else 4, (8, 10), generator=generator)
    loss, optimiser = record.create(), torch.optim.Adam([scores], 0.1)
    assert ndcg(scores.detach(), labels) < 0.85
    values = []
    for _ in range(100):
        optimiser.zero_grad()
        values.append(loss(scores, labels))
        values[-1].backward()
        optimiser.step()
    assert values[-1] < values[0]
    assert ndcg(scores.detach(), labels) > 0.99


@pytest.mark.parametrize("name", CASES)
def test_gradient_is_that_of_the_value(name):
    # The pairwise weights of LambdaLoss and LambdaRank do not move for small steps.
    loss = CASES[name][0]()
    scores = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    labels = torch.tensor([[1, 0, 0, 1, 0], [0, 1, 1, 1, 1], [1, 1, 1, 1, 1]])
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2, [True] * 5])
    assert torch.autograd.gradcheck(lambda s: loss(s, labels, mask=mask), (scores,))


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 3)), min_size=2, max_size=8),
    st.randoms(use_true_random=False),
)
def test_order_of_tied_items_does_not_change_the_value(items, random):
    shuffled = random.sample(items, len(items))
    for name in ("ranknet", "listnet", "listmle", "softmax", "lambdaloss", "lambdarank", "approx-ndcg", "neural-ndcg"):
        value, again = (
            create_loss(name)(torch.tensor([s for s, _ in rows]).double(), torch.tensor([y for _, y in rows]))
            for rows in (items, shuffled)
        )
        torch.testing.assert_close(value, again, rtol=1e-9, atol=1e-11, msg=name)


def test_listmle_without_ties_is_the_papers_formula():
    scores = list(ONE_LIST)
    expected = oracle.plackett_luce(scores, [2, 0, 3, 1])
    torch.testing.assert_close(ListMLELoss()(ONE_LIST, torch.tensor([2, 0, 3, 1])), expected)


def test_listmle_with_ties_comes_close_to_the_mean_over_their_orders():
    scores, grades = [0.3, -0.2, 0.5, 0.1, -0.4], [1, 1, 1, 0, 0]
    tensors = [torch.tensor(s, dtype=torch.float64) for s in scores]
    costs = [
        oracle.plackett_luce(tensors, [*high, *low])
        for high, low in product(permutations((0, 1, 2)), permutations((3, 4)))
    ]
    mean = sum(costs) / len(costs)
    value = ListMLELoss()(torch.stack(tensors), torch.tensor(grades))
    assert abs(value - mean) < 0.02 * mean
    assert max(costs) - min(costs) > 0.1 * mean


def test_listmle_of_far_apart_scores_agrees_with_the_exact_logarithms():
    scores = torch.tensor([900.0, -900.0, 20.0, 0.0], dtype=torch.float64, requires_grad=True)
    value = ListMLELoss()(scores, torch.tensor([2, 1, 0, 0]))
    # The first costs nothing; the second is chosen from itself and the last two; those from both, then from half.
    last_two = torch.tensor(20.0, dtype=torch.float64).exp().add(1)
    expected = (last_two.log() + 900) + last_two.log() + (last_two / 2).log() - 20
    torch.testing.assert_close(value.detach(), expected)
    (gradient,) = torch.autograd.grad(value, scores)
    torch.testing.assert_close(gradient.sum(), torch.zeros((), dtype=torch.float64))


@pytest.mark.parametrize("build", [partial(ApproxNDCGLoss, 1e4), partial(NeuralNDCGLoss, 1e-3)])
def test_sharp_enough_it_is_one_minus_ndcg(build):
    scores = torch.stack([torch.randperm(9) for _ in range(6)]).double() / 9
    labels = torch.randint(4, (6, 9))
    labels[:, 0], labels[:, 1] = 0, 3
    torch.testing.assert_close(build()(scores, labels), 1 - ndcg(scores, labels), rtol=0, atol=1e-4)


def test_neural_ndcg_sorts_scores_of_every_size():
    """Most of them are below the rounding of the distances to the largest."""
    sizes = torch.logspace(2, 29, 19)
    order = torch.randperm(38, generator=torch.Generator().manual_seed(0))
    scores = torch.cat([sizes, -sizes])[order].requires_grad_()
    labels = torch.arange(38) % 4
    value = NeuralNDCGLoss()(scores, labels)
    (gradient,) = torch.autograd.grad(value, scores)
    torch.testing.assert_close(value.detach(), (1 - ndcg(scores.detach(), labels)).float())
    assert not bool(gradient.any())


def test_neural_ndcg_of_near_scores_beside_one_far_away_is_that_of_the_definition():
    near, labels = torch.tensor([0.3, -0.2, 0.9, 0.1, 1.4]), [0, 1, 0, 2, 1]
    leaves = [score.double().requires_grad_() for score in (*near, torch.tensor(1e9))]
    expected = oracle.neural_ndcg(leaves, [*labels, 3], [1.0] * 6)
    scores = torch.cat([near, torch.tensor([1e9])]).requires_grad_()
    value = NeuralNDCGLoss()(scores, torch.tensor([*labels, 3]))
    value.backward()
    torch.testing.assert_close(value.detach(), expected.detach().float())
    torch.testing.assert_close(scores.grad, torch.stack(torch.autograd.grad(expected, leaves)).float())


def test_lambdarank_weighs_pairs_by_the_change_of_ndcg():
    scores, labels = torch.tensor([0.3, 0.2, 0.1, 0.0], dtype=torch.float64), torch.tensor([0, 0, 2, 0])
    scores.requires_grad_()
    (gradient,) = torch.autograd.grad(LambdaRankLoss()(scores, labels), scores)
    for other in (0, 1, 3):
        swapped = scores.detach().clone()
        swapped[[2, other]] = swapped[[other, 2]]
        change = (ndcg(swapped, labels) - ndcg(scores.detach(), labels)).abs()
        slope = torch.sigmoid(scores.detach()[other] - scores.detach()[2]) / torch.log(torch.tensor(2.0))
        torch.testing.assert_close(gradient[other], change * slope)


@pytest.mark.parametrize("build", [LambdaRankLoss, LambdaLoss, partial(LambdaRankLoss, k=1)])
def test_constant_scores_still_have_a_gradient(build):
    scores = torch.zeros(5, requires_grad=True)
    build()(scores, torch.tensor([2, 0, 1, 0, 0])).backward()
    assert scores.grad[0] < scores.grad[2] < scores.grad[1]


def test_at_k_pairs_beyond_the_first_k_positions_do_not_count():
    scores = torch.tensor([0.9, 0.8, 0.2, 0.1], requires_grad=True)
    for build in (LambdaLoss, LambdaRankLoss):
        (gradient,) = torch.autograd.grad(build(k=1)(scores, torch.tensor([1, 0, 1, 0])), scores)
        # Item 3 is worse than item 2, but neither is at the first position; it meets item 0 only.
        assert gradient[2] == 0
        assert gradient[1] > gradient[3] > 0 > gradient[0]


@pytest.mark.parametrize(
    "build", [RankNetLoss, BPRLoss, SquaredErrorLoss, partial(SampledSoftmaxLoss, 40), ListNetLoss, SoftmaxLoss]
)
def test_weight_two_trains_like_the_item_twice(build):
    labels = torch.tensor([1, 0, 0, 1])
    twice = torch.tensor([0, 1, 1, 2, 3])
    scores = ONE_LIST.clone().requires_grad_()
    weighted = build()(scores, labels, weights=torch.tensor([1.0, 2.0, 1.0, 1.0]))
    repeated = build()(scores[twice], labels[twice])
    torch.testing.assert_close(*(torch.autograd.grad(value, scores)[0] for value in (weighted, repeated)))
    if build not in (ListNetLoss, SoftmaxLoss):
        torch.testing.assert_close(weighted, repeated)


def test_softmax_of_all_items_is_the_sampled_one_with_a_single_positive():
    labels = torch.tensor([0, 0, 1, 0])
    torch.testing.assert_close(SoftmaxLoss()(ONE_LIST, labels), SampledSoftmaxLoss()(ONE_LIST, labels))


def test_sampled_softmax_estimates_the_full_one():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(2001, dtype=torch.float64, generator=generator)
    labels = torch.zeros(2001, dtype=torch.int64)
    labels[0] = 1
    chosen = torch.stack([1 + torch.randperm(2000, generator=generator)[:200] for _ in range(200)])
    chosen = torch.cat([torch.zeros(200, 1, dtype=torch.int64), chosen], 1)
    sampled = SampledSoftmaxLoss(2000)(scores[chosen], labels[chosen])
    assert abs(sampled - SoftmaxLoss()(scores, labels)) < 0.02
    assert abs(SampledSoftmaxLoss()(scores[chosen], labels[chosen]) - sampled) > 1


@pytest.mark.parametrize("name", ["ranknet", "bpr", "lambdaloss", "lambdarank", "approx-ndcg", "neural-ndcg"])
def test_what_is_kept_for_the_gradient_does_not_grow_with_the_pairs(name):
    kept = []
    scores = torch.randn(4, 400, requires_grad=True)
    labels = torch.arange(400).remainder(2).expand(4, 400)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        create_loss(name)(scores, labels)
    assert max(kept) <= scores.numel()
    assert len(kept) < 60


def test_gumbel_noise_differs_between_steps_lists_samples_and_seeds():
    scores, grades = torch.zeros(2, 6), torch.tensor([[0, 1, 2, 3, 0, 1]] * 2)
    loss = GumbelApproxNDCGLoss(reduction="none", samples=1)
    first, second = loss(scores, grades), loss(scores, grades)
    other = GumbelApproxNDCGLoss(reduction="none", samples=1, seed=1)(scores, grades)
    assert len({*first.tolist(), *second.tolist(), *other.tolist()}) == 6


def test_gumbel_noise_goes_with_the_id_of_the_list():
    scores, grades = torch.zeros(2, 6), torch.tensor([[0, 1, 2, 3, 0, 1]] * 2)
    one, two = (
        GumbelApproxNDCGLoss(reduction="none")(scores, grades, query_ids=torch.tensor(ids)) for ids in ([5, 9], [9, 7])
    )
    torch.testing.assert_close(one[1], two[0])
    assert not torch.isclose(one[0], two[1])


def test_counted_numbers_are_uniform_and_independent():
    counters = torch.arange(300)[:, None, None], torch.arange(40)[:, None], torch.arange(20)
    drawn = counted_uniform(3, *counters)
    assert counted_uniform(3, *(torch.tensor(n) for n in (7, 0, 19))) == oracle.counted_uniform(3, 7, 0, 19)
    counts = torch.histc(drawn, 50, 0, 1)
    expected = drawn.numel() / 50
    assert float(((counts - expected) ** 2 / expected).sum()) < 90  # 49 degrees of freedom: 86 has a chance of .001
    for left, right in ((drawn[1:], drawn[:-1]), (drawn[:, 1:], drawn[:, :-1]), (drawn[..., 1:], drawn[..., :-1])):
        correlation = torch.corrcoef(torch.stack([left.flatten(), right.flatten()]))[0, 1]
        assert abs(correlation) < 4 / drawn.numel() ** 0.5


VARIANTS = {
    "lambdaloss@3": partial(LambdaLoss, k=3, mu=1, gain="linear"),
    "neural-ndcg@3": partial(NeuralNDCGLoss, 0.5, k=3),
    "noise of other scale": partial(GumbelApproxNDCGLoss, 4, samples=2, noise=0.3, seed=9),
    "own gain": partial(ApproxNDCGLoss, gain=torch.sqrt),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_keep_the_contract(name):
    check_loss(VARIANTS[name], labels="grades")


@pytest.mark.parametrize(
    "build, error, message",
    [
        (partial(RankNetLoss, sigma=0), ValueError, "sigma: expected a finite number > 0, got 0"),
        (partial(LambdaLoss, mu=-1), ValueError, "mu: expected a finite number >= 0, got -1"),
        (partial(LambdaLoss, k=0), ValueError, "k: expected a whole number of at least 1 or None"),
        (partial(ApproxNDCGLoss, gain="log"), ValueError, "gain: unknown word 'log'"),
        (partial(ApproxNDCGLoss, "steep"), TypeError, "alpha: expected a number, got 'steep'"),
        (partial(GumbelApproxNDCGLoss, samples=0), ValueError, "samples: expected a whole number of at least 1, got 0"),
        (partial(GumbelApproxNDCGLoss, seed=0.5), TypeError, "seed: expected a whole number, got 0.5"),
        (partial(NeuralNDCGLoss, iterations=2.0), TypeError, "iterations: expected a whole number of at least 1"),
        (partial(SampledSoftmaxLoss, -3), ValueError, "negatives: expected a finite number > 0, got -3"),
        (partial(SquaredErrorLoss, "ranks"), ValueError, "target: unknown word 'ranks'"),
    ],
)
def test_wrong_options_are_refused_by_name(build, error, message):
    with pytest.raises(error, match=message):
        build()


def test_binary_baselines_refuse_grades():
    for build in (BPRLoss, SampledSoftmaxLoss):
        with pytest.raises(ValueError, match="labels: expected 0 or 1, got 2"):
            build()(ONE_LIST, torch.tensor([0, 1, 2, 0]))


@pytest.mark.parametrize("name", ["ranknet", "listmle", "lambdaloss", "gumbel-approx-ndcg", "neural-ndcg", "softmax"])
def test_nothing_at_all_costs_nothing(name):
    loss = create_loss(name)
    scores = torch.zeros(2, 0, requires_grad=True)
    value = loss(scores, torch.zeros(2, 0, dtype=torch.int64))
    value.backward()
    assert value == 0
    assert loss.skipped == 2
