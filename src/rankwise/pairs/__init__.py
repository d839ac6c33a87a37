"""Sums over all pairs of an anchor and another item of a list, with exact gradients."""

from rankwise.pairs.sums import mean_over_negatives, pair_sums, pair_sums_within

__all__ = ["mean_over_negatives", "pair_sums", "pair_sums_within"]
