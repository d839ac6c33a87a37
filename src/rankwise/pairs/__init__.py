"""Sums over all pairs of anchors and others, with exact gradients."""

from rankwise.pairs.sums import pair_sums

__all__ = ["pair_sums"]
