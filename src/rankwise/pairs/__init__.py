"""Sums over all pairs of anchors and others, with exact gradients."""

from rankwise.pairs.sums import pair_sums, pair_sums_within

__all__ = ["pair_sums", "pair_sums_within"]
