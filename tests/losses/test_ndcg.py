"""SONG and SOLC against their definitions, whole and sampled, and what the moving average is good for."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oracles import ndcg as oracle
from rankwise.losses import EmbeddingLoss, ListStatistics, ListwiseCELoss, NDCGLoss, TopKNDCGLoss, create_loss
from rankwise.metrics import ndcg


def random_lists(seed, lists=3, length=20, spread=1.5):
    generator = torch.Generator().manual_seed(seed)
    scores = spread * torch.randn(lists, length, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 4, (lists, length), generator=generator) * (
        torch.rand(lists, length, generator=generator) < 0.5
    )
    labels[:, 0], labels[:, 1] = 0, 2
    return scores, labels


def statistics_of(labels):
    ids = torch.arange(len(labels))[:, None].expand(labels.shape)
    return ListStatistics(labels.flatten(), ids.flatten())


def gradient(value, scores):
    return torch.autograd.grad(value, scores)[0]


def by_definition(scores, labels, **options):
    lists = [list(row) for row in scores]
    return sum(oracle.song(h, y.tolist(), **options) for h, y in zip(lists, labels, strict=True)) / len(lists)


@pytest.mark.parametrize("margin, shift", [(1.0, 0.0), (0.5, 0.0), (2.0, 30.0)])
@pytest.mark.parametrize("seed", range(3))
def test_whole_lists_have_the_value_and_gradient_of_the_definition(seed, margin, shift):
    scores, labels = random_lists(seed)
    scores.requires_grad_()
    value = NDCGLoss(margin=margin, discount_shift=shift)(scores, labels)
    expected = by_definition(scores, labels, margin=margin, shift=shift)
    assert value.item() == pytest.approx(expected.item(), abs=1e-12)
    torch.testing.assert_close(gradient(value, scores), gradient(expected, scores), rtol=0, atol=1e-12)


@pytest.mark.parametrize("self_weight", ["exact", "sample", "naive"])
def test_all_items_drawn_with_update_rate_one_gives_the_full_gradient(self_weight):
    scores, labels = random_lists(4)
    scores.requires_grad_()
    loss = NDCGLoss(statistics_of(labels), update_rate=1, self_weight=self_weight)
    items = torch.arange(labels.numel()).view(labels.shape)
    value = loss(scores, labels, query_ids=torch.arange(3), sample_ids=items)
    expected = by_definition(scores, labels)
    assert value.item() == pytest.approx(expected.item(), abs=1e-12)
    torch.testing.assert_close(gradient(value, scores), gradient(expected, scores), rtol=0, atol=1e-12)


def test_gradients_by_finite_differences():
    scores, labels = random_lists(5, lists=2, length=9)
    scores.requires_grad_()
    assert torch.autograd.gradcheck(lambda s: NDCGLoss()(s, labels), scores)
    assert torch.autograd.gradcheck(lambda s: ListwiseCELoss()(s, labels), scores)


def test_a_sample_with_update_rate_one_is_the_plug_in_estimate():
    """g by strata with the exact self term; the sum over relevant items scaled to all of them."""
    labels = torch.tensor([2, 1, 3, 0, 0, 0, 0, 0, 1, 0])
    drawn = torch.tensor([0, 2, 3, 5, 6])
    scores = torch.randn(5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss = NDCGLoss(ListStatistics(labels, torch.zeros(10, dtype=torch.int64)), update_rate=1, self_weight="exact")
    value = loss(scores, labels[drawn], sample_ids=drawn)
    expected, size, relevant = 1.0, 10, 4
    for i, other in ((0, 1), (1, 0)):
        pairs = [oracle.squared_hinge(s - scores[i], 1.0) for s in scores]
        g = oracle.stratified_mean([pairs[other]], pairs[2:], 1.0, relevant, size)
        gain = 2 ** int(labels[drawn[i]]) - 1
        expected = expected - relevant / 2 * gain / (oracle.ideal_dcg(labels.tolist()) * torch.log2(size * g + 1))
    assert value.item() == pytest.approx(expected.item(), abs=1e-12)
    torch.testing.assert_close(gradient(value, scores), gradient(expected, scores), rtol=0, atol=1e-12)


def test_the_gradient_of_a_later_step_is_the_slope_at_the_average():
    """Step 2: u = (1 - rate) g_1 + rate g_2, gradient f'(u) grad g_2 with the printed f'."""
    labels, rate = torch.tensor([1, 0, 0, 0, 0, 0]), 0.3
    loss = NDCGLoss(ListStatistics(labels, torch.zeros(6, dtype=torch.int64)), update_rate=rate, self_weight="exact")
    ideal, u = oracle.ideal_dcg(labels.tolist()), None
    generator = torch.Generator().manual_seed(1)
    for drawn in (torch.tensor([0, 1, 2]), torch.tensor([0, 3, 4]), torch.tensor([0, 1, 5])):
        scores = torch.randn(3, dtype=torch.float64, generator=generator).requires_grad_()
        value = loss.double()(scores, labels[drawn], sample_ids=drawn)
        pairs = [oracle.squared_hinge(s - scores[0], 1.0) for s in scores[1:]]
        g = 1 / 6 + 5 / 6 * sum(pairs) / 2
        u = g.item() if u is None else (1 - rate) * u + rate * g.item()
        expected = oracle.slope_of_outer(u, 1, 6, ideal) * gradient(g, scores)
        torch.testing.assert_close(gradient(value, scores), expected, rtol=0, atol=1e-12)
        assert value.item() == pytest.approx(1 - 1 / math.log2(6 * u + 1), abs=1e-12)


@given(st.integers(0, 10_000))
def test_a_margin_of_one_bounds_ndcg(seed):
    scores, labels = random_lists(seed, lists=8, length=7)
    scores = (scores * 2).round() / 2
    value = NDCGLoss(reduction="none")(scores, labels)
    assert bool((value >= 1 - ndcg(scores, labels, reduction="none", ties="pessimistic") - 1e-12).all())
    assert bool((value <= 1).all())


def test_a_smaller_margin_does_not():
    scores = torch.tensor([[0.0, -0.6, -1.2]])
    assert NDCGLoss(margin=0.5)(scores, torch.tensor([[1, 1, 1]])).item() == 0  # nothing to rank: left out
    labels = torch.tensor([[3, 1, 0]])
    assert NDCGLoss(margin=0.5)(scores, labels).item() < 1 - ndcg(scores, labels).item() - 0.1


@pytest.mark.parametrize("kind", [NDCGLoss, TopKNDCGLoss])
@pytest.mark.parametrize("similarity, margin", [("cosine", 0.1), ("dot", 1.0)])
def test_cosines_have_a_margin_of_their_own(kind, similarity, margin):
    vectors = torch.randn(24, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.arange(24) % 4

    def value(**options):
        return EmbeddingLoss(kind(**options), similarity)(vectors, labels)

    assert value() == value(margin=margin)
    assert value() != value(margin=1.1 - margin)


@pytest.mark.parametrize("kind", [NDCGLoss, TopKNDCGLoss])
def test_scores_in_general_have_a_margin_of_one(kind):
    scores = torch.tensor([[0.3, 0.2, 0.9, -0.4]])
    grades = torch.tensor([[0, 1, 0, 2]])
    assert kind()(scores, grades) == kind(margin=1)(scores, grades) != kind(margin=0.1)(scores, grades)


def test_the_first_observation_starts_the_average_at_the_truth():
    """From zero the first step is many times too long; from the first observation it is the plug-in step."""
    labels = torch.zeros(50, dtype=torch.int64)
    labels[0] = 1
    ids, items = torch.zeros(50, dtype=torch.int64), torch.arange(50)
    scores = torch.randn(50, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).requires_grad_()
    plug_in = NDCGLoss(ListStatistics(labels, ids), update_rate=1)
    first, zero = NDCGLoss(ListStatistics(labels, ids)), NDCGLoss(ListStatistics(labels, ids))
    zero.averages.table.update(torch.tensor([[0, 0]]), torch.zeros(1, 1), 1.0)
    steps = [gradient(loss(scores, labels, sample_ids=items), scores).norm() for loss in (plug_in, first, zero)]
    assert steps[1].item() == pytest.approx(steps[0].item(), rel=1e-6)
    assert steps[2] > 5 * steps[0]


def test_repeated_pairs_are_averaged():
    """The same query in two rows: its items' averages start at the mean of the two observations."""
    labels = torch.tensor([[1, 0, 0], [1, 0, 0]])
    scores = torch.tensor([[0.0, 1.0, 0.5], [0.3, -1.0, 0.5]], dtype=torch.float64)
    items = torch.tensor([[4, 1, 2], [4, 7, 8]])
    statistics = ListStatistics([1, 0, 0, 0, 0], [9] * 5)
    together = NDCGLoss(statistics)
    together(scores, labels, query_ids=torch.tensor([9, 9]), sample_ids=items)
    alone = []
    for row in range(2):
        loss = NDCGLoss(statistics)
        loss(scores[row], labels[row], query_ids=torch.tensor([9, 9, 9]), sample_ids=items[row])
        alone.append(loss.averages.table.rows.item())
    assert together.averages.table.ids.tolist() == [[9, 4]]
    assert together.averages.table.rows.item() == pytest.approx(sum(alone) / 2)


def test_one_item_in_two_lists_has_two_averages():
    labels, items = torch.tensor([1, 0, 1, 0]), torch.tensor([5, 6, 5, 6])
    queries = torch.tensor([2**40, 2**40, -1, -1])
    loss = NDCGLoss(ListStatistics([1, 0, 0, 1, 0, 0], [2**40] * 3 + [-1] * 3))
    loss(torch.tensor([0.0, 1.0, 3.0, 1.0]), labels, query_ids=queries, sample_ids=items)
    assert loss.averages.table.ids.tolist() == [[-1, 5], [2**40, 5]]


def test_strata_remove_the_bias_of_enriched_samples():
    """E over samples of the estimated rank equals the rank; the naive mean is off by the enrichment."""
    generator, trials = torch.Generator().manual_seed(3), 2000
    labels = (torch.arange(60) < 6).long()
    scores = torch.randn(60, generator=generator, dtype=torch.float64) + 2 * labels
    statistics = ListStatistics(labels.repeat(trials), torch.arange(trials).repeat_interleave(60))
    truth = sum(oracle.squared_hinge(s - scores[0], 1.0) for s in scores)
    relevant = torch.rand(trials, 5, generator=generator).argsort(1)[:, :2] + 1
    irrelevant = torch.rand(trials, 54, generator=generator).argsort(1)[:, :5] + 6
    drawn = torch.cat([torch.zeros(trials, 1, dtype=torch.int64), relevant, irrelevant], 1)
    estimates = {}
    for self_weight in ("exact", "naive"):
        loss = NDCGLoss(statistics, self_weight=self_weight)
        loss(scores[drawn], labels[drawn], query_ids=torch.arange(trials), sample_ids=drawn)
        pairs = torch.stack([torch.arange(trials), torch.zeros(trials, dtype=torch.int64)], 1)
        estimates[self_weight] = loss.averages.table.read(pairs)[0].double()
    error = estimates["exact"].std() / trials**0.5
    assert abs(estimates["exact"].mean() - truth) < 4 * error
    assert abs(estimates["naive"].mean() - truth) > 8 * error


@pytest.mark.parametrize("seed", range(3))
def test_listwise_cross_entropy_is_the_definition(seed):
    scores, labels = random_lists(seed)
    scores.requires_grad_()
    value = ListwiseCELoss()(scores, labels)
    rows = [oracle.listwise_cross_entropy(list(h), y.tolist()) for h, y in zip(scores, labels, strict=True)]
    expected = sum(rows) / len(rows)
    assert value.item() == pytest.approx(expected.item(), abs=1e-12)
    torch.testing.assert_close(gradient(value, scores), gradient(expected, scores), rtol=0, atol=1e-12)


def test_listwise_cross_entropy_with_equal_weights_is_the_definition():
    scores, labels = random_lists(1)
    rows = [
        oracle.listwise_cross_entropy(list(h), y.tolist(), lambda y: float(y > 0))
        for h, y in zip(scores, labels, strict=True)
    ]
    value = ListwiseCELoss(item_weights="equal")(scores, labels)
    assert value.item() == pytest.approx(float(sum(rows) / len(rows)), rel=1e-9)
    weights = torch.rand(scores.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    binary = (labels > 0).long()
    for item_weights in ("equal", "gains"):  # of one grade both are the same, also with weights of the caller
        ours = ListwiseCELoss(item_weights=item_weights)(scores, binary, weights=weights)
        torch.testing.assert_close(ours, ListwiseCELoss()(scores, binary, weights=weights))


@pytest.mark.parametrize("offset", [0.0, 300.0])
def test_listwise_cross_entropy_averages_in_logarithms(offset):
    """u = (1 - rate) u + rate g by the definition, however large the exponentials."""
    labels, rate = torch.tensor([1, 1, 0, 0, 0, 0]), 0.3
    loss = ListwiseCELoss(ListStatistics(labels, torch.zeros(6, dtype=torch.int64)), update_rate=rate).double()
    u = {}
    generator = torch.Generator().manual_seed(1)
    for drawn in (torch.tensor([0, 1, 2, 3]), torch.tensor([0, 1, 4, 5])):
        scores = torch.randn(4, dtype=torch.float64, generator=generator)
        scores[2:] += offset
        scores.requires_grad_()
        value = loss(scores, labels[drawn], sample_ids=drawn)
        expected = 0.0
        for i, other in ((0, 1), (1, 0)):
            pairs = [torch.exp(s - scores[i]) for s in scores]
            g = 1 + pairs[other] + 4 * (pairs[2] + pairs[3]) / 2
            u[i] = g.item() if i not in u else (1 - rate) * u[i] + rate * g.item()
            expected = expected + gradient(g, scores) / u[i] / 2
        torch.testing.assert_close(gradient(value, scores), expected, rtol=1e-9, atol=1e-12)
        assert value.item() == pytest.approx(sum(map(math.log, u.values())) / 2, rel=1e-9)


def test_sampled_listwise_cross_entropy_of_all_items_is_that_of_whole_lists():
    scores, labels = random_lists(6)
    items = torch.arange(labels.numel()).view(labels.shape)
    for self_weight in ("exact", "sample", "naive"):
        sampled = ListwiseCELoss(statistics_of(labels), self_weight=self_weight)
        value = sampled(scores, labels, query_ids=torch.arange(3), sample_ids=items)
        assert value.item() == pytest.approx(ListwiseCELoss()(scores, labels).item(), rel=1e-6)


@pytest.mark.parametrize("build", [NDCGLoss, TopKNDCGLoss, ListwiseCELoss])
def test_weight_two_is_the_item_twice_among_equals(build):
    """Weights are relative: all items twice is nothing new, one item at double weight stands for more of the list."""
    scores, labels = random_lists(7)
    assert build()(scores, labels, weights=torch.full_like(scores, 2.0)).item() == pytest.approx(
        build()(scores, labels).item(), abs=1e-12
    )
    weights = torch.ones_like(scores)
    weights[:, 0] = 5.0
    assert build()(scores, labels, weights=weights).item() != pytest.approx(build()(scores, labels).item(), abs=1e-4)


@pytest.mark.parametrize("name", ["song", "k-song", "solc"])
def test_sampled_losses_ask_for_what_they_need(name):
    labels = torch.tensor([1, 0, 0])
    loss = create_loss(name, statistics=ListStatistics([1, 0, 0], [5, 5, 5]))
    scores, queries = torch.zeros(3), torch.full((3,), 5)
    with pytest.raises(ValueError, match="sample_ids: expected the id of every item"):
        loss(scores, labels, query_ids=queries)
    with pytest.raises(ValueError, match="query_ids: expected lists that the statistics know, got 6"):
        loss(scores, labels, query_ids=queries + 1, sample_ids=torch.arange(3))
    with pytest.raises(ValueError, match="query_ids: expected the id of each list"):
        loss(scores[None], labels[None], sample_ids=torch.arange(3)[None])
    with pytest.raises(ValueError, match=r"labels: expected at most the 1 relevant items .* got 2"):
        loss(scores, torch.tensor([1, 1, 0]), query_ids=queries, sample_ids=torch.arange(3))
    assert len(loss.averages.table) == 0


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"self_weight": "exat"}, ValueError, "self_weight: unknown word 'exat'; did you mean 'exact'"),
        ({"gain": "log"}, ValueError, "gain: unknown word"),
        ({"update_rate": 0}, ValueError, "update_rate: expected a number in"),
        ({"margin": -1}, ValueError, "margin: expected a finite number > 0"),
        ({"discount_shift": -1}, ValueError, "discount_shift: expected a finite number >= 0"),
        ({"statistics": [1, 2]}, TypeError, "statistics: expected ListStatistics or None, got list"),
    ],
)
def test_bad_options_are_named(options, error, message):
    with pytest.raises(error, match=message):
        NDCGLoss(**options)


def test_loss_and_metric_share_the_gain():
    scores, labels = torch.tensor([[9.0, 6.0, 3.0, 0.0]]), torch.tensor([[1, 3, 0, 0]])
    for gain in ("exp2", "linear", lambda grades: grades**2):
        # Margins of 3 leave each item only itself and those above it: r is at least the rank, and exact for the first.
        value = NDCGLoss(gain=gain)(scores, labels).item()
        assert 1 - value < ndcg(scores, labels, gain=gain).item()
        perfect = NDCGLoss(gain=gain)(scores, torch.tensor([[3, 0, 0, 0]])).item()
        assert perfect == pytest.approx(0, abs=1e-6)


def test_eval_mode_gives_what_an_update_would():
    labels, items = torch.tensor([1, 0, 0]), torch.arange(3)
    loss = NDCGLoss(ListStatistics([1, 0, 0, 0], [0] * 4))
    loss(torch.tensor([0.0, 1.0, 2.0]), labels, sample_ids=items)
    scores = torch.tensor([2.0, 1.0, 0.0])
    looked = loss.eval()(scores, labels, sample_ids=items)
    trained = loss.train()(scores, labels, sample_ids=items)
    assert looked.item() == pytest.approx(trained.item(), rel=1e-6)
