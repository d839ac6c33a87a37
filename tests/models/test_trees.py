"""Trees as tensors: the scores of scikit-learn's, whatever the device, and nothing of an earlier planting."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankwise.models.trees import (
    BOOSTING,
    EXTRA_TREES,
    Tree,
    Trees,
    build_boosting,
    build_boosting_regressor,
    build_extra_trees,
    build_extra_trees_regressor,
    read_boosting,
    read_extra_trees,
)


def rows(count, seed, *, coarse=False):
    """Features with few and with many values, some of them neighbours in float32, and labels of both kinds."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(count, 4)).astype(np.float32)
    features[:, 1] = np.round(features[:, 1])
    features[:, 2] = np.nextafter(np.float32(1), np.float32(2)) if coarse else features[:, 2]
    features[::2, 2] = 1.0
    features[random.random(count) < 0.2, 3] = np.nan
    labels = features[:, 0] + features[:, 1] + random.normal(size=count) > 1
    labels[:2] = False, True
    return torch.from_numpy(features), torch.from_numpy(labels)


@settings(max_examples=15, deadline=None)
@given(count=st.integers(30, 300), seed=st.integers(0, 10_000), coarse=st.booleans())
def test_scores_are_those_of_scikit_learn(count, seed, coarse):
    features, labels = rows(count, seed, coarse=coarse)
    boosted, shares = Trees(2, 4, *BOOSTING), Trees(2, 4, *EXTRA_TREES)
    for member in range(2):
        boosting = build_boosting(random_state=seed + member).fit(features.numpy(), labels.numpy())
        extra_trees = build_extra_trees(random_state=seed + member).fit(features.numpy(), labels.numpy())
        trees, constant = read_boosting(boosting)
        boosted.plant(member, trees, constant=constant)
        shares.plant(member, read_extra_trees(extra_trees))
        # New rows, and rows at the thresholds or one step of float32 beside them.
        new = torch.cat([features, rows(100, seed + 1)[0], 1 + features * 2**-23])
        expected = boosting.decision_function(new.numpy())
        np.testing.assert_allclose(boosted(new)[:, member].numpy(), expected, atol=1e-4)
        expected = extra_trees.predict_proba(new.numpy())[:, 1]
        np.testing.assert_allclose(shares(new)[:, member].numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("step", range(4))
def test_a_threshold_between_neighbours_in_float32_keeps_them_apart(step):
    # Half of the time the nearest float32 of their middle is the upper one.
    low = np.float32(1 + step * 2**-23)
    high = np.nextafter(low, np.float32(2))
    middle = (np.float64(low) + np.float64(high)) / 2
    trees = Trees(1, 1, trees=1, leaves=2, depth=1)
    trees.plant(0, [chain(1)._replace(thresholds=np.full(3, middle))])
    assert trees(torch.tensor([[low], [high]]))[:, 0].tolist() == [0.0, 1.0]


def chain(length):
    """Return a tree in which every left node is a leaf, with `length` decisions in a row: it counts the features."""
    count = 2 * length + 1
    inner = np.arange(count) % 2 == 0
    inner[-1] = False
    left = np.where(inner, np.arange(count) + 1, -1)
    right = np.where(inner, np.arange(count) + 2, -1)
    values = np.where(inner, 0.0, (np.arange(count)) // 2)
    values[-1] = length
    return Tree(
        np.zeros(count, int), np.arange(count) // 2 + 0.5, np.arange(count) % 4 == 0, left, right, ~inner, values
    )


def test_trees_that_are_planted_again_leave_nothing_of_the_earlier_ones():
    trees = Trees(2, 1, trees=3, leaves=5, depth=4)
    trees.plant(1, [chain(4), chain(2), chain(3)], constant=7.0)
    numbers = torch.arange(6.0)[:, None]
    assert trees(numbers)[:, 1].tolist() == [7, 10, 13, 15, 16, 16]
    assert trees(numbers)[:, 0].tolist() == [0] * 6
    trees.plant(1, [chain(1)])
    assert trees(numbers)[:, 1].tolist() == [0, 1, 1, 1, 1, 1]
    fresh = Trees(2, 1, trees=3, leaves=5, depth=4)
    fresh.plant(1, [chain(1)])
    for name, buffer in trees.state_dict().items():
        assert torch.equal(buffer, fresh.state_dict()[name]), name


def test_trees_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="trees: expected at most 1, got 2"):
        Trees(1, 1, trees=1, leaves=2, depth=1).plant(0, [chain(1)] * 2)
    with pytest.raises(ValueError, match="expected at most 3 leaves and 2 decisions in a row, got 4 and 3"):
        Trees(1, 1, trees=1, leaves=3, depth=2).plant(0, [chain(3)])


def test_blocks_of_rows_and_the_graph_give_the_same_sums():
    trees = Trees(2, 1, trees=30, leaves=5, depth=4)
    for member in range(2):
        trees.plant(member, [chain(1 + (number + member) % 4) for number in range(30)])
    numbers = torch.linspace(-1, 6, 5000)[:, None]
    expected = torch.cat([trees(row) for row in numbers.split(1)])
    assert torch.equal(trees(numbers), expected)
    program = torch.export.export(trees, (numbers,), dynamic_shapes=({0: torch.export.Dim("rows")},))
    torch.testing.assert_close(program.module()(numbers[:77]), expected[:77])


@settings(max_examples=8, deadline=None)
@given(count=st.integers(30, 300), seed=st.integers(0, 10_000))
def test_trees_of_numbers_are_those_of_scikit_learn(count, seed):
    features, _ = rows(count, seed)
    targets = features[:, 0].double().exp()
    for build, read, sizes in (
        (build_boosting_regressor, read_boosting, BOOSTING),
        (build_extra_trees_regressor, lambda model: (read_extra_trees(model), 0.0), EXTRA_TREES),
    ):
        model = build(random_state=seed).fit(features.numpy(), targets.numpy())
        trees, constant = read(model)
        planted = Trees(1, 4, *sizes)
        planted.plant(0, trees, constant=constant)
        np.testing.assert_allclose(
            planted(features)[:, 0].numpy(), model.predict(features.numpy()), rtol=1e-5, atol=1e-5
        )
