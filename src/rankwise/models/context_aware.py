"""A scorer that sees the whole list: self-attention over the items of a query."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rankwise.checks import check_ids, check_same_shape
from rankwise.lists import pack

__all__ = ["ContextAwareRanker"]


class ContextAwareRanker(nn.Module):
    """A transformer encoder over the items of each list, without positions: the order of the items changes nothing.

    Args:
        inputs: D, the numbers in a row.
        dimensions: the width inside.
        layers: encoder layers; heads: attention heads of each; feedforward: the width of its fully connected part.
        dropout: inside the encoder, while training.

    Example:
        >>> ranker = ContextAwareRanker(5, dimensions=16, feedforward=32).eval()
        >>> features, query_ids = torch.rand(6, 5), torch.tensor([7, 7, -1, 7, -1, 7])
        >>> ranker(features, query_ids).shape
        torch.Size([6])

    Paper: Pobrotyn et al., Context-aware learning to rank with self-attention, 2020.
    """

    def __init__(
        self,
        inputs: int,
        *,
        dimensions: int = 96,
        layers: int = 2,
        heads: int = 2,
        feedforward: int = 384,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.enter = nn.Linear(inputs, dimensions)
        layer = nn.TransformerEncoderLayer(
            dimensions, heads, feedforward, dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(dimensions), enable_nested_tensor=False)
        self.leave = nn.Linear(dimensions, 1)

    def forward(self, features: Tensor, query_ids: Tensor | None = None, *, mask: Tensor | None = None) -> Tensor:
        """Scores, one per row.

        Args:
            features: (N, D) rows, or (Q, L, D) padded lists.
            query_ids: (N,) which list each row belongs to, in any order; None if all rows are one list.
            mask: (Q, L) for padded lists, False where there is no item; those score 0.
        """
        if features.ndim == 3:
            everything = torch.ones(features.shape[:2], dtype=torch.bool, device=features.device)
            return self._score_lists(features, everything if mask is None else mask)
        if features.ndim != 2:
            raise ValueError(f"features: expected (N, D) or (Q, L, D), got shape {tuple(features.shape)}")
        if query_ids is None:
            return self._score_lists(features[None], torch.ones_like(features[None, :, 0], dtype=torch.bool))[0]
        ids = check_ids("query_ids", query_ids)
        check_same_shape("query_ids", ids, "one id per row", features.shape[:1])
        rows = torch.arange(len(features), device=features.device)
        # The numbers of the rows travel as labels; what is packed as scores does not matter.
        blocks = pack(torch.zeros(len(rows), device=rows.device), rows, query_ids=ids).blocks
        scores = [self._score_lists(features[block.labels], block.mask)[block.mask] for block in blocks]
        return torch.cat(scores)[torch.cat([block.labels[block.mask] for block in blocks]).argsort()]

    def _score_lists(self, features: Tensor, mask: Tensor) -> Tensor:
        # A list without items would attend to nothing, which is undefined; let it see its padding instead.
        hidden = mask.logical_not() & mask.any(1, keepdim=True)
        inside = self.encoder(self.enter(features), src_key_padding_mask=hidden)
        scores: Tensor = self.leave(inside).squeeze(-1)
        return scores.masked_fill(~mask, 0)
