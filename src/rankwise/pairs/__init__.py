"""Sums over all pairs of an anchor and another item of a list, with exact gradients."""

from rankwise.pairs.sums import RecordedSums, mean_over_negatives, pair_sums, pair_sums_within, recorded_pair_sums

__all__ = ["RecordedSums", "mean_over_negatives", "pair_sums", "pair_sums_within", "recorded_pair_sums"]
