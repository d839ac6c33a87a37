"""NeuralNDCG: loss for NDCG with a differentiable sort."""

from __future__ import annotations

import torch
from torch import Tensor

from rankwise.checks import check_count, check_k, check_positive, wide_dtype
from rankwise.lists import Lists, PackedLists
from rankwise.losses.base import ListLoss, with_gradient
from rankwise.losses.baselines.shared import discounts, grades_differ, normalised_gains
from rankwise.registry import LossRecord
from rankwise.sorting import argsort
from rankwise.surrogates import Gain, gain_function

__all__ = ["NeuralNDCGLoss"]

# Elements of the sorting matrices of one chunk: 4 MiB in float32, a few times that with intermediate results.
_CHUNK = 2**20


class NeuralNDCGLoss(ListLoss):
    """NDCG with gains sorted by a smooth permutation matrix: `1 - sum_p d(p) (S G)_p`.

    S starts as NeuralSort's `P[p, j] = softmax_j(((n + 1 - 2p) s_j - sum_k |s_j - s_k|) / temperature)`. Sinkhorn's
    iterations scale it until its columns sum to 1 as its rows do; each list has its own stopping time. G are gains
    divided by the ideal DCG, d(p) is the discount of position p. Item weights multiply the gains (they do not affect
    the sort). Lists of one grade are left out.

    Time O(Q L^2) for each iteration. Value and gradient of a few lists are computed together, and only the scale
    factors of each iteration are stored, so memory is about 6 matrices of 2^20 elements (or of one list).

    Args:
        temperature: smoothness of the sort.
        k: train for NDCG@k; None is the whole list.
        gain: "exp2" for 2^y - 1, "linear" for y, or a function of grades.
        iterations: largest number of Sinkhorn iterations.
        tolerance: iterations stop for a list whose row and column sums differ from 1 by less.
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> NeuralNDCGLoss()(torch.tensor([0.0, 30.0, 20.0]), torch.tensor([1, 3, 0]))
        tensor(0.0172)

    Paper: Pobrotyn and Bialobrzeski, NeuralNDCG: direct optimisation of a ranking metric via differentiable relaxation
    of sorting, 2021; Grover et al., Stochastic optimization of sorting networks via continuous relaxations, ICLR 2019.
    """

    label_kind = "grades"

    def __init__(
        self,
        temperature: float = 1.0,
        *,
        k: int | None = None,
        gain: Gain = "exp2",
        iterations: int = 50,
        tolerance: float = 1e-6,
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(lists=lists, empty=empty, reduction=reduction)
        self.temperature = check_positive("temperature", temperature)
        self.k, self.gain = check_k(k), gain_function(gain)
        self.iterations = check_count("iterations", iterations)
        self.tolerance = check_positive("tolerance", tolerance, zero=True)

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        values, valid = packed.map(self._sorted)
        return values, valid

    def _sorted(self, lists: Lists) -> tuple[Tensor, Tensor]:
        gains = normalised_gains(lists, self.gain, self.k)
        discount = discounts(gains.shape[1], self.k, wide_dtype(gains.device), gains.device).to(gains.dtype)
        rows = max(1, _CHUNK // max(1, gains.shape[1] ** 2))
        best_first = argsort(-lists.scores, lists.mask)

        chunks = (t.gather(1, best_first).split(rows) for t in (lists.scores.detach(), gains, lists.mask))
        parts = [
            self._chunk(scores, its_gains, mask, discount) for scores, its_gains, mask in zip(*chunks, strict=True)
        ]
        values, slopes = zip(*parts, strict=True)
        gradient = torch.zeros_like(lists.scores).scatter_(1, best_first, torch.cat(slopes))
        reason = "its gradient is computed by hand, list by list"
        value = with_gradient(torch.cat(values), lists.scores, gradient, type(self).__name__, reason)
        return 1 - value, grades_differ(lists) & (gains > 0).any(1)

    def _chunk(self, scores: Tensor, gains: Tensor, mask: Tensor, discount: Tensor) -> tuple[Tensor, Tensor]:
        """Compute values (Q,) and slopes (Q, L) of a few lists, sorted by score."""
        size, position = mask.sum(1)[:, None], torch.arange(1, scores.shape[1] + 1, device=scores.device)
        # Padding becomes copies of the last item, at distance 0 from it.
        scores = scores.masked_fill(~mask, torch.inf).cummin(1).values
        logits = _behind_the_best(scores).div_(-self.temperature)
        logits.masked_fill_(~mask[:, None], -torch.finfo(scores.dtype).max)
        matrix = torch.softmax(logits, 2)
        # Shares far below rounding become 0: denormal numbers would make the following products many times slower.
        matrix.masked_fill_((matrix < _least(matrix)) | (position > size)[:, :, None], 0)
        values, slopes = _scaled_product(matrix, discount, gains, mask, self.iterations, self.tolerance)
        # Backward through the softmax of each row, then through its logits.
        slopes *= matrix
        slopes -= matrix.mul_(slopes.sum(2, keepdim=True))
        steepness = (size + 1 - 2 * position).to(scores.dtype)
        slopes = _times(slopes.transpose(1, 2), steepness) - _through_distances(slopes.sum(1), scores, size)
        return values, slopes / self.temperature


def _behind_the_best(scores: Tensor) -> Tensor:
    """Compute by how much the logit of item j is below that of item p, the largest at position p: (Q, p, j).

    For descending scores (Q, L) that is `(n + 1 - 2p) (s_p - s_j) - sum_k |s_p - s_k| + sum_k |s_j - s_k|`. Large terms
    cancel in it: s_(i-1) - s_i counts 2 (i - p) - 1 times for each i from p + 1 to j, and likewise on the other side of
    p. A sum of these terms of one sign has no cancellation.
    """
    return _behind(scores).add_(_behind(-scores.flip(1)).flip(1, 2))


def _behind(scores: Tensor) -> Tensor:
    """Compute the part of j > p."""
    gaps = -scores.diff(dim=1, prepend=scores[:, :1])
    index = torch.arange(scores.shape[1], dtype=scores.dtype, device=scores.device)
    times = (2 * index - 1 - 2 * index[:, None]).clamp_min_(0)
    return (gaps[:, None, :] * times).cumsum_(2)


def _through_distances(slopes: Tensor, scores: Tensor, size: Tensor) -> Tensor:
    """Convert d / d a_j to d / d s_j (Q, L) for the sums of distances a_j = sum_k |s_j - s_k|, scores descending."""
    above = torch.searchsorted(-scores, -scores)
    until_ties = torch.searchsorted(-scores, -scores, right=True).clamp_max_(size)
    before = torch.nn.functional.pad(slopes.cumsum(1), (1, 0))
    below = before[:, -1:] - before.gather(1, until_ties)
    return slopes * (size - until_ties - above) + below - before.gather(1, above)


def _scaled_product(
    matrix: Tensor, discount: Tensor, gains: Tensor, mask: Tensor, iterations: int, tolerance: float
) -> tuple[Tensor, Tensor]:
    """Compute discount^T R P C gains of each list (Q,) and its slope in P (Q, L, L).

    R and C are the diagonal scale factors r and c of Sinkhorn's iterations: c = 1 / (P^T r), r = 1 / (P c). The slope
    is a sum of outer products, one for each use of P, computed as one batched product of the stored factors.
    """
    filled = torch.arange(len(discount), device=discount.device) < mask.sum(1)[:, None]
    transposed = matrix.transpose(1, 2)
    r, c = filled.to(matrix.dtype), torch.zeros_like(gains)
    kept = []
    for _ in range(iterations):
        sums = _times(transposed, r)
        active = (((c * sums - 1).abs() >= tolerance) & mask).any(1, keepdim=True)
        if not bool(active.any()):
            break
        next_c, c_moves = _inverse(sums, mask & active)
        next_r, r_moves = _inverse(_times(matrix, next_c), filled & active)
        kept.append((active, r, next_c, c_moves, next_r, r_moves))
        r, c = torch.where(active, next_r, r), torch.where(active, next_c, c)
    ranked = _times(matrix, c * gains)
    # Each use of P adds left[p] right[j] to its slope.
    left, right = [discount * r], [c * gains]
    slope_r, slope_c = discount * ranked, gains * _times(transposed, discount * r)
    for active, last_r, next_c, c_moves, next_r, r_moves in reversed(kept):
        slope_rows = slope_r * next_r * next_r * -r_moves
        slope_columns = (slope_c + _times(transposed, slope_rows)) * next_c * next_c * -c_moves
        left += [slope_rows, last_r]
        right += [next_c, slope_columns]
        slope_r = torch.where(active, _times(matrix, slope_columns), slope_r)
        slope_c = slope_c.masked_fill(active, 0)
    slopes = torch.stack(left, 2) @ torch.stack(right, 1)
    return (discount * r * ranked).sum(1), slopes


def _times(matrix: Tensor, vector: Tensor) -> Tensor:
    # A row vector times the matrix: with a column vector bmm is several times slower on the CPU.
    return torch.bmm(vector[:, None, :], matrix.transpose(1, 2)).squeeze(1)


def _inverse(sums: Tensor, where: Tensor) -> tuple[Tensor, Tensor]:
    """Compute 1 / sums, 0 outside `where`, and the mask (1 or 0) of elements with a gradient."""
    inverse = torch.where(where, 1 / sums.clamp_min(_least(sums)), 0)
    return inverse, (where & (sums > _least(sums))).to(sums.dtype)


def _least(values: Tensor) -> float:
    """Return the limit below which numbers count as 0: far below rounding, but safe to divide by."""
    return float(torch.finfo(values.dtype).tiny ** 0.75)


RECORDS = (
    LossRecord(
        name="neural-ndcg",
        summary="NDCG through a differentiable sort",
        build=NeuralNDCGLoss,
        role="baseline",
        labels="grades",
        paper="Pobrotyn and Bialobrzeski, 2021",
    ),
)
