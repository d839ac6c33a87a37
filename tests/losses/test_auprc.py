"""SOPRC: METHODS 1.5 in full, and every option does what it says."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oracles import auprc as oracle
from rankwise.audit.pools import ExactAUPRC
from rankwise.losses import AUPRCLoss, EmbeddingLoss, GroupPrior, PriorSchedule, class_prior, data_prior

scores_and_labels = st.integers(2, 14).flatmap(
    lambda n: st.tuples(
        st.lists(st.floats(-1, 1, width=32), min_size=n, max_size=n),
        st.lists(st.integers(0, 1), min_size=n, max_size=n).filter(lambda y: 0 < sum(y) < len(y)),
    )
)


def split(scores, labels):
    return [s for s, y in zip(scores, labels, strict=True) if y], [
        s for s, y in zip(scores, labels, strict=True) if not y
    ]


@given(scores_and_labels, st.sampled_from([0.02, 0.3]), st.sampled_from([None, 0.2]))
def test_value_and_gradient_equal_the_definition(case, prior, floor):
    leaves = [torch.tensor(s, dtype=torch.float64, requires_grad=True) for s in case[0]]
    positives, negatives = split(leaves, case[1])
    quantiles = oracle.interpolate([p.item() for p in positives], 5)
    expected = oracle.soprc(positives, negatives, quantiles, prior, tau=0.3, tau_recall=0.1, floor=floor)
    expected = expected + 0 * sum(leaves)
    gradient = torch.autograd.grad(expected, leaves)

    scores = torch.tensor(case[0], dtype=torch.float64, requires_grad=True)
    loss = AUPRCLoss(prior, tau=0.3, tau_recall=0.1, quantiles=5, recall_floor=floor).double()
    value = loss(scores, torch.tensor(case[1]))
    value.backward()
    torch.testing.assert_close(value.detach(), expected.detach(), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(scores.grad, torch.stack(gradient), rtol=1e-8, atol=1e-9)


@given(scores_and_labels, st.sampled_from([0.02, 0.3]), st.sampled_from([0.2, 0.5]))
def test_recall_of_the_batch_takes_its_positives_for_the_quantiles(case, prior, floor):
    positives, negatives = split([torch.tensor(s, dtype=torch.float64) for s in case[0]], case[1])
    quantiles = [p.item() for p in positives]
    expected = oracle.soprc(positives, negatives, quantiles, prior, tau=0.3, tau_recall=0.1, floor=floor)
    loss = AUPRCLoss(prior, tau=0.3, tau_recall=0.1, recall="batch", recall_floor=floor, link="none").double()
    value = loss(torch.tensor(case[0], dtype=torch.float64), torch.tensor(case[1]))
    torch.testing.assert_close(value, torch.as_tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-9)


def test_defaults_are_those_of_the_reference():
    scores = torch.rand(40, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2 - 1
    labels = torch.arange(40) % 4 == 0
    options = {"tau": 0.1, "tau_recall": 0.001, "recall": "quantiles", "quantiles": 100, "update_rate": 0.1}
    implied, stated = AUPRCLoss().double(), AUPRCLoss(0.1, **options).double()
    for shift in (0.0, 0.3):  # the second batch meets what the first left
        assert implied(scores + shift * labels, labels) == stated(scores + shift * labels, labels)


def test_gradient_is_that_of_the_value_when_the_recall_carries_it_too():
    generator = torch.Generator().manual_seed(0)
    scores = (torch.rand(3, 9, generator=generator, dtype=torch.float64) * 2 - 1).requires_grad_()
    labels = torch.tensor([[1, 1, 1, 0, 0, 0, 0, 1, 0]] * 3)
    loss = AUPRCLoss(0.2, tau=0.3, tau_recall=0.3, quantiles=7, recall_gradient="full", link="none").double()
    ids = torch.arange(3)
    loss(scores, labels, query_ids=ids)
    loss.eval()  # V stays as it is: only then is the value a function of the scores alone
    assert torch.autograd.gradcheck(lambda s: loss(s, labels, query_ids=ids), (scores,))


def test_stopped_recall_gradient_differs_from_the_full_one():
    scores, labels = torch.tensor([0.3, 0.1, 0.2, -0.1]), torch.tensor([1, 1, 0, 0])
    gradients = []
    for mode in ("stopped", "full"):
        leaf = scores.clone().requires_grad_()
        AUPRCLoss(tau_recall=0.3, recall_gradient=mode)(leaf, labels).backward()
        gradients.append(leaf.grad)
    assert not torch.allclose(*gradients)


@given(scores_and_labels)
def test_value_bounds_one_minus_average_precision(case):
    """With the batch's prior and its positives as V, f >= 1 - AP: l1 >= l01 and l2 <= l01."""
    positives, negatives = split(*case)
    value = AUPRCLoss("batch", recall="batch", link="none").double()(
        torch.tensor(case[0], dtype=torch.float64), torch.tensor(case[1])
    )
    assert float(value) >= 1 - oracle.average_precision(positives, negatives) - 1e-12


@given(scores_and_labels)
def test_with_indicators_it_is_one_minus_average_precision(case):
    """pi0 = pi and V = z+: f is the AP loss, where positives are not tied."""
    scores, labels = case
    scores = [round(s * 50) / 50 + i * 1e-4 * y for i, (s, y) in enumerate(zip(*case, strict=True))]
    value = ExactAUPRC("batch", recall="batch")(torch.tensor(scores, dtype=torch.float64), torch.tensor(labels))
    assert float(1 - value) == pytest.approx(oracle.average_precision(*split(scores, labels)), abs=1e-9)


def test_plain_loss_is_too_large_when_positives_are_undersampled():
    """Proposition 2 as corrected: (1 + (pi - pi0) H), checked as an identity on population rates."""
    rng = np.random.default_rng(1)
    for _ in range(100):
        prior, sampled, false, true = rng.uniform(0.01, 0.99, 4)
        right, plain = ((1 - p) / p * false / true for p in (prior, sampled))
        precision_loss, plain_loss = right / (1 + right), plain / (1 + plain)
        h = true / ((1 - prior) * (sampled * true + (1 - sampled) * false))
        assert plain_loss == pytest.approx(precision_loss * (1 + (prior - sampled) * h), rel=1e-12)
        assert (plain_loss > precision_loss) == (sampled < prior)


def test_memory_of_groups_is_shared_and_per_group():
    loss = AUPRCLoss(quantiles=4)
    scores = torch.tensor([[0.9, 0.1], [0.5, 0.2], [0.3, 0.2]])
    labels = torch.tensor([[1, 0]] * 3)
    loss(scores, labels, query_ids=torch.tensor([1, 2, 3]), group_ids=torch.tensor([7, 7, 8]))
    assert loss.tracker.table.ids.tolist() == [7, 8]
    assert loss.tracker.table.rows[:, 0].tolist() == pytest.approx([0.7, 0.3])


def test_rows_without_ids_leave_no_memory_and_columns_are_classes():
    scores, labels = torch.rand(5, 3) * 2 - 1, torch.tensor([[1, 0, 1], [0, 1, 0], [0, 0, 0], [0, 0, 0], [1, 1, 0]])
    rows, columns = AUPRCLoss(), AUPRCLoss(lists="columns")
    rows(scores, labels)
    columns(scores, labels)
    assert len(rows.tracker.table) == 0
    assert columns.tracker.table.ids.tolist() == [0, 1, 2]
    one_by_one = [AUPRCLoss()(scores[:, c], labels[:, c]) for c in range(3)]
    torch.testing.assert_close(columns(scores, labels), torch.stack(one_by_one).mean())


def test_priors_of_groups_reach_their_lists():
    scores, labels = torch.tensor([[0.2, 0.1], [0.2, 0.1]]), torch.tensor([[1, 0], [1, 0]])
    ids = torch.tensor([5, 6])
    both = AUPRCLoss(GroupPrior([0.02, 0.4], [6, 5]), reduction="none")(scores, labels, query_ids=ids)
    alone = [AUPRCLoss(p)(scores[0], labels[0]) for p in (0.4, 0.02)]
    torch.testing.assert_close(both, torch.stack(alone))
    with pytest.raises(ValueError, match="no prior was given for group 9"):
        AUPRCLoss(GroupPrior([0.1], [6]))(scores, labels, query_ids=torch.tensor([6, 9]))
    with pytest.raises(ValueError, match="group_ids: expected the group of each list"):
        AUPRCLoss(torch.tensor([0.1, 0.2]))(scores, labels)


def test_smaller_prior_costs_more():
    scores, labels = torch.tensor([0.2, 0.3, 0.1]), torch.tensor([1, 0, 0])
    values = [float(AUPRCLoss(p)(scores, labels)) for p in (0.5, 0.1, 0.01)]
    assert values == sorted(values)


def test_schedule_moves_in_training_only_and_is_saved():
    scores, labels = torch.tensor([0.2, 0.3, 0.1]), torch.tensor([1, 0, 0])
    loss = AUPRCLoss(PriorSchedule(0.5, 0.02, steps=10))
    loss.eval()(scores, labels)
    assert int(loss.prior.step) == 0
    loss.train()
    for _ in range(4):
        loss(scores, labels)
    other = AUPRCLoss(PriorSchedule(0.5, 0.02, steps=10))
    other.load_state_dict(loss.state_dict())
    assert int(other.prior.step) == 4


def test_true_priors_come_from_labels():
    assert data_prior(torch.tensor([1, 0, 0, 0])) == 0.25
    assert data_prior(torch.tensor([[1, 0], [0, 1], [0, 1], [0, 0]])).priors.tolist() == pytest.approx([0.25, 0.5])
    retrieval = class_prior(torch.tensor([4, 4, 4, 9, 9, 2]))
    assert retrieval.ids.tolist() == [2, 4, 9]
    assert retrieval.priors.tolist() == pytest.approx([1 / 5, 2 / 5, 1 / 5])


def test_item_weights_reach_the_remembered_quantiles():
    scores, labels = torch.tensor([0.9, 0.2, 0.5, 0.1], dtype=torch.float64), torch.tensor([1, 1, 1, 0])
    loss = AUPRCLoss(quantiles=7, link="none")
    loss(scores, labels, weights=torch.tensor([1.0, 4.0, 2.0, 1.0]))
    expected = oracle.interpolate_weighted([0.9, 0.2, 0.5], [1.0, 4.0, 2.0], 7)
    assert loss.tracker.table.rows[0].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("given, expected", [(None, None), ((-0.5, 0.95), (-0.5, 0.95))])
def test_the_score_range_bounds_the_remembered_quantiles(given, expected):
    scores, labels = torch.tensor([0.9, 0.2, 0.1], dtype=torch.float64), torch.tensor([1, 1, 0])
    loss = AUPRCLoss(quantiles=50, link="none", score_range=given)
    loss(scores, labels)
    quantiles = oracle.interpolate([0.9, 0.2], 50, *([] if expected is None else [expected]))
    assert loss.tracker.table.rows[0].tolist() == pytest.approx(quantiles)


@pytest.mark.parametrize("link, low, high", [("tanh", -1, 1), ("sigmoid", 0, 1)])
def test_links_with_a_range_bound_the_remembered_quantiles(link, low, high):
    loss = AUPRCLoss(quantiles=50, link=link)
    loss(torch.tensor([3.0, -3.0, 0.0]), torch.tensor([1, 1, 0]))
    assert low <= loss.tracker.table.rows.min() < loss.tracker.table.rows.max() <= high


def test_the_quantiles_of_cosines_are_cosines():
    angles = torch.tensor([0.0, 0.2, 2.9, 1.0])
    vectors = torch.stack([angles.cos(), angles.sin()], 1)
    loss = EmbeddingLoss(AUPRCLoss(quantiles=50))
    loss(vectors, torch.tensor([0, 0, 0, 1]))
    assert loss.loss.tracker.table.rows.abs().max() <= 1


def test_scale_link_leaves_bounded_scores_alone_and_tames_logits():
    generator = torch.Generator().manual_seed(0)
    labels = (torch.rand(200, generator=generator) < 0.2).long()
    cosine = torch.rand(200, generator=generator) * 2 - 1
    assert torch.equal(AUPRCLoss()(cosine, labels), AUPRCLoss(link="none")(cosine, labels))
    logits = 40 * torch.randn(200, generator=generator)
    scaled = AUPRCLoss(link="none")(logits / logits.std(correction=0), labels)
    torch.testing.assert_close(AUPRCLoss()(logits, labels), scaled)


def test_weights_of_negatives_and_positives_count_as_copies():
    """Weight 2 is the item twice, where the recall is taken from the batch."""
    scores, labels = torch.tensor([0.5, 0.2, 0.3, 0.1, -0.4]), torch.tensor([1, 1, 0, 0, 0])
    weights = torch.tensor([1.0, 2.0, 1.0, 3.0, 1.0])
    copies = torch.repeat_interleave(torch.arange(5), weights.long())
    options = {"prior": "batch", "recall": "batch", "recall_floor": 0.1, "tau_recall": 0.05}
    weighted = AUPRCLoss(**options)(scores, labels, weights=weights)
    torch.testing.assert_close(weighted, AUPRCLoss(**options)(scores[copies], labels[copies]))


def test_skipped_lists_are_counted_or_refused():
    scores, labels = torch.rand(3, 4), torch.tensor([[1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]])
    loss = AUPRCLoss()
    loss(scores, labels)
    assert loss.skipped == 2
    with pytest.raises(ValueError, match="2 of 3 lists lack"):
        AUPRCLoss(empty="error")(scores, labels)


def test_a_million_items_train_in_linear_memory():
    scores = torch.randn(1_000_000, generator=torch.Generator().manual_seed(0)).requires_grad_()
    labels = (torch.arange(1_000_000) % 100 == 0).long()
    value = AUPRCLoss()(scores, labels)
    value.backward()
    assert 0 < float(value.detach()) < 1
    assert bool((scores.grad[labels == 1] <= 0).all())
    assert bool((scores.grad[labels == 0] >= 0).all())


SCORES, LABELS = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([1, 0, 1])


@pytest.mark.parametrize(
    "arguments, kind, message",
    [
        ((SCORES[:2], LABELS), ValueError, r"labels: expected the shape of scores, \(2,\), got \(3,\)"),
        ((torch.rand(2, 2, 2), torch.ones(2, 2, 2)), ValueError, "scores: expected 1 or 2 dimensions"),
        ((SCORES, LABELS * 2), ValueError, "labels: expected 0 or 1, got 2"),
        ((SCORES, -LABELS), ValueError, "labels: expected 0 or 1, got -1"),
        (
            (torch.tensor([0.1, float("nan"), float("inf")]), LABELS),
            ValueError,
            "scores: .* got 2 NaN or infinite of 3",
        ),
        (("abc", LABELS), TypeError, "scores: expected a tensor or an array of numbers, got str"),
        ((SCORES, LABELS, {"query_ids": torch.rand(3)}), TypeError, "query_ids: expected integers"),
        (
            (SCORES, LABELS, {"query_ids": torch.zeros(2, dtype=torch.int64)}),
            ValueError,
            "query_ids: expected the shape",
        ),
        ((SCORES, LABELS, {"mask": torch.zeros(3, dtype=torch.bool)}), ValueError, "mask: expected at least one item"),
        ((SCORES, LABELS, {"mask": torch.ones(3)}), TypeError, "mask: expected booleans"),
        (
            (SCORES, LABELS, {"weights": torch.tensor([1.0, -1, 1])}),
            ValueError,
            "weights: expected numbers of 0 or more",
        ),
        (
            (SCORES, LABELS, {"group_ids": torch.tensor([1, 2])}),
            ValueError,
            "group_ids: expected the shape of one value",
        ),
        (
            (SCORES, LABELS, {"sample_ids": torch.tensor([1, 2])}),
            ValueError,
            "sample_ids: expected the shape of scores",
        ),
        (
            (SCORES, LABELS, {"query_ids": torch.tensor([1, 1, 2]), "group_ids": torch.tensor([4, 5, 5])}),
            ValueError,
            "group_ids: expected the same value for all items of a list",
        ),
    ],
)
def test_bad_input_is_named_and_leaves_the_state_untouched(arguments, kind, message):
    scores, labels, *given = arguments
    loss = AUPRCLoss()
    with pytest.raises(kind, match=message):
        loss(scores, labels, **(given[0] if given else {}))
    assert len(loss.tracker.table) == 0
    assert len(loss.link.spreads) == 0


@pytest.mark.parametrize(
    "options, kind, message",
    [
        ({"prior": 0.0}, ValueError, r"prior: expected a number in \(0, 1\), got 0"),
        ({"prior": 1}, ValueError, "prior: expected a number in"),
        ({"prior": "dataset"}, ValueError, "prior: unknown word 'dataset'"),
        ({"prior": torch.tensor([0.1, 1.5])}, ValueError, r"prior: expected numbers in \(0, 1\)"),
        ({"tau": 0}, ValueError, "tau: expected a finite number > 0, got 0"),
        ({"tau_recall": -1.0}, ValueError, "tau_recall: expected a finite number > 0"),
        ({"recall": "quantile"}, ValueError, "recall: unknown word 'quantile'; did you mean 'quantiles'"),
        ({"quantiles": 0}, ValueError, "quantiles: expected a whole number of at least 1, got 0"),
        ({"update_rate": 0.0}, ValueError, r"update_rate: expected a number in \(0, 1\], got 0"),
        ({"recall_floor": 1.0}, ValueError, r"recall_floor: expected a number in \(0, 1\)"),
        ({"recall_gradient": "half"}, ValueError, "recall_gradient: unknown word 'half'"),
        ({"link": "tan"}, ValueError, "link: unknown word 'tan'; did you mean 'tanh'"),
        ({"lists": "cols"}, ValueError, "lists: unknown word 'cols'"),
        ({"empty": "zero"}, ValueError, "empty: unknown word 'zero'"),
        ({"reduction": "avg"}, ValueError, "reduction: unknown word 'avg'"),
    ],
)
def test_bad_options_are_named(options, kind, message):
    with pytest.raises(kind, match=message):
        AUPRCLoss(**options)
