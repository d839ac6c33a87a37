"""ApproxNDCG on scores with Gumbel noise."""

from __future__ import annotations

import torch
from torch import Tensor

from rankwise.checks import check_count, check_positive
from rankwise.gains import Gain
from rankwise.lists import Lists, PackedLists
from rankwise.losses.rivals.approx_ndcg import ApproxNDCGLoss
from rankwise.losses.rivals.dcg import normalised_gains
from rankwise.losses.rivals.noise import counted_uniform
from rankwise.losses.rivals.weighing import grades_differ
from rankwise.ranks import rank
from rankwise.registry import LossRecord

__all__ = ["GumbelApproxNDCGLoss"]


class GumbelApproxNDCGLoss(ApproxNDCGLoss):
    """ApproxNDCG on average over `samples` copies of each list with Gumbel noise added to the scores.

    The copies are rankings drawn from the Plackett-Luce model of the scores. The noise is a pure function of the seed,
    the number of the step (the only state), the id of the list (its place in the batch if it has none) and the place of
    the item in the order of scores. As all noise is independent and of one distribution, it does not matter which item
    gets which; so the order of the input, the padding and the other lists change nothing, all processes draw the same,
    and a resumed run goes on bit for bit. Items that agree in score and grade are told apart by their order in the
    input, which only decides which of them gets which gradient. In eval mode there is no noise: the plain ApproxNDCG.

    Args:
        alpha, gain: see `ApproxNDCGLoss`.
        samples: copies of each list.
        noise: the scale of the noise.
        seed: of the noise.
        lists, empty, reduction: see `ListLoss`.

    Example:
        >>> loss = GumbelApproxNDCGLoss(samples=4)
        >>> scores, grades = torch.tensor([0.1, 0.9, 0.5]), torch.tensor([1, 3, 0])
        >>> bool(loss(scores, grades) == loss(scores, grades))
        False
        >>> bool(loss.eval()(scores, grades) == ApproxNDCGLoss()(scores, grades))
        True

    Paper: Bruch et al., A stochastic treatment of learning to rank scoring functions, WSDM 2020.
    """

    remembers = ()
    steps: Tensor

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        samples: int = 8,
        noise: float = 1.0,
        seed: int = 0,
        gain: Gain = "exp2",
        lists: str = "rows",
        empty: str = "skip",
        reduction: str = "mean",
    ) -> None:
        super().__init__(alpha, gain=gain, lists=lists, empty=empty, reduction=reduction)
        self.samples, self.noise = check_count("samples", samples), check_positive("noise", noise)
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise TypeError(f"seed: expected a whole number, got {seed!r}")
        self.seed = seed
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def per_list(self, packed: PackedLists, group_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        if not self.training:
            return super().per_list(packed, group_ids)
        values, valid = packed.map(lambda lists: self._sampled(lists, packed.ids))
        self.steps = self.steps + 1
        return values, valid

    def _sampled(self, lists: Lists, ids: Tensor | None) -> tuple[Tensor, Tensor]:
        gains = normalised_gains(lists, self.gain, None)
        noisy = lists.scores[:, None] + self.noise * self._gumbel(lists, ids)
        copies = (t[:, None].expand(noisy.shape).flatten(0, 1) for t in (gains, lists.mask))
        value = self._approximate_ndcg(noisy.flatten(0, 1), *copies)
        return 1 - value.view(-1, self.samples).mean(1), grades_differ(lists) & (gains > 0).any(1)

    def _gumbel(self, lists: Lists, ids: Tensor | None) -> Tensor:
        """(Q, samples, L)."""
        names = lists.positions if ids is None else ids[lists.positions]
        sample, place = (torch.arange(n, device=names.device) for n in (self.samples, lists.mask.shape[1]))
        uniform = counted_uniform(self.seed, self.steps, names[:, None, None], sample[:, None], place)
        by_score = rank(lists, ties="pessimistic").order[:, None].expand(uniform.shape)
        gumbel = -(-uniform.log()).log()
        return torch.empty_like(gumbel).scatter_(2, by_score, gumbel).to(lists.scores.dtype)


RECORDS = (
    LossRecord(
        name="gumbel-approx-ndcg",
        summary="ApproxNDCG averaged over scores with Gumbel noise",
        build=GumbelApproxNDCGLoss,
        role="baseline",
        labels="grades",
        paper="Bruch et al., WSDM 2020",
    ),
)
