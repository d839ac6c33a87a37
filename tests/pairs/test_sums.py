"""Pair sums: equal to the definition, the same by sorting and by chunks, exact gradients."""

from __future__ import annotations

import functools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.device.pretend import PretendDevice
from oracles import pairs as oracle
from rankwise import surrogates
from rankwise.lists import ItemMask, pack
from rankwise.pairs import pair_sums, pair_sums_within, recorded_pair_sums
from rankwise.pairs.sums import _cheaper, chunk_gradients, chunk_sums, fused_gradients, fused_sums

PIECEWISE = [
    surrogates.OneSidedHuber(0.3),
    surrogates.Hinge(0.7),
    surrogates.SquaredHinge(1.2),
    surrogates.PiecewiseStep(0.3),
]
SMOOTH = [surrogates.OneSidedTanh(0.2), surrogates.Sigmoid(0.4), surrogates.Logistic(0.5)]
BY_DEFINITION = {
    surrogates.OneSidedHuber: lambda s: functools.partial(oracle.one_sided_huber, tau=s.tau),
    surrogates.Hinge: lambda s: functools.partial(oracle.hinge, margin=s.margin),
    surrogates.SquaredHinge: lambda s: functools.partial(oracle.squared_hinge, margin=s.margin),
    surrogates.OneSidedTanh: lambda s: functools.partial(oracle.one_sided_tanh, tau=s.tau),
    surrogates.Sigmoid: lambda s: functools.partial(oracle.sigmoid, temperature=s.temperature),
    surrogates.PiecewiseStep: lambda s: functools.partial(oracle.piecewise_step, width=s.width),
    surrogates.Logistic: lambda s: functools.partial(oracle.logistic, temperature=s.temperature),
}
METHODS = [(s, m) for s in PIECEWISE for m in ("dense", "sorted")] + [(s, "dense") for s in SMOOTH]
METHODS += [(surrogates.Sigmoid(temperature), "cells") for temperature in (0.4, 0.02)]


def random_case(seed, lists=3, anchors=5, others=9, dtype=torch.float64, offset=0.0, spread=1.0):
    generator = torch.Generator().manual_seed(seed)
    draw = functools.partial(torch.randn, generator=generator, dtype=torch.float64)
    a, b = draw(lists, anchors) * spread + offset, draw(lists, others) * spread + offset
    w = torch.rand(lists, others, generator=generator, dtype=torch.float64) + 0.1
    return [t.to(dtype).requires_grad_() for t in (a, b, w)]


def sums_and_gradients(a, b, w, surrogate, method, **masks):
    sums = pair_sums(a, b, surrogate, weights=w, method=method, **masks)
    upstream = torch.linspace(0.5, 1.5, sums.numel(), dtype=sums.dtype).reshape(sums.shape)
    inputs = [t for t in (a, b, w) if t is not None]
    return [sums.detach(), *torch.autograd.grad((sums * upstream).sum(), inputs)]


def worst_difference(left, right):
    return max(float((x - y).abs().max() / y.abs().max().clamp_min(1e-30)) for x, y in zip(left, right, strict=True))


@pytest.mark.parametrize("surrogate, method", METHODS)
def test_sums_equal_the_definition(surrogate, method):
    a, b, w = random_case(0)
    b.data[0, :3] = a.data[0, :3]  # ties
    b.data[1, 0] = a.data[1, 0] - 0.3  # on the kink of the Huber surrogate
    anchor_mask, other_mask = torch.rand(3, 5) < 0.8, torch.rand(3, 9) < 0.7
    ours = pair_sums(a, b, surrogate, weights=w, anchor_mask=anchor_mask, other_mask=other_mask, method=method)
    plain = oracle.pair_sums(
        a.tolist(), b.tolist(), BY_DEFINITION[type(surrogate)](surrogate), w.tolist(), anchor_mask, other_mask
    )
    torch.testing.assert_close(ours, torch.tensor(plain, dtype=torch.float64), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("surrogate, method", METHODS)
def test_gradients_for_anchors_others_and_weights(surrogate, method):
    a, b, w = random_case(1, anchors=4, others=6)
    masks = {"anchor_mask": torch.tensor([[True, True, False, True]] * 3), "other_mask": torch.rand(3, 6) < 0.8}
    assert torch.autograd.gradcheck(
        lambda a, b, w: pair_sums(a, b, surrogate, weights=w, method=method, **masks), (a, b, w)
    )


@pytest.mark.parametrize("surrogate, method", METHODS)
def test_second_derivatives_for_anchors_others_and_weights(surrogate, method):
    a, b, w = random_case(3, lists=2, anchors=3, others=5)
    masks = {"anchor_mask": torch.tensor([[True, True, False]] * 2), "other_mask": torch.rand(2, 5) < 0.8}

    def sums(a, b, w):
        return pair_sums(a, b, surrogate, weights=w, method=method, **masks)

    assert torch.autograd.gradgradcheck(sums, (a, b, w))
    plain = torch.ones(2, 3, dtype=torch.float64, requires_grad=True)  # a gradient that itself needs none
    (once,) = torch.autograd.grad(sums(a, b, w), a, plain.detach(), create_graph=True)
    assert once.requires_grad


@pytest.mark.parametrize("surrogate", [*PIECEWISE, *SMOOTH])
def test_second_derivatives_within_lists(surrogate):
    _, scores, weights = random_case(4, lists=2, others=6)
    places = torch.tensor([[0, 3, 5], [1, 2, 0]])
    masks = {
        "anchor_mask": torch.tensor([[True, True, True], [True, True, False]]),
        "other_mask": torch.rand(2, 6) < 0.9,
    }
    assert torch.autograd.gradgradcheck(
        lambda s: pair_sums_within(s, places, surrogate, weights=weights.detach(), **masks), (scores,)
    )


@pytest.mark.parametrize("gaps", [1, 40, 2000])
def test_gaps_count_for_nothing_few_or_many(gaps):
    """Over several chunks, the last list without a gap; what stands in a gap does not matter."""
    a, b, w = random_case(4, lists=60, anchors=5, others=3000)
    there = torch.ones(60, 3000, dtype=torch.bool)
    holes = torch.randperm(59 * 3000, generator=torch.Generator().manual_seed(gaps))[: gaps * 59]
    there.view(-1)[holes] = False
    b.data[~there] = 1e9
    huber = surrogates.OneSidedHuber(0.3)
    dense = sums_and_gradients(a, b, w, huber, "dense", other_mask=there)
    b.data[~there] = -1e9  # far below every anchor: nothing
    absent = sums_and_gradients(a, b, w, huber, "dense")
    for ours, plain in zip(dense, absent, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-12)


def test_lists_with_few_anchors_beside_one_with_many():
    """One list fills several chunks here, and each stops after its own last anchor."""
    generator = torch.Generator().manual_seed(5)
    scores = torch.randn(4, 9_000, generator=generator, dtype=torch.float64, requires_grad=True)
    places = torch.arange(40).expand(4, -1)
    masks = torch.arange(40) < torch.tensor([[40], [0], [17], [1]])
    upstream = torch.rand(4, 40, generator=generator, dtype=torch.float64)
    together = pair_sums_within(scores, places, surrogates.Sigmoid(0.5), anchor_mask=masks)
    (found,) = torch.autograd.grad((together * upstream).sum(), scores)
    for row, count in enumerate((40, 0, 17, 1)):
        alone = scores[row].detach().requires_grad_()
        differences = alone[:count, None] - alone
        sums = torch.sigmoid(-differences / 0.5).sum(1)
        (expected,) = torch.autograd.grad((sums * upstream[row, :count]).sum(), alone)
        torch.testing.assert_close(together[row, :count], sums)
        torch.testing.assert_close(found[row], expected)
        assert not together[row, count:].any()


@pytest.mark.parametrize("surrogate", PIECEWISE)
@pytest.mark.parametrize("offset", [0.0, 1e4, -1e4])
@pytest.mark.parametrize("spread", [1e-3, 1.0, 1e3])
def test_sorted_equals_dense_in_float64(surrogate, offset, spread):
    a, b, w = random_case(2, lists=4, anchors=60, others=300, offset=offset, spread=spread)
    masks = {"anchor_mask": torch.rand(4, 60) < 0.7, "other_mask": torch.rand(4, 300) < 0.7}
    both = [sums_and_gradients(a, b, w, surrogate, method, **masks) for method in ("sorted", "dense")]
    assert worst_difference(*both) < 1e-12


@pytest.mark.parametrize("surrogate", PIECEWISE)
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_sorted_is_right_for_a_million_float32_items(surrogate, offset):
    a, b, _ = random_case(3, lists=1, anchors=6, others=1_000_000, dtype=torch.float32, offset=offset)
    exact = [t.detach().double().requires_grad_() for t in (a, b)]
    truth = sums_and_gradients(*exact, None, surrogate, "dense")
    for method in ("sorted", "dense"):
        assert worst_difference(sums_and_gradients(a, b, None, surrogate, method), truth) < 1e-6, method


def test_each_anchor_is_right_by_itself_far_above_a_million_items():
    """A top anchor's sum is tiny beside the total; float32 prefix sums would lose it."""
    b = torch.randn(1_000_000, generator=torch.Generator().manual_seed(0))
    a = torch.stack([b.max() - 0.01, torch.tensor(3.0), torch.tensor(0.0)])
    huber = surrogates.OneSidedHuber(0.1)
    ours = pair_sums(a, b, huber, method="sorted").double()
    truth = pair_sums(a.double(), b.double(), huber, method="dense")
    assert float(((ours - truth) / truth).abs().max()) < 1e-6


@pytest.mark.parametrize("surrogate", PIECEWISE)
def test_huge_spread_keeps_near_pairs_exact(surrogate):
    """Items at 1e15 must not spoil what a pair at distance .1 contributes."""
    a = torch.tensor([[0.1, -1e15, 1e15]], dtype=torch.float64)
    b = torch.tensor([[0.0, 0.05, -1e15, -1e15, -3e15]], dtype=torch.float64)
    ours = pair_sums(a, b, surrogate, method="sorted")
    truth = pair_sums(a, b, surrogate, method="dense")
    torch.testing.assert_close(ours, truth, rtol=1e-12, atol=1e-12)


def test_equal_huge_scores_count_as_ties():
    a, b = torch.tensor([[1e30]]), torch.tensor([[1e30, 1e30, -1e30]])
    assert pair_sums(a, b, surrogates.OneSidedHuber(0.1), method="sorted").tolist() == [[2.0]]


@given(st.data())
def test_sorted_equals_dense_whatever_the_scores(data):
    number = st.floats(-100, 100, width=32) | st.sampled_from([0.0, -0.0, 0.5, 1.0, 1e6, -1e6])
    width, length = data.draw(st.integers(0, 5)), data.draw(st.integers(0, 12))
    a = torch.tensor([data.draw(st.lists(number, min_size=width, max_size=width))], dtype=torch.float64)
    b = torch.tensor([data.draw(st.lists(number, min_size=length, max_size=length))], dtype=torch.float64)
    surrogate = data.draw(st.sampled_from(PIECEWISE))
    mask = torch.tensor([data.draw(st.lists(st.booleans(), min_size=length, max_size=length))], dtype=torch.bool)
    both = [
        sums_and_gradients(a.clone().requires_grad_(), b.clone().requires_grad_(), None, surrogate, m, other_mask=mask)
        for m in ("sorted", "dense")
    ]
    for ours, truth in zip(*both, strict=True):
        torch.testing.assert_close(ours, truth, rtol=1e-10, atol=1e-10)


def test_easy_others_get_exactly_no_gradient():
    a = torch.tensor([[5.0, 6.0]], requires_grad=True)
    b = torch.tensor([[0.0, 5.5, 1.0]], requires_grad=True)
    pair_sums(a, b, surrogates.OneSidedHuber(0.1), method="sorted").sum().backward()
    assert b.grad[0, 0] == 0
    assert b.grad[0, 2] == 0
    assert b.grad[0, 1] > 0


def test_zero_weight_still_has_its_gradient():
    a, b = torch.tensor([[0.0]]), torch.tensor([[1.0, 3.0]])
    for method in ("sorted", "dense"):
        w = torch.tensor([[1.0, 0.0]], requires_grad=True)
        pair_sums(a, b, surrogates.Hinge(1.0), weights=w, method=method).sum().backward()
        assert w.grad.tolist() == [[2.0, 4.0]], method


def test_ragged_lists_of_very_different_lengths_are_not_padded_to_the_longest():
    lengths = [100_000] + [5] * 2000
    ids = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    scores = torch.randn(len(ids), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    packed = pack(scores, torch.zeros(len(ids)), query_ids=ids)
    assert sum(block.scores.numel() for block in packed.blocks) <= 2 * len(ids)
    huber = surrogates.OneSidedHuber(0.5)
    (ours,) = packed.map(
        lambda b: (pair_sums(b.scores[:, :1], b.scores, huber, other_mask=b.mask, method="sorted")[:, 0],)
    )
    for row in (0, 1, 2000):
        own = scores[ids == row]
        torch.testing.assert_close(ours[row], pair_sums(own[:1], own, huber, method="dense")[0])


def test_the_cheaper_method_is_chosen():
    huber = surrogates.OneSidedHuber(0.1)
    assert _cheaper(huber, 224, 3, 220) == "dense"
    assert _cheaper(huber, 1, 10_000, 990_000) == "sorted"
    assert _cheaper(surrogates.Sigmoid(), 1, 10_000, 990_000) == "dense"
    assert _cheaper(huber, 1, 1024, 1024, on_cpu=False) == "dense"
    assert _cheaper(huber, 1, 10_000, 990_000, on_cpu=False) == "sorted"


@pytest.mark.parametrize("items", [5, 9])
@pytest.mark.parametrize("weighted", [False, True])
def test_what_torch_compile_fuses_is_what_chunks_give(items, weighted):
    random = torch.Generator().manual_seed(items)
    anchors, others, weights = (
        torch.randn(3, size, generator=random, dtype=torch.float64) for size in (5, items, items)
    )
    given = weights.abs() if weighted else None
    rest = (given, None, ItemMask(None), surrogates.Sigmoid(0.3))
    torch.testing.assert_close(fused_sums(anchors, others, *rest), chunk_sums(anchors, others, *rest))
    grad = torch.randn(3, 5, generator=random, dtype=torch.float64)
    fused = fused_gradients(grad, anchors, others, *rest, weighted)
    for left, right in zip(fused, chunk_gradients(grad, anchors, others, *rest, weighted), strict=True):
        assert (left is None) == (right is None)
        if left is not None:
            torch.testing.assert_close(left, right)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"method": "fast"}, "method: unknown word 'fast'"),
        ({"others": torch.zeros(2, 4)}, r"others: expected \(Q, L\) beside anchors \(Q, A\) \(3, 5\), got \(2, 4\)"),
        ({"others": torch.zeros(9)}, r"others: expected \(Q, L\) beside anchors \(Q, A\) \(3, 5\), got \(9,\)"),
        ({"weights": torch.zeros(3, 8)}, r"weights: expected the shape of others, \(3, 9\), got \(3, 8\)"),
        ({"other_mask": torch.ones(3, 5, dtype=torch.bool)}, "other_mask: expected the shape of others"),
        ({"anchor_mask": torch.ones(3, 9, dtype=torch.bool)}, "anchor_mask: expected the shape of anchors"),
        ({"surrogate": surrogates.Sigmoid(), "method": "sorted"}, 'method: "sorted" needs a surrogate of polynomial'),
    ],
)
def test_bad_input_is_named(change, message):
    a, b, _ = random_case(0)
    call = {"anchors": a, "others": b, "surrogate": surrogates.Hinge(), **change}
    with pytest.raises(ValueError, match=message):
        pair_sums(call.pop("anchors"), call.pop("others"), call.pop("surrogate"), **call)


# Largest errors of one pair of weight 1. With cells of width h = 1/2 temperature, the Taylor series of the sigmoid ends
# with order 14. Its poles nearest to the real line are +-i pi, so its n-th coefficient is at most 2 h^n / pi^(n + 1),
# and |b - a| <= 1: the remainders of the series and of its derivative are geometric sums from n = 15 on.
_RATIO = 0.5 / math.pi
CUT_VALUE = 2 / math.pi * _RATIO**15 / (1 - _RATIO)  # 8.1e-13
CUT_SLOPE = 2 / math.pi**2 * _RATIO**14 * (15 - 14 * _RATIO) / (1 - _RATIO) ** 2  # 2.5e-11, divided by the temperature
# A sum goes through at most 900 additions in moments, 15 x 149 in the product with the kernel, 14 in the polynomial and
# 900 over all pairs; the absolute values of the terms of the series sum to at most 1.2. Positions of at most 1,000
# temperatures are rounded three times, and the sigmoid has slope 1/4.
ROUNDING = (1.2 * (900 + 15 * 149 + 14 + 900) + 3 * 1000 / 4) * torch.finfo(torch.float64).eps / 2


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("temperature", [2.0, 0.1, 0.01])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cells_give_the_sums_and_gradients_of_all_pairs(temperature, dtype, weighted):
    surrogate = surrogates.Sigmoid(temperature)
    a, b, w = random_case(5, lists=2, anchors=150, others=900, dtype=dtype, offset=40.0)
    masks = {"anchor_mask": torch.rand(2, 150) < 0.8, "other_mask": torch.rand(2, 900) < 0.7}
    b.data[~masks["other_mask"]] = 1e9  # what stands in a gap does not matter
    a.data[~masks["anchor_mask"]] = -1e9
    found = [sums_and_gradients(a, b, w if weighted else None, surrogate, m, **masks) for m in ("cells", "dense")]
    if dtype == torch.float32:
        assert worst_difference(*found) < 1e-6
        return
    kept = (w.detach() if weighted else torch.ones_like(b)) * masks["other_mask"]
    upstream = torch.linspace(0.5, 1.5, a.numel(), dtype=dtype).view_as(a) * masks["anchor_mask"]
    total, total_upstream = kept.sum(1, keepdim=True), upstream.sum(1, keepdim=True)
    value, slope = CUT_VALUE + ROUNDING, (CUT_SLOPE + ROUNDING) / temperature
    bounds = [
        value * total * masks["anchor_mask"],
        slope * total * upstream,
        slope * total_upstream * kept,
        value * total_upstream * masks["other_mask"],
    ]
    for cells, dense, bound in zip(*found, bounds[: len(found[0])], strict=True):
        assert ((cells - dense).abs() <= bound).all()


@pytest.mark.parametrize("temperature", [2.0, 0.01])
def test_cells_are_off_by_no_more_than_the_remainder_of_the_series(temperature):
    """Single pairs, at all distances from the centres of their cells, the ends of the cells among them."""
    steps = torch.linspace(0, 1, 9, dtype=torch.float64)[:-1] * temperature / 2
    anchors = torch.cat([steps, torch.tensor([temperature / 2 * (1 - 1e-9)], dtype=torch.float64)])
    others = torch.cat([anchors + cell * temperature / 2 for cell in range(4)])
    a = anchors.repeat_interleave(len(others))[:, None]
    b = others.repeat(len(anchors))[:, None]
    # One more anchor puts the edge of the first cell at 0 in every list.
    a = torch.cat([a, torch.zeros_like(a)], 1).requires_grad_()
    cells, dense = (pair_sums(a, b, surrogates.Sigmoid(temperature), method=method) for method in ("cells", "dense"))
    slopes = [torch.autograd.grad(sums.sum(), a)[0] * temperature for sums in (cells, dense)]
    assert (cells - dense).abs().max() <= CUT_VALUE + ROUNDING
    assert (slopes[0] - slopes[1]).abs().max() <= CUT_SLOPE + ROUNDING


def test_cells_keep_small_sums():
    """Each term counts by itself: 20 temperatures below an anchor an other still adds 2e-9."""
    a, b = torch.tensor([[20.0, 0.0]], dtype=torch.float64), torch.zeros(1, 3, dtype=torch.float64)
    found = pair_sums(a, b, surrogates.Sigmoid(1.0), method="cells")
    torch.testing.assert_close(found, 3 * torch.sigmoid(-a), rtol=1e-11, atol=0)


def test_scores_of_too_many_cells_go_over_all_pairs():
    a, b = torch.randn(1, 3000) * 1e30, torch.randn(1, 3000) * 1e30
    found = pair_sums(a, b, surrogates.Sigmoid(0.1))
    assert torch.equal(found, pair_sums(a, b, surrogates.Sigmoid(0.1), method="dense"))


@pytest.mark.parametrize("anchors, others", [(0, 5), (5, 0), (0, 0)])
def test_cells_of_nothing(anchors, others):
    a, b = torch.ones(2, anchors, requires_grad=True), torch.ones(2, others, requires_grad=True)
    sums = pair_sums(a, b, surrogates.Sigmoid(), method="cells")
    assert torch.equal(sums, torch.zeros(2, anchors))
    assert not any(bool(g.any()) for g in torch.autograd.grad(sums.sum(), (a, b)))


def test_cells_need_a_sigmoid():
    with pytest.raises(ValueError, match='method: "cells" needs a Sigmoid, got Logistic'):
        pair_sums(torch.ones(2), torch.ones(2), surrogates.Logistic(), method="cells")


TWICE = {
    surrogates.Logistic(0.5): lambda x: torch.nn.functional.softplus(-x / 0.5),
    surrogates.Sigmoid(0.4): lambda x: torch.sigmoid(-x / 0.4),
    surrogates.SquaredHinge(1.2): lambda x: (1.2 - x).clamp_min(0).square(),
}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("surrogate", TWICE)
def test_recorded_curvature_is_the_diagonal_of_the_second_derivative(surrogate, weighted, masked):
    """Also where anchors are others of their own list, and whatever gradient the sum of a masked anchor is given."""
    anchors, scores, weights = random_case(6, lists=2, anchors=3, others=6)
    upstream, index = torch.rand(2, 3, dtype=torch.float64) + 0.1, torch.tensor([[0, 3, 5], [1, 2, 0]])
    options = {"weights": weights.detach()} if weighted else {}
    if masked:
        options["anchor_mask"] = torch.tensor([[True, True, True], [True, True, False]])
        options["other_mask"] = torch.tensor([[True, True, False, True, True, False]] * 2)
    kept = options.get("weights", torch.ones(2, 6)) * options.get("other_mask", torch.ones(2, 6))
    counted = upstream * options.get("anchor_mask", torch.ones(2, 3))

    def total(a, b):
        return (counted * (kept[:, None] * TWICE[surrogate](a[:, :, None] - b[:, None])).sum(2)).sum()

    def diagonal(function, at):
        second = torch.autograd.functional.hessian(function, at.detach())
        return second.view(at.numel(), at.numel()).diagonal().view_as(at)

    with recorded_pair_sums() as records:
        pair_sums(anchors, scores, surrogate, **options)
        pair_sums_within(scores, index, surrogate, **options)
    apart, within = (record.curvature(upstream) for record in records)
    torch.testing.assert_close(apart[0], diagonal(lambda a: total(a, scores.detach()), anchors))
    torch.testing.assert_close(apart[1], diagonal(lambda b: total(anchors.detach(), b), scores))
    torch.testing.assert_close(within, (diagonal(lambda s: total(s.gather(1, index), s), scores),))


@pytest.mark.parametrize("surrogate", [surrogates.Sigmoid(0.1), surrogates.OneSidedHuber(0.1)])
@pytest.mark.parametrize("size", [40, 3000])
def test_an_accelerator_gives_the_sums_of_the_cpu(surrogate, size):
    """However many pairs there are: which method is the cheapest differs between the two."""
    a, b, _ = random_case(7, lists=1, anchors=size, others=size)
    expected = pair_sums(a.detach(), b.detach(), surrogate)
    with PretendDevice() as device:
        found = pair_sums(device.put(a), device.put(b), surrogate).cpu()
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("surrogate, method", METHODS)
def test_gradients_with_a_graph_are_those_without(surrogate, method):
    inputs = random_case(8, lists=2, anchors=3, others=5)
    sums = pair_sums(*inputs[:2], surrogate, weights=inputs[2], method=method).sum()
    plain = torch.autograd.grad(sums, inputs, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(sums, inputs, create_graph=True), plain)
