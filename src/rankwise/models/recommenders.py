"""Recommenders: matrix factorisation and NeuMF over user vectors, a low-rank scorer over histories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, relu

from rankwise.checks import check_count, check_same_shape
from rankwise.models.rows import fully_connected
from rankwise.models.tables import ShardedTable, own_rows, score_all_rows, shard_zeros, take_rows

__all__ = ["ItemItemScorer", "MatrixFactorisation", "NeuMF", "items_beside", "shared_history"]

# Pairs of a user and an item that the network of NeuMF scores at once without a graph. On a CPU 1,024 to 8,192 are
# about equally fast, and 10 to 18 times faster than 32 users with 26,744 items each; elsewhere few kernels are fast.
_PAIRS_ON_CPU, _PAIRS_ELSEWHERE = 1 << 12, 1 << 20


class MatrixFactorisation(nn.Module):
    """The score of an item for a user: `p_u . q_i + b_i`.

    Args:
        users, items: how many there are.
        dimensions: the length of the vectors p and q.
        item_bias: whether items have a bias b. (One per user would not change the user's ranking.)
        spread: standard deviation of the vectors at the start, times 1 / sqrt(dimensions).
        sharded: whether each process of the process group holds a share of the rows of all tables only; every process
            must then call the model at the same time. It starts with the same numbers.

    Example:
        >>> model = MatrixFactorisation(users=10, items=50, dimensions=8)
        >>> model(torch.tensor([3, 4])).shape, model(torch.tensor([3]), torch.tensor([[7, 0]])).shape
        (torch.Size([2, 50]), torch.Size([1, 2]))

    Paper: Koren, Bell and Volinsky, Matrix factorization techniques for recommender systems, IEEE Computer 2009.
    """

    def __init__(
        self,
        users: int,
        items: int,
        *,
        dimensions: int = 64,
        item_bias: bool = True,
        spread: float = 1.0,
        sharded: bool = False,
    ) -> None:
        super().__init__()
        self.sharded = sharded
        kind = ShardedTable if sharded else nn.Embedding
        self.users, self.items = kind(users, dimensions), kind(items, dimensions)
        zeros = shard_zeros(items) if sharded else nn.Parameter(torch.zeros(items))
        self.bias = zeros if item_bias else None
        for table in (self.users, self.items):
            if isinstance(table, ShardedTable):
                table.draw(spread * dimensions**-0.5)
            else:
                nn.init.normal_(table.weight, std=spread * dimensions**-0.5)

    def forward(self, users: Tensor, items: Tensor | None = None) -> Tensor:
        """Return the scores.

        Args:
            users: (B,).
            items: (B,) one item for each user, (B, K) several; None scores all items by one matrix product.

        Returns:
            The shape of `items`, or (B, number of items).
        """
        if self.sharded:
            return self._score_sharded(users, items)
        vectors: Tensor = self.users(users)
        if items is None:
            scores = vectors @ self.items.weight.T
            return scores if self.bias is None else scores + self.bias
        beside = items_beside(users, items)
        scores = (vectors[:, None] * cast(Tensor, self.items(beside))).sum(2)
        return (scores if self.bias is None else scores + self.bias[beside]).view(items.shape)

    def _score_sharded(self, users: Tensor, items: Tensor | None) -> Tensor:
        (vectors,) = take_rows(users, self.users.weight)
        if items is None:
            own = own_rows(self.items.weight)
            bias = 0 if self.bias is None else own_rows(self.bias)
            return score_all_rows(lambda everyone: everyone @ own.T + bias, vectors)
        tables = [self.items.weight, *([] if self.bias is None else [self.bias])]
        chosen, *bias_of_items = take_rows(items_beside(users, items), *tables)
        scores = (vectors[:, None] * chosen).sum(2)
        return (scores + bias_of_items[0] if bias_of_items else scores).view(items.shape)


def items_beside(users: Tensor, items: Tensor) -> Tensor:
    """Return items (B,) or (B, K) for users (B,) as (B, K)."""
    if users.ndim != 1 or items.ndim not in (1, 2) or len(items) != len(users):
        raise ValueError(
            f"items: expected one (B,) or several (B, K) for each of the users {tuple(users.shape)}, "
            f"got {tuple(items.shape)}"
        )
    return items if items.ndim == 2 else items[:, None]


class NeuMF(nn.Module):
    """Neural matrix factorisation: `w . [p_u * q_i, MLP([p'_u, q'_i])]`, the two parts with vectors of their own.

    Args:
        users, items: how many there are.
        dimensions: the length of all vectors.
        hidden: widths of the layers of the network on the pair of vectors, at least one.

    Example:
        >>> model = NeuMF(users=10, items=50, dimensions=8, hidden=(16, 8))
        >>> model(torch.tensor([3, 4]), torch.tensor([[7, 0], [1, 2]])).shape, model(torch.tensor([3])).shape
        (torch.Size([2, 2]), torch.Size([1, 50]))

    Paper: He et al., Neural collaborative filtering, WWW 2017.
    """

    def __init__(self, users: int, items: int, *, dimensions: int = 64, hidden: Sequence[int] = (128, 64, 32)) -> None:
        super().__init__()
        if not hidden:
            raise ValueError("hidden: expected at least one width, got none")
        self.product_users, self.product_items = nn.Embedding(users, dimensions), nn.Embedding(items, dimensions)
        self.network_users, self.network_items = nn.Embedding(users, dimensions), nn.Embedding(items, dimensions)
        for table in (self.product_users, self.product_items, self.network_users, self.network_items):
            nn.init.normal_(table.weight, std=dimensions**-0.5)
        # The first layer on [p', q'] is the sum of one on p' and one on q': no pair has to be put together for it.
        self.enter_user, self.enter_item = (
            nn.Linear(dimensions, hidden[0]),
            nn.Linear(dimensions, hidden[0], bias=False),
        )
        self.network = fully_connected(hidden[0], hidden[1:], 1)
        self.product_weights = nn.Parameter(torch.ones(dimensions))

    def forward(self, users: Tensor, items: Tensor | None = None) -> Tensor:
        """Return the scores of users (B,) for items (B,) or (B, K), in their shape; without items for all items, (B,
        items).
        """
        own = self.product_users(users) * self.product_weights
        entered = self.enter_user(self.network_users(users))[:, None]
        if items is None:
            products = own @ self.product_items.weight.T
            entered_items = self.enter_item(self.network_items.weight)
            if not torch.is_grad_enabled() and not torch.compiler.is_compiling():
                return self._add_network(products, entered, entered_items)
            entered = entered + entered_items
        else:
            beside = items_beside(users, items)
            products = (own[:, None] * self.product_items(beside)).sum(2)
            entered = entered + self.enter_item(self.network_items(beside))
        scores: Tensor = products + self.network(relu(entered)).squeeze(2)
        return scores if items is None else scores.view(items.shape)

    def _add_network(self, scores: Tensor, users: Tensor, items: Tensor) -> Tensor:
        """Add the network of all pairs of users (B, 1, H) and items (I, H) to scores (B, I), block by block, in place.

        The hidden layers of a block stay in the cache of the CPU; those of all pairs at once are limited by memory.
        """
        pairs = _PAIRS_ON_CPU if items.device.type == "cpu" else _PAIRS_ELSEWHERE
        for row, user in zip(scores, users, strict=True):
            for part, block in zip(row.split(pairs), items.split(pairs), strict=True):
                part += self.network(relu(user + block)).squeeze(1)
        return scores


def _rows(history: Tensor, first: int, last: int) -> Tensor:
    if history.layout == torch.strided:
        return history[first:last]
    rows = torch.arange(first, min(last, len(history)), device=history.device)
    return history.index_select(0, rows).to_dense()


class ItemItemScorer(nn.Module):
    """`S = x W1 W2 - x diag(W1 W2) + b`, x the history over the square root of its length.

    The second term takes out what an item says of itself, so every item is scored by the OTHER items of the history
    (leave-one-out): what is learnt on the items of a history holds for new ones. There is no vector per user; a new
    user needs a history only.

    Args:
        items: how many there are.
        rank: of W1 W2.
        input_dropout: the share of the history that is left out at random while training.
        base: weights (items, items) that are kept as they are and added to W1 W2, such as those of `EASE`; what is
            learned then corrects them. Their diagonal is not used either.

    Example:
        >>> model = ItemItemScorer(items=50, rank=8).eval()
        >>> history = torch.zeros(2, 50)
        >>> history[0, [3, 7]], history[1, 4] = 1, 1
        >>> model(history).shape
        torch.Size([2, 50])
    """

    base: Tensor | None

    def __init__(self, items: int, *, rank: int = 128, input_dropout: float = 0.5, base: Tensor | None = None) -> None:
        super().__init__()
        check_count("rank", rank)
        if base is not None:
            check_same_shape("base", base, "(items, items)", (items, items))
            base = base.detach().clone().fill_diagonal_(0)
        self.register_buffer("base", base)
        self.input_dropout = input_dropout
        # Either factor alone at zero would make the other's gradient zero; this start is small, not zero.
        self.reads = nn.Parameter(torch.randn(items, rank) * rank**-0.5 * 0.1)
        self.writes = nn.Parameter(torch.randn(rank, items) * rank**-0.5 * 0.1)
        self.bias = nn.Parameter(torch.zeros(items))

    def forward(self, history: Tensor) -> Tensor:
        """Return the scores (B, items) of all items from histories (B, items), 1 where a user has had the item and 0
        elsewhere.
        """
        shared = dropout(shared_history(history, self.reads), self.input_dropout, self.training)
        itself = (self.reads * self.writes.T).sum(1)
        scores = torch.addmm(self.bias, shared @ self.reads, self.writes) - shared * itself
        return scores if self.base is None else torch.addmm(scores, shared, self.base)

    @torch.no_grad()
    def start_from(self, item_weights: Tensor) -> None:
        """Initialise with the best approximation of rank `rank` of given weights (items, items), as EASE finds them."""
        left, values, right = torch.linalg.svd(item_weights.to(self.reads.dtype), full_matrices=False)
        rank = min(self.reads.shape[1], len(values))
        root = values[:rank].sqrt()
        self.reads[:, :rank] = left[:, :rank] * root
        self.writes[:rank] = root[:, None] * right[:rank]


def shared_history(history: Tensor, like: Tensor) -> Tensor:
    """Divide histories (B, items) by the square root of their length, so that all have norm 1; empty ones stay 0."""
    if history.ndim != 2 or history.shape[1] != len(like):
        raise ValueError(f"history: expected (B, {len(like)}), got {tuple(history.shape)}")
    history = history.to(like.dtype)
    return history * history.sum(1, keepdim=True).clamp_min(1).rsqrt()
