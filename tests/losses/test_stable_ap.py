"""Stable AP: the definition, what each option does, and the claims of METHODS 2.4 about the loss itself."""

from __future__ import annotations

import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oracles import stable_ap as oracle
from oracles.pairs import one_sided_huber
from rankwise.losses import AUPRCLoss, EmbeddingLoss, GroupPrior, SemiVarianceLoss, StableAPLoss, SumLoss, data_prior

scores_and_labels = st.integers(2, 14).flatmap(
    lambda n: st.tuples(
        st.lists(st.floats(-1, 1, width=32), min_size=n, max_size=n),
        st.lists(st.integers(0, 1), min_size=n, max_size=n).filter(lambda y: 0 < sum(y) < len(y)),
    )
)

SCORES = torch.tensor([0.5, 0.1, 0.3, -0.2, 0.15], dtype=torch.float64)
LABELS = torch.tensor([1, 1, 0, 0, 0])


def split(values, labels):
    return [v for v, y in zip(values, labels, strict=True) if y], [
        v for v, y in zip(values, labels, strict=True) if not y
    ]


def expected_x(scores, labels, *, rho=1.0, tau=0.3, a=0.1, t=2.0, width=2.0, mean=None):
    """x of a list by the definition, of numbers or 0-d tensors; the mean of the positives unless told otherwise."""
    positives, negatives = split(scores, labels)
    plain = [p.item() if isinstance(p, torch.Tensor) else p for p in positives]
    mean = sum(plain) / len(plain) if mean is None else mean
    weights = [oracle.weight_by_mean(p, mean, width, tau, a, t) for p in plain]
    return oracle.inner(positives, negatives, weights, rho, tau)


@given(scores_and_labels, st.sampled_from([0.1, 1.0, 7.0]), st.sampled_from(["mean", "rank"]))
def test_value_and_gradient_equal_the_definition(case, rho, weighting):
    """Float64, ties among the scores included; the weights carry no gradient."""
    leaves = [torch.tensor(s, dtype=torch.float64, requires_grad=True) for s in case[0]]
    positives, negatives = split(leaves, case[1])
    plain = [p.item() for p in positives]
    if weighting == "mean":
        mean = sum(plain) / len(plain)
        weights = [oracle.weight_by_mean(p, mean, 2.0, 0.3, 0.2, 1.5) for p in plain]
    else:
        bound = oracle.largest(2.0, 0.3)
        weights = [oracle.weight_by_rank(r, rho, bound) for r in oracle.ranks(plain)]
    x = oracle.inner(positives, negatives, weights, rho, 0.3) + 0 * sum(leaves)
    expected = oracle.outer(x, 0.05)
    gradient = torch.autograd.grad(expected, leaves)

    scores = torch.tensor(case[0], dtype=torch.float64, requires_grad=True)
    loss = StableAPLoss(rho, tau=0.3, eps=0.05, a=0.2, t=1.5, weighting=weighting).double()
    value = loss(scores, torch.tensor(case[1]))
    value.backward()
    torch.testing.assert_close(value.detach(), expected.detach(), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(scores.grad, torch.stack(gradient), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("outer", ["list", "batch"])
def test_gradient_is_that_of_the_value_once_the_weights_are_fixed(outer):
    """gradcheck at t = 0, where every weight is 1 and the value a function of the scores alone."""
    generator = torch.Generator().manual_seed(0)
    scores = (torch.rand(3, 9, generator=generator, dtype=torch.float64) * 2 - 1).requires_grad_()
    labels = torch.tensor([[1, 1, 1, 0, 0, 0, 0, 1, 0], [1, 0, 0, 0, 0, 0, 0, 1, 0], [0, 0, 1, 0, 1, 1, 1, 1, 1]])
    loss = StableAPLoss("batch", tau=0.3, t=0.0, outer=outer, link="none").double()
    assert torch.autograd.gradcheck(lambda s: loss(s, labels), (scores,))


@pytest.mark.parametrize("weighting", ["mean", "rank"])
def test_weights_carry_no_gradient(weighting):
    """Pairs depend on differences of scores, so their gradients add up to 0; those of weights around mu would not."""
    scores = SCORES.clone().requires_grad_()
    StableAPLoss(weighting=weighting, tau=0.3)(scores, LABELS).backward()
    assert scores.grad.sum().item() == pytest.approx(0, abs=1e-12)
    assert bool((scores.grad[:2] < 0).all())
    assert bool((scores.grad[2:] >= 0).all())


@pytest.mark.parametrize(
    "options",
    [
        {"rho": 3.0},
        {"rho": 0.5},
        {"tau": 0.1},
        {"a": 0.7},
        {"t": 1.0},
        {"t": 0.0},
        {"width": 1.0},
        {"width": 8.0},
    ],
    ids=str,
)
def test_each_option_changes_the_value_as_the_formula_says(options):
    given = dict(options)
    width = given.pop("width", 2.0)
    value = StableAPLoss(**given, eps=0.2, score_range=(0.0, width))(SCORES, LABELS)
    expected = oracle.outer(expected_x(SCORES.tolist(), LABELS.tolist(), **options), 0.2)
    assert value.item() == pytest.approx(expected, rel=1e-6)
    default = oracle.outer(expected_x(SCORES.tolist(), LABELS.tolist()), 0.2)
    assert abs(expected - default) > 1e-3


def test_eps_is_the_floor():
    """All positives equal and tau above every negative: h(0) = eps."""
    scores, labels = torch.tensor([0.5, 0.5, 0.2, -0.4]), torch.tensor([1, 1, 0, 0])
    for eps in (0.01, 0.1, 0.5):
        for outer in ("list", "batch"):
            loss = StableAPLoss("batch", eps=eps, tau=0.3, outer=outer)
            assert loss(scores, labels).item() == pytest.approx(eps, rel=1e-6)
    nearly = StableAPLoss("batch", eps=0.1, tau=0.31)(scores, labels)
    assert nearly.item() > 0.1


def test_value_stays_in_its_range():
    scores, labels = torch.tensor([-1.0, 1.0, 1.0]), torch.tensor([1, 0, 0])
    value = StableAPLoss("batch", eps=0.3)(scores, labels).item()
    assert 0.3 <= value < math.sqrt(1 + 0.3**2)


def test_rho_of_the_batch_the_data_and_a_number_agree_where_they_should():
    """2 positives and 3 negatives: rho = 1.5 in the batch; a data set prior of .4 is the same ratio."""
    batch = StableAPLoss("batch")(SCORES, LABELS)
    number = StableAPLoss(1.5)(SCORES, LABELS)
    dataset = StableAPLoss("dataset", prior=data_prior(LABELS))(SCORES, LABELS)
    torch.testing.assert_close(batch, number)
    torch.testing.assert_close(dataset, number)
    weights = torch.tensor([1.0, 1.0, 2.0, 1.0, 1.0], dtype=torch.float64)
    copies = torch.tensor([0, 1, 2, 2, 3, 4])
    torch.testing.assert_close(
        StableAPLoss("batch")(SCORES, LABELS, weights=weights), StableAPLoss("batch")(SCORES[copies], LABELS[copies])
    )


def test_priors_of_groups_reach_their_lists():
    rows, labels, ids = torch.stack([SCORES, SCORES]), torch.stack([LABELS, LABELS]), torch.tensor([6, 5])
    both = StableAPLoss("dataset", prior=GroupPrior([0.2, 0.5], [5, 6]), reduction="none")(rows, labels, query_ids=ids)
    alone = torch.stack([StableAPLoss(rho)(SCORES, LABELS) for rho in (1.0, 4.0)])
    torch.testing.assert_close(both, alone)


def test_outer_batch_is_h_of_the_mean_over_the_lists():
    generator = torch.Generator().manual_seed(1)
    scores = (torch.rand(4, 8, generator=generator, dtype=torch.float64) * 2 - 1).requires_grad_()
    labels = torch.tensor([[1, 1, 0, 0, 0, 0, 0, 0]] * 2 + [[1, 1, 1, 1, 0, 0, 0, 0]] + [[0] * 8])
    x = [expected_x(scores[q], labels[q].tolist(), rho=3.0 if q < 2 else 1.0) for q in range(3)]
    expected = oracle.outer(sum(x) / 3, 0.1)
    (gradient,) = torch.autograd.grad(expected, scores)
    loss = StableAPLoss("batch", outer="batch")
    value = loss(scores, labels)
    assert loss.skipped == 1
    (ours,) = torch.autograd.grad(value, scores)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(ours, gradient)
    # In sums and with add-ons it is the same objective.
    torch.testing.assert_close(StableAPLoss("batch", outer="batch", reduction="sum")(scores, labels), 3 * expected)
    combined = SumLoss(StableAPLoss("batch", outer="batch"), SemiVarianceLoss(3, 15))(scores, labels)
    torch.testing.assert_close(combined, expected + SemiVarianceLoss(3, 15)(scores, labels))
    # One by one there is nothing to take the mean of.
    single = StableAPLoss("batch", outer="batch", reduction="none")(scores, labels)
    torch.testing.assert_close(single[:3], torch.stack([oracle.outer(v, 0.1) for v in x]))


def test_running_mean_is_per_group_and_moves_the_weights():
    loss = StableAPLoss(update_rate=0.25).double()
    labels = torch.tensor([[1, 1, 0, 0]] * 2)
    first = torch.tensor([[0.2, 0.4, 0.3, 0.0], [0.6, 0.8, 0.3, 0.0]], dtype=torch.float64)
    ids = torch.tensor([3, -1])
    loss(first, labels, query_ids=ids)
    assert loss.tracker.table.ids.tolist() == [-1, 3]
    assert loss.tracker.table.rows[:, 0].tolist() == pytest.approx([0.7, 0.3])
    second = first - 0.4
    value = loss(second, labels, query_ids=ids)
    means = [0.3 - 0.25 * 0.4, 0.7 - 0.25 * 0.4]
    x = [expected_x(second[q].tolist(), labels[q].tolist(), mean=means[q]) for q in range(2)]
    assert value.item() == pytest.approx(sum(oracle.outer(v, 0.1) for v in x) / 2)
    assert loss.eval()(first, labels, query_ids=ids).item() != pytest.approx(value.item())


def test_previous_scores_carry_the_step_over_to_the_mean():
    """mu <- mu_k + (1 - lam) (mu - mu_{k-1}), on the scores of the positives alone."""
    labels = torch.tensor([1, 1, 0])
    loss = StableAPLoss(update_rate=0.1).double()
    loss(torch.tensor([0.1, 0.3, 0.0], dtype=torch.float64), labels)
    now, before = (torch.tensor(v, dtype=torch.float64) for v in ([0.7, 0.5, 0.1], [0.4, 0.2, 9.0]))
    value = loss(now, labels, previous_scores=before)
    mean = 0.6 + 0.9 * (0.2 - 0.3)
    assert loss.tracker.table.rows.item() == pytest.approx(mean)
    assert value.item() == pytest.approx(oracle.outer(expected_x(now.tolist(), labels.tolist(), mean=mean), 0.1))


@pytest.mark.parametrize("link", ["scale", "none", "tanh", "sigmoid"])
def test_previous_scores_go_through_the_same_link(link):
    """The mean is kept in one unit: unchanged weights leave a mean that was right as it is, however it is linked."""
    generator = torch.Generator().manual_seed(0)
    scores = 20 * torch.randn(50, generator=generator, dtype=torch.float64)
    labels = (torch.arange(50) % 5 == 0).long()
    loss = StableAPLoss(update_rate=0.1, link=link).double()
    for factor in (1.0, 2.0, 3.0, 3.0):  # the running spread grows all the while
        loss(factor * scores, labels, previous_scores=max(factor - 1, 1.0) * scores)
    linked = getattr(torch, link)(3 * scores) if link in ("tanh", "sigmoid") else 3 * scores
    if link in ("scale", "none"):
        # 1 -> 2 -> 3 told exactly by the previous scores; the last step says 2 -> 3 again and so is one step ahead.
        expected = (3 + 0.9 * (3 - 2)) * scores[labels == 1].mean()
        torch.testing.assert_close(loss.tracker.table.rows[0, 0], expected)
    else:
        assert abs(loss.tracker.table.rows.item()) <= float(linked.abs().max())


def test_batches_mean_is_taken_at_update_rate_one_and_without_groups():
    rows, labels = torch.stack([SCORES, SCORES - 0.3]), torch.stack([LABELS, LABELS])
    remembered = StableAPLoss(update_rate=1.0)
    remembered(rows + 0.4, labels, query_ids=torch.tensor([0, 1]))
    value = remembered(rows, labels, query_ids=torch.tensor([0, 1]))
    torch.testing.assert_close(value, StableAPLoss()(rows, labels))


def test_scores_beyond_the_range_weigh_one():
    """Far below mu the argument of the weight is cut to 1, where the weight is 1; nothing else changes."""
    scores, labels = torch.tensor([0.9, -5.0, -4.0, 0.0], dtype=torch.float64), torch.tensor([1, 1, 0, 0])
    value = StableAPLoss(link="none", tau=0.1)(scores, labels)
    mean = (0.9 - 5) / 2
    top = oracle.weight_by_mean(0.9, mean, 2.0, 0.1, 0.1, 2.0)
    losses = [sum(one_sided_huber(p - n, 0.1) for n in (-4.0, 0.0)) / 2 for p in (0.9, -5.0)]
    expected = oracle.outer((top * losses[0] + 1.0 * losses[1]) / 2, 0.1)
    assert value.item() == pytest.approx(expected)


def test_sigmoid_link_has_the_range_of_probabilities():
    assert StableAPLoss(link="sigmoid", tau=0.1).largest == pytest.approx(21)
    assert StableAPLoss(tau=0.1).largest == pytest.approx(41)


@pytest.mark.parametrize("weighting", ["mean", "rank"])
def test_positives_that_stand_high_weigh_more(weighting):
    """Two positives tied with a negative each, at the head and at the foot: the head pulls harder by its weight."""
    scores = torch.tensor([0.8, 0.5, 0.2, -0.1, 0.8, -0.1], dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([1, 1, 1, 1, 0, 0])
    (gradient,) = torch.autograd.grad(StableAPLoss(1.0, weighting=weighting, tau=0.2)(scores, labels), scores)
    (even,) = torch.autograd.grad(StableAPLoss(1.0, t=0.0, tau=0.2)(scores, labels), scores)
    if weighting == "rank":
        bound = oracle.largest(2.0, 0.2)
        head, foot = (oracle.weight_by_rank(r, 1.0, bound) for r in (0.25, 1.0))
    else:
        head, foot = (oracle.weight_by_mean(s, 0.35, 2.0, 0.2, 0.1, 2.0) for s in (0.8, -0.1))
    assert head > foot
    assert (gradient[0] / gradient[3]).item() == pytest.approx((even[0] / even[3]).item() * head / foot)


def test_retrieval_takes_embeddings_before_the_step():
    generator = torch.Generator().manual_seed(0)
    now, before = torch.randn(2, 6, 5, generator=generator, dtype=torch.float64)
    labels = torch.tensor([0, 0, 0, 1, 1, 1])
    loss = EmbeddingLoss(StableAPLoss(update_rate=0.1)).double()
    loss(before, labels)
    started = loss.loss.tracker.table.rows.clone()
    loss(now, labels, previous_embeddings=before)
    unit = torch.nn.functional.normalize(now)
    others = (labels[:, None] == labels) & ~torch.eye(6, dtype=torch.bool)
    means = [((unit @ unit.T) * others)[labels == c].sum() / 6 for c in (0, 1)]
    # The batch is all there is, so the first mean was exact, and what the step did is told exactly.
    torch.testing.assert_close(loss.loss.tracker.table.rows[:, 0], torch.stack(means))
    assert not torch.allclose(started[:, 0], torch.stack(means))


def test_previous_embeddings_with_references_are_compared_with_these():
    generator = torch.Generator().manual_seed(0)
    now, before, references = torch.randn(3, 4, 5, generator=generator, dtype=torch.float64)
    labels = torch.tensor([0, 0, 1, 1])
    loss = EmbeddingLoss(StableAPLoss(update_rate=0.5), similarity="dot").double()
    loss(before, labels, references, labels)
    loss(now, labels, references, labels, previous_embeddings=before)
    means = [(now[labels == c] @ references[labels == c].T).mean() for c in (0, 1)]
    torch.testing.assert_close(loss.loss.tracker.table.rows[:, 0], torch.stack(means))


@pytest.mark.parametrize(
    "options, kind, message",
    [
        ({"rho": "data"}, ValueError, "rho: unknown word 'data'; did you mean 'dataset'"),
        ({"rho": "dataset"}, ValueError, 'prior: expected the share of positives .* because rho="dataset"'),
        ({"rho": 0.1, "prior": 0.2}, ValueError, 'prior: expected None unless rho="dataset", got 0.2'),
        ({"rho": "batch", "prior": 0.2}, ValueError, 'prior: expected None unless rho="dataset"'),
        ({"rho": "dataset", "prior": 1.5}, ValueError, r"prior: expected a number in \(0, 1\), got 1.5"),
        ({"rho": 0.0}, ValueError, "rho: expected a finite number > 0, got 0.0"),
        ({"rho": None}, TypeError, "rho: expected a number, got None"),
        ({"outer": "mean"}, ValueError, "outer: unknown word 'mean'"),
        ({"tau": 0}, ValueError, "tau: expected a finite number > 0"),
        ({"eps": 0}, ValueError, "eps: expected a finite number > 0"),
        ({"a": 0}, ValueError, "a: expected a finite number > 0"),
        ({"t": -1}, ValueError, "t: expected a finite number >= 0"),
        ({"weighting": "ranks"}, ValueError, "weighting: unknown word 'ranks'; did you mean 'rank'"),
        ({"update_rate": 0}, ValueError, r"update_rate: expected a number in \(0, 1\]"),
        ({"score_range": (1, 0)}, ValueError, "score_range: expected the lowest and the highest score"),
        ({"score_range": 2.0}, ValueError, "score_range: expected the lowest and the highest score"),
        ({"link": "log"}, ValueError, "link: unknown word 'log'"),
    ],
)
def test_bad_options_are_named(options, kind, message):
    with pytest.raises(kind, match=message):
        StableAPLoss(**options)


@pytest.mark.parametrize(
    "given, message",
    [
        ({"previous_scores": torch.rand(4)}, "previous_scores: expected the shape of scores"),
        (
            {"previous_scores": torch.full((5,), torch.nan)},
            "previous_scores: expected finite numbers, got 5 NaN or infinite of 5",
        ),
    ],
)
def test_bad_previous_scores_are_named_and_leave_the_state_untouched(given, message):
    loss = StableAPLoss()
    with pytest.raises(ValueError, match=message):
        loss(SCORES, LABELS, **given)
    assert len(loss.tracker.table) == 0


@pytest.mark.parametrize(
    "before, message",
    [
        (torch.rand(3, 2), "previous_embeddings: expected the shape of embeddings, (4, 2), got (3, 2)"),
        (torch.full((4, 2), torch.nan), "previous_embeddings: expected finite"),
    ],
)
def test_bad_previous_embeddings_are_named(before, message):
    loss = EmbeddingLoss(StableAPLoss())
    with pytest.raises(ValueError, match=re.escape(message)):
        loss(torch.rand(4, 2), torch.tensor([0, 0, 1, 1]), previous_embeddings=before)
    assert len(loss.loss.tracker.table) == 0


def test_losses_without_such_a_memory_ignore_previous_embeddings():
    embeddings, labels = torch.eye(4)[:, :3] + 0.1, torch.tensor([0, 0, 1, 1])
    plain = EmbeddingLoss(AUPRCLoss())(embeddings, labels)
    assert torch.equal(EmbeddingLoss(AUPRCLoss())(embeddings, labels, previous_embeddings=-embeddings), plain)
