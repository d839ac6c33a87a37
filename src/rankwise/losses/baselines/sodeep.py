"""SoDeep: ranks from a network that was trained to sort, in a loss."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor, nn

from rankwise.checks import check_count, check_positive
from rankwise.lists import Lists, PackedLists, split_sides, take
from rankwise.losses.base import ListLoss
from rankwise.losses.baselines.shared import item_weights
from rankwise.registry import LossRecord

__all__ = ["SoDeepLoss", "Sorter", "train_sorter"]

# Synthetic lists: so many in a step, of so many items.
_LISTS, _SHORTEST, _LONGEST = 16, 4, 100


class Sorter(nn.Module):
    """Network from the scores of a list to smooth ranks: the share of the list at or above each item.

        rank_i = sum over m of a_m(z_i) c_m,   c_m = mean over the items j of sigmoid((z_j - t_m) / w_m),

    where z are the scores with mean 0 and standard deviation 1 in their list, t and w are learned thresholds and
    widths, and a(z) are the outputs of a small network, which sum to 1. The order of the items makes no difference,
    lists may have any length, and time is O(n width) for a list of n items.

    Args:
        width: number of thresholds, and of hidden units.

    Example:
        >>> sorter = train_sorter()
        >>> ranks = sorter(torch.tensor([[0.1, 0.9, 0.5]]), torch.full((1, 3), 1 / 3))
        >>> (ranks.argsort() == torch.tensor([[1, 2, 0]])).all().item()
        True
    """

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        check_count("width", width)
        self.thresholds = nn.Parameter(torch.linspace(-3, 3, width, dtype=torch.float32))
        self.log_slopes = nn.Parameter(torch.full((width,), 1.4, dtype=torch.float32))
        self.hidden = nn.Linear(1, 2 * width, dtype=torch.float32)
        self.output = nn.Linear(2 * width, width, dtype=torch.float32)

    def forward(self, scores: Tensor, shares: Tensor) -> Tensor:
        """Return ranks (Q, L) in (0, 1), low for high scores.

        Args:
            scores: (Q, L).
            shares: (Q, L) share of its list that each item represents, 0 in the padding; they sum to 1.
        """
        z = _standardise(scores, shares)[:, :, None]
        weights = [each.to(scores.dtype) for each in self.parameters()]
        thresholds, log_slopes, hidden, hidden_bias, output, output_bias = weights
        above = torch.sigmoid((z - thresholds) * log_slopes.exp())
        curve = (above * shares[:, :, None]).sum(1, keepdim=True)
        logits = torch.tanh(z * hidden[:, 0] + hidden_bias) @ output.T + output_bias
        return (torch.softmax(logits, 2) * curve).sum(2)


def _standardise(scores: Tensor, shares: Tensor) -> Tensor:
    """Return scores (Q, L) with mean 0 and standard deviation 1 in each list; equal scores become 0."""
    present = shares > 0
    centred = (scores - (scores * shares).sum(1, keepdim=True)) * present
    # In units of the largest deviation, so that squares do not overflow.
    largest = centred.detach().abs().amax(1, keepdim=True)
    limits = torch.finfo(scores.dtype)
    rounding = 8 * limits.eps * (scores.detach() * present).abs().amax(1, keepdim=True)
    # Scores near the smallest numbers count as equal, too: gradients by them would overflow.
    constant = largest <= rounding.clamp_min(limits.tiny / limits.eps)
    centred = centred / largest.masked_fill(constant, 1)
    variance = (centred.square() * shares).sum(1, keepdim=True)
    return centred / variance.masked_fill(constant, 1).sqrt()


def train_sorter(*, width: int = 32, steps: int = 300, learning_rate: float = 0.02, seed: int = 0) -> Sorter:
    """Train a sorter on synthetic lists of known ranks and freeze it; about a second on one CPU core.

    The lists are uniform, normal, mixtures of both, and evenly spaced scores, 4 to 100 items each, as in the paper. The
    loss is the mean absolute error of the ranks. Sorters of the same arguments are trained once per process.

    Args:
        width: see `Sorter`.
        steps: of Adam, 16 lists each.
        learning_rate: at the start; it falls to 0 along a cosine.
        seed: of the weights and the lists. Torch's own random state is left alone.
    """
    check_count("width", width)
    check_count("steps", steps)
    return _train_once(width, steps, check_positive("learning_rate", learning_rate), seed)


@lru_cache(maxsize=8)
def _train_once(width: int, steps: int, learning_rate: float, seed: int) -> Sorter:
    with torch.inference_mode(False), torch.enable_grad(), torch.random.fork_rng(devices=()), torch.device("cpu"):
        torch.manual_seed(seed)
        sorter = Sorter(width)
        optimiser = torch.optim.Adam(sorter.parameters(), lr=learning_rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
        for _ in range(steps):
            scores = _draw_lists(_LISTS, int(torch.randint(_SHORTEST, _LONGEST + 1, ())))
            error = (sorter(scores, torch.full_like(scores, 1 / scores.shape[1])) - _true_ranks(scores)).abs().mean()
            optimiser.zero_grad()
            error.backward()
            optimiser.step()
            schedule.step()
    return sorter.requires_grad_(False)


def _draw_lists(count: int, length: int) -> Tensor:
    """Return random lists (count, length): uniform, normal, a mixture of both, or evenly spaced scores."""
    uniform = torch.rand(count, length, dtype=torch.float32) * 2 - 1
    normal = torch.randn(count, length, dtype=torch.float32)
    mixed = torch.where(torch.rand(count, length) < torch.rand(count, 1), uniform, normal)
    even = torch.linspace(-1, 1, length, dtype=torch.float32).expand(count, length)
    kind = torch.randint(4, (1, count, 1)).expand(1, count, length)
    return torch.stack([uniform, normal, mixed, even]).gather(0, kind)[0]


def _true_ranks(scores: Tensor) -> Tensor:
    """Return the ranks (Q, L) of different scores, in the middle of their cells: (position - 1/2) / L."""
    return (scores.argsort(1, descending=True).argsort(1) + 0.5) / scores.shape[1]


class SoDeepLoss(ListLoss):
    """Mean rank of the positives of a list, as a share of its length, with ranks from a trained network.

    In (0, 1); the lower, the nearer the positives are to the top. The network is frozen, gradients flow through it. It
    smooths ranks by about the width of its thresholds, so items much closer than a tenth of the list's standard
    deviation are hardly told apart.

    The paper's sorters are sequence models (LSTM, convolutions) for lists of one length, whose ranks depend on the
    order of the items. `Sorter` is trained in the same way but depends on neither; it is the one deviation.

    Args:
        sorter: a trained sorter; None trains the default one, once per process.
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> loss, scores = SoDeepLoss(), torch.tensor([0.9, 0.1, 0.2, 0.3])
        >>> good, bad = loss(scores, torch.tensor([1, 0, 0, 0])), loss(scores, torch.tensor([0, 1, 0, 0]))
        >>> bool(good < 0.3 < 0.7 < bad)
        True

    Paper: Engilberge et al., SoDeep: a Sorting Deep net to learn ranking loss surrogates, CVPR 2019, its loss for mean
    average precision, divided by the number of positives.
    """

    def __init__(
        self, sorter: Sorter | None = None, *, lists: str = "rows", empty: str = "skip", reduction: str = "mean"
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        if sorter is not None and not isinstance(sorter, Sorter):
            raise TypeError(f"sorter: expected a Sorter, see train_sorter, got {type(sorter).__name__}")
        trained = train_sorter() if sorter is None else sorter
        # A copy, so that moving or loading one loss does not change another.
        self.sorter = Sorter(len(trained.thresholds)).requires_grad_(False)
        self.sorter.load_state_dict(trained.state_dict())

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = packed.map(self._block_values)
        return values, valid

    def _block_values(self, lists: Lists) -> tuple[Tensor, Tensor]:
        sides = split_sides(lists)
        weights = item_weights(lists)
        shares = weights / weights.sum(1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)
        if not weights.shape[1]:
            return lists.scores.sum(1), sides.valid
        ranks = self.sorter(lists.scores, shares)
        return (take(ranks, sides.index) * sides.share).sum(1), sides.valid


RECORDS = (
    LossRecord(
        name="sodeep",
        summary="mean rank of the positives, with ranks from a network that was trained to sort",
        build=SoDeepLoss,
        role="baseline",
        paper="Engilberge et al., CVPR 2019 (SoDeep)",
    ),
)
