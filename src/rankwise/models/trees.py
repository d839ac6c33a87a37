"""Decision trees of scikit-learn as tensors: they run on every device and are exported and saved like any module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rankwise.checks import check_count
from rankwise.models.rows import Columns

if TYPE_CHECKING:
    from sklearn.ensemble import (
        ExtraTreesClassifier,
        ExtraTreesRegressor,
        HistGradientBoostingClassifier,
        HistGradientBoostingRegressor,
    )

__all__ = [
    "BOOSTING",
    "EXTRA_TREES",
    "Tree",
    "TreeMembers",
    "TreeSizes",
    "Trees",
    "build_boosting",
    "build_boosting_regressor",
    "build_extra_trees",
    "build_extra_trees_regressor",
    "read_boosting",
    "read_extra_trees",
    "share_margin",
]


class TreeSizes(NamedTuple):
    """Number of trees, the most leaves of one, and the most decisions from its root to a leaf."""

    trees: int
    leaves: int
    depth: int


BOOSTING = TreeSizes(trees=100, leaves=15, depth=8)
EXTRA_TREES = TreeSizes(trees=60, leaves=256, depth=14)

# Look-ups of nodes at once, one for each row and tree: on a CPU they stay in its cache.
_LOOK_UPS = 1 << 17
_LOOK_UPS_ELSEWHERE = 1 << 24
# Numbers in a table for which one thread is quicker than several.
_ONE_THREAD = 2_000_000


def build_boosting(*, random_state: int) -> HistGradientBoostingClassifier:
    """Return scikit-learn's histogram boosting: small leaves, few columns to a split and shrunk values suit few
    positives."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(**_boosting_options(5), random_state=random_state)


def build_extra_trees(*, random_state: int) -> ExtraTreesClassifier:
    """Return scikit-learn's extremely randomised trees."""
    from sklearn.ensemble import ExtraTreesClassifier

    return ExtraTreesClassifier(**_extra_trees_options(1), random_state=random_state)


def build_boosting_regressor(*, random_state: int) -> HistGradientBoostingRegressor:
    """Return scikit-learn's histogram boosting of numbers."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(**_boosting_options(20), random_state=random_state)


def build_extra_trees_regressor(*, random_state: int) -> ExtraTreesRegressor:
    """Return scikit-learn's extremely randomised trees of numbers."""
    from sklearn.ensemble import ExtraTreesRegressor

    return ExtraTreesRegressor(**_extra_trees_options(3), random_state=random_state)


def _boosting_options(least: int) -> dict[str, Any]:
    """Return the options of boosting whose leaves have at least so many rows."""
    return {
        "max_iter": BOOSTING.trees,
        "max_leaf_nodes": BOOSTING.leaves,
        "max_depth": BOOSTING.depth,
        "learning_rate": 0.06,
        "min_samples_leaf": least,
        "max_features": 0.5,
        "l2_regularization": 3.0,
        "early_stopping": False,
    }


def _extra_trees_options(least: int) -> dict[str, Any]:
    """Return the options of extremely randomised trees whose leaves have at least so many rows."""
    return {
        "n_estimators": EXTRA_TREES.trees,
        "max_leaf_nodes": EXTRA_TREES.leaves,
        "max_depth": EXTRA_TREES.depth,
        "min_samples_leaf": least,
    }


def share_margin(trees: int) -> float:
    """Return how far a probability that is a share of trees stays away from 0 and 1: no row is taken for certain."""
    return 0.5 / (trees + 1)


class Tree(NamedTuple):
    """Nodes of a binary tree, the root first. A row goes left if its feature is at most the threshold.

    Attributes:
        features: (n,) the feature that a node asks for; thresholds: (n,).
        missing_left: (n,) nodes from which a row without that feature goes left.
        left, right: (n,) the nodes that follow; leaf: (n,) nodes that nothing follows.
        values: (n,) of the leaves.
    """

    features: NDArray[Any]
    thresholds: NDArray[np.float64]
    missing_left: NDArray[np.bool_]
    left: NDArray[Any]
    right: NDArray[Any]
    leaf: NDArray[np.bool_]
    values: NDArray[np.float64]


class Trees(nn.Module):
    """Sum the leaf values of several trees and a constant, for each of M members.

    A new module returns 0; `plant` sets the trees of a member.

    Args:
        members: M.
        width: D, the number of features.
        trees, leaves, depth: see `TreeSizes`; a member has at most so many trees.

    Example:
        >>> stump = Tree(*(np.array(each) for each in ([1, 0, 0], [0.5, 0, 0], [0, 0, 0], [1, 0, 0], [2, 0, 0])),
        ...     np.array([False, True, True]), np.array([0.0, -1.0, 3.0]))
        >>> trees = Trees(1, 2, trees=1, leaves=2, depth=1)
        >>> trees.plant(0, [stump])
        >>> trees(torch.tensor([[9.0, 0.5], [9.0, 0.6], [9.0, torch.nan]]))
        tensor([[-1.],
                [ 3.],
                [ 3.]])
    """

    features: Tensor
    thresholds: Tensor
    follows: Tensor
    values: Tensor
    constants: Tensor

    def __init__(self, members: int, width: int, trees: int, leaves: int, depth: int) -> None:
        super().__init__()
        self.width, self.depth = width, check_count("depth", depth)
        nodes = 2 * check_count("leaves", leaves) - 1
        shape = check_count("members", members), check_count("trees", trees), nodes
        # A number from `width` on is that of a feature whose missing values go right.
        self.register_buffer("features", torch.zeros(shape, dtype=torch.int32))
        self.register_buffer("thresholds", torch.full(shape, torch.inf))
        # The left of two nodes, the right one is the next. A leaf follows itself: nothing is above its threshold.
        self.register_buffer("follows", torch.zeros(shape, dtype=torch.int32))
        self.register_buffer("values", torch.zeros(shape))
        self.register_buffer("constants", torch.zeros(members))

    @property
    def look_ups(self) -> int:
        """Return how many nodes are looked up for a row."""
        members, trees, _ = self.features.shape
        return members * trees * self.depth

    def forward(self, features: Tensor) -> Tensor:
        """Map rows (N, D), NaN where a value is missing, to scores (N, M)."""
        members, trees, nodes = self.features.shape
        first = torch.arange(members * trees, device=features.device) * nodes
        asked, thresholds, values = self.features.flatten().long(), self.thresholds.flatten(), self.values.flatten()
        follows = (self.follows.flatten(0, 1) + first[:, None]).flatten()

        def sums(rows: Tensor) -> Tensor:
            # `len` would be a constant of a graph.
            count = rows.shape[0]
            missing = rows.isnan()
            numbers = torch.cat([rows.masked_fill(missing, -torch.inf), rows.masked_fill(missing, torch.inf)], 1)
            # One flat index for each row and tree: `index_select` takes a fraction of the time of `gather`.
            starts = torch.arange(count, device=rows.device)[:, None] * numbers.shape[1]
            starts, node = (each.expand(count, len(first)).reshape(-1) for each in (starts, first))
            numbers = numbers.flatten()
            for _ in range(self.depth):
                above = numbers.index_select(0, starts + asked.index_select(0, node))
                node = follows.index_select(0, node) + (above > thresholds.index_select(0, node))
            return values.index_select(0, node).view(count, members, trees).sum(2) + self.constants

        # A graph has no fixed number of rows to cut.
        if torch.compiler.is_compiling():
            return sums(features)
        at_once = _LOOK_UPS if features.device.type == "cpu" else _LOOK_UPS_ELSEWHERE
        return torch.cat([sums(block) for block in features.split(max(1, at_once // len(first)))])

    @torch.no_grad()
    def plant(self, member: int, trees: Sequence[Tree], *, constant: float = 0.0) -> None:
        """Set all trees of a member, and the constant that is added to their sum."""
        if len(trees) > self.features.shape[1]:
            raise ValueError(f"trees: expected at most {self.features.shape[1]}, got {len(trees)}")
        for buffer, empty in (
            (self.features, 0),
            (self.thresholds, torch.inf),
            (self.follows, 0),
            (self.values, 0.0),
        ):
            buffer[member] = empty
        for number, tree in enumerate(trees):
            self._plant(member, number, tree)
        self.constants[member] = constant

    def _plant(self, member: int, number: int, tree: Tree) -> None:
        """Set one tree, its nodes in the order of their depth, so that both that follow a node are neighbours."""
        order, follows, level = [0], [], 0
        end = 1
        for rank, node in enumerate(order):
            if rank == end:
                level, end = level + 1, len(order)
            follows.append(rank if tree.leaf[node] else len(order))
            if not tree.leaf[node]:
                order += [int(tree.left[node]), int(tree.right[node])]
        if len(order) > self.features.shape[2] or level > self.depth:
            most = f"{(self.features.shape[2] + 1) // 2} leaves and {self.depth} decisions in a row"
            got = f"{(len(order) + 1) // 2} and {level}"
            raise ValueError(f"trees: expected at most {most}, got {got}")
        at = member, number, slice(len(order))
        leaf = tree.leaf[order]
        # Rows hold float32: a threshold between two of them is rounded down, or it could be the upper one.
        thresholds = np.where(leaf, np.inf, _round_down(tree.thresholds[order]))
        features = tree.features[order] + np.where(tree.missing_left[order], 0, self.width)
        for buffer, values in (
            (self.features, np.where(leaf, 0, features)),
            (self.thresholds, thresholds),
            (self.follows, np.array(follows)),
            (self.values, np.where(leaf, tree.values[order], 0.0)),
        ):
            buffer[at] = torch.from_numpy(np.ascontiguousarray(values)).to(buffer)


def _round_down(numbers: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the largest finite float32 that is not above each number.

    A threshold of infinity, which tells missing values from all others, becomes the largest float32.
    """
    largest = float(np.finfo(np.float32).max)
    numbers = numbers.clip(-largest, largest)
    nearest = numbers.astype(np.float32)
    return np.where(nearest > numbers, np.nextafter(nearest, np.float32(-np.inf)), nearest)


class TreeMembers(nn.Module):
    """Boosted and extremely randomised trees, M members of each, of the columns of a table.

    Args:
        members: M.
        codes: for each input its column and its code, see `Columns`.
    """

    def __init__(self, members: int, codes: Sequence[tuple[int, int]]) -> None:
        super().__init__()
        self.members = members
        self.columns = Columns(codes)
        self.boosting = Trees(members, self.columns.width, *BOOSTING)
        self.extra_trees = Trees(members, self.columns.width, *EXTRA_TREES)

    def forward(self, filled: Tensor) -> Tensor:
        """Map inputs (N, D) without missing values to (N, M, 2): log odds or numbers of boosting, and the means of the
        extremely randomised trees, shares of positives or numbers.
        """
        table = self.columns(filled)
        return torch.stack([self.boosting(table), self.extra_trees(table)], 2)

    @torch.no_grad()
    def fit(
        self,
        filled: Tensor,
        scaled: Tensor,
        targets: Tensor,
        weights: Tensor,
        folds: Tensor | None,
        unscale: Callable[[Tensor, Tensor], Tensor],
    ) -> None:
        """Fit all trees: classifiers if the targets are booleans, else regressors.

        Args:
            filled: (N, D) inputs; scaled: (N, D) the same in a bounded range; targets: (N,); weights: (N,).
            folds: (N,) the member that does not learn from a row; None if all learn from all rows.
            unscale: returns what scaled values (n,) of inputs (n,) were.
        """
        classes = targets.dtype == torch.bool
        boost = build_boosting if classes else build_boosting_regressor
        grow = build_extra_trees if classes else build_extra_trees_regressor
        table, bounded = self.columns(filled), self.columns(filled, scaled)
        for member in range(self.members):
            learned = slice(None) if folds is None else folds != member
            rows = targets[learned], weights[learned]
            trees, constant = read_boosting(_fit(boost(random_state=member), table[learned], *rows))
            self.boosting.plant(member, trees, constant=constant)
            # These trees draw their thresholds between the least and the largest value, which should not be far out.
            grown = read_extra_trees(_fit(grow(random_state=member), bounded[learned], *rows))
            self.extra_trees.plant(member, [self._unscale(tree, unscale) for tree in grown])

    def _unscale(self, tree: Tree, unscale: Callable[[Tensor, Tensor], Tensor]) -> Tree:
        """Return a tree of columns as they are for one of scaled columns.

        Comparisons of numbers that no arithmetic has rounded lead to the same leaf wherever the model runs.
        """
        numbers = self.columns.numbers.cpu()
        asked = torch.from_numpy(tree.features.astype(np.int64))
        is_number = torch.from_numpy(~tree.leaf) & (asked < len(numbers))
        device = self.columns.numbers.device
        scaled = torch.from_numpy(tree.thresholds)[is_number]
        thresholds = tree.thresholds.copy()
        inputs = numbers[asked[is_number]]
        thresholds[is_number.numpy()] = unscale(scaled.to(device), inputs.to(device)).numpy(force=True)
        return tree._replace(thresholds=thresholds)


def read_boosting(model: Any) -> tuple[list[Tree], float]:
    """Return the trees of scikit-learn's boosting of numbers or of two classes, and the constant.

    Their sum is the number, or the log odds of the second class.
    """
    trees = []
    for (predictor,) in model._predictors:
        nodes = predictor.nodes
        leaf, missing_left = (nodes[name].astype(bool) for name in ("is_leaf", "missing_go_to_left"))
        asked = nodes["feature_idx"], nodes["num_threshold"], missing_left
        trees.append(Tree(*asked, nodes["left"], nodes["right"], leaf, nodes["value"]))
    return trees, float(np.asarray(model._baseline_prediction).item())


def read_extra_trees(model: Any) -> list[Tree]:
    """Return the trees of a forest of numbers or of two classes.

    Their sum is the number, or the probability of the second class.
    """
    trees = []
    for tree in (each.tree_ for each in model.estimators_):
        leaf = tree.children_left < 0
        values = tree.value[:, 0, :]
        means = values[:, -1] / (values.sum(1) if hasattr(model, "classes_") else 1) / len(model.estimators_)
        asked = tree.feature, tree.threshold, tree.missing_go_to_left.astype(bool)
        trees.append(Tree(*asked, tree.children_left, tree.children_right, leaf, means))
    return trees


def _fit(model: Any, features: Tensor, targets: Tensor, weights: Tensor) -> Any:
    """Fit trees to rows (N, D), their targets (N,) and weights (N,) on one thread, or on all if the table is large.

    Threads of a small table mostly wait for each other.
    """
    from threadpoolctl import threadpool_limits

    rows, wanted, importance = (each.numpy(force=True) for each in (features, targets, weights))
    # Weights of 1 are left out: histogram boosting takes several times as long with them.
    given = {} if (importance == 1).all() else {"sample_weight": importance}
    with threadpool_limits(1 if rows.size <= _ONE_THREAD else None):
        return model.fit(rows, wanted, **given)
