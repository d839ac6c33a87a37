"""Closed forms against direct solutions, the limit on columns, and the blend with a trained model."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rankwise.models import EASE, Blend, Ridge, standardise
from rankwise.models.closed_forms import fit_list_regression


def histories(users=60, items=9, seed=0):
    return (torch.rand(users, items, generator=torch.Generator().manual_seed(seed)) < 0.3).double()


def weighted_ridge(inputs, targets, weights, regularisation):
    root = weights.sqrt()[:, None]
    left = (root * inputs).T @ (root * inputs) + regularisation * torch.eye(inputs.shape[1], dtype=torch.float64)
    return torch.linalg.solve(left, (root * inputs).T @ (root * targets))


@pytest.mark.parametrize("user_power, popularity_power", [(0.0, 0.0), (0.5, 0.0), (0.5, 0.2), (1.0, 0.1)])
def test_ease_is_a_weighted_ridge_regression_of_each_item_on_all_others(user_power, popularity_power):
    history = histories()
    model = EASE(9, regularisation=3.0, user_power=user_power, popularity_power=popularity_power).double().fit(history)
    weights = history.sum(1).clamp_min(1) ** -user_power
    for item in range(9):
        others = [each for each in range(9) if each != item]
        expected = weighted_ridge(history[:, others], history[:, [item]], weights, 3.0).squeeze(1)
        expected = expected / history[:, item].sum() ** popularity_power
        torch.testing.assert_close(model.weights[others, item], expected, rtol=0, atol=1e-12)
        assert model.weights[item, item] == 0


def test_several_regularisations_are_solved_from_one_gram_matrix():
    model = EASE(9, user_power=0.5).double()
    gram = model.gram(histories())
    for regularisation in (1.0, 10.0):
        model.regularisation = regularisation
        again = EASE(9, regularisation=regularisation, user_power=0.5).double().fit(histories())
        assert torch.equal(model.solve(gram).weights, again.weights)


def test_above_the_limit_the_most_popular_items_are_scored_by_each_other():
    history = histories()
    model = EASE(9, regularisation=2.0, most=4).double().fit(history)
    popular = history.sum(0).argsort(descending=True, stable=True)[:4].sort().values
    assert model.columns.tolist() == popular.tolist()
    small = EASE(4, regularisation=2.0).double().fit(history[:, popular])
    scores = model(history)
    torch.testing.assert_close(scores[:, popular], small(history[:, popular]))
    others = [item for item in range(9) if item not in popular.tolist()]
    assert not scores[:, others].any()


@pytest.mark.parametrize("layout", [torch.strided, torch.sparse_coo])
def test_ridge_is_the_weighted_regression_of_labels_on_unit_rows(layout):
    rows, labels = histories(50, 7, seed=1) * torch.rand(50, 7, dtype=torch.float64), histories(50, 4, seed=2)
    given = [each if layout == torch.strided else each.to_sparse() for each in (rows, labels)]
    model = Ridge(7, 4, regularisation=0.7).double().fit(*given)
    unit = nn.functional.normalize(rows, dim=1)
    expected = weighted_ridge(unit, labels, labels.sum(1).clamp_min(1).rsqrt(), 0.7)
    torch.testing.assert_close(model.weights, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(model(3 * rows), unit @ expected)


def test_ridge_uses_the_most_frequent_features_above_its_limit():
    rows, labels = histories(50, 7, seed=1), histories(50, 4, seed=2)
    rows[:, 2] = 1
    model = Ridge(7, 4, most=1).double().fit(rows, labels)
    assert model.columns.tolist() == [2]
    assert model(rows).shape == (50, 4)


@pytest.mark.parametrize("most", [None, 4])
def test_a_state_is_loaded_into_a_model_that_was_not_fitted(most):
    history = histories()
    for model, again in (
        (EASE(9, most=most).double().fit(history), EASE(9, most=most).double()),
        (Ridge(9, 9, most=most).double().fit(history, history), Ridge(9, 9, most=most).double()),
    ):
        assert not again.fitted
        assert not again(history).any()
        again.load_state_dict(model.state_dict())
        assert again.fitted
        assert torch.equal(again(history), model(history))


def test_a_state_of_more_items_is_refused():
    with pytest.raises(RuntimeError, match="columns: expected 0 to 4"):
        EASE(5).load_state_dict(EASE(9).fit(histories().float()).state_dict())


def test_a_blend_is_the_mean_of_standardised_scores():
    history = histories()
    model = Blend(nn.Linear(9, 9), EASE(9).double().fit(history)).double()
    trained, solved = model.trained(history), model.solved(history)
    for share in (0.0, 0.3, 1.0):
        model.share.fill_(share)
        expected = share * standardise(trained) + (1 - share) * standardise(solved)
        torch.testing.assert_close(model.eval()(history), expected)
        assert torch.equal(model.train()(history), trained)


def test_a_blend_trains_its_trained_model_alone():
    history = histories().float()
    model = Blend(nn.Linear(9, 9), EASE(9).fit(history))
    model(history).square().sum().backward()
    assert {name for name, _ in model.named_parameters()} == {"trained.weight", "trained.bias"}
    unfitted = Blend(model.trained, EASE(9)).eval()
    assert torch.equal(unfitted(history), model.trained(history))


def test_standardised_scores_have_mean_0_and_deviation_1_and_keep_the_order():
    scores = torch.randn(5, 30, dtype=torch.float64) * 100 + 7
    found = standardise(scores)
    torch.testing.assert_close(found.mean(1), torch.zeros(5, dtype=torch.float64))
    torch.testing.assert_close(found.std(1, correction=0), torch.ones(5, dtype=torch.float64))
    assert torch.equal(found.argsort(1), scores.argsort(1))
    assert not standardise(torch.full((2, 4), 3.0)).any()


def test_sparse_and_dense_histories_give_ease_the_same_bits():
    history = histories(200, 30).float()
    for most in (None, 12):
        models = [EASE(30, regularisation=2.0, user_power=0.5, most=most) for _ in range(2)]
        dense, sparse = models[0].fit(history), models[1].fit(history.to_sparse())
        assert torch.equal(dense.weights, sparse.weights)


def test_ease_of_a_huge_catalogue_makes_only_the_kept_items_dense():
    users, items = (torch.rand(100, 50, generator=torch.Generator().manual_seed(0)) < 0.4).nonzero(as_tuple=True)
    wide, narrow = (
        torch.sparse_coo_tensor(
            torch.stack([users, items * step]), torch.ones(len(users)), (100, width), check_invariants=True
        ).coalesce()
        for step, width in ((100_000, 5_000_000), (1, 50))  # dense, the wide one has 2 GB
    )
    model = EASE(5_000_000, regularisation=2.0, most=50).fit(wide)
    assert torch.equal(model.columns, torch.arange(50) * 100_000)
    assert torch.equal(model.weights, EASE(50, regularisation=2.0).fit(narrow).weights)


@pytest.mark.parametrize("width", [3, 90])
def test_a_regression_within_lists_is_one_with_a_constant_for_each_list(width):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(60, width, generator=generator, dtype=torch.float64)
    gains, weights = (torch.rand(60, generator=generator, dtype=torch.float64) + 0.1 for _ in range(2))
    queries = torch.randint(7, (60,), generator=generator) * 5 - 9
    # The same with a column for each list, which has no penalty.
    lists = (queries[:, None] == queries.unique()).double()
    inputs = torch.cat([rows, lists], 1)
    penalty = torch.cat([torch.full((width,), 0.3 * float(weights.sum())), torch.zeros(lists.shape[1])]).double()
    left = inputs.T @ (weights[:, None] * inputs) + penalty.diag()
    expected = torch.linalg.solve(left, inputs.T @ (weights * gains))[:width]
    torch.testing.assert_close(fit_list_regression(rows, gains, queries, weights), expected)
