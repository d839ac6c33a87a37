"""Search ranking on MQ2008: all losses on the same scorer, next to boosted trees."""

from benchmarks.quality.mq2008.data import load_fold

__all__ = ["load_fold"]
