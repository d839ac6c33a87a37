"""Registry of metrics by name: "ndcg@10" is NDCG of the first ten positions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rankwise.metrics._ndcg import NDCG
from rankwise.metrics.areas import AP, AUROC, PAP, PAUROC, check_fpr_range
from rankwise.metrics.metric import Metric
from rankwise.metrics.top_k import HIT, MAP_AT_R, PRECISION, R_PRECISION, RECALL, RR
from rankwise.registry import MetricRecord, Registry
from rankwise.surrogates import Gain, gain_function

__all__ = ["METRICS", "create_metric", "create_metrics"]

METRICS: Registry[MetricRecord] = Registry("metric")
for _record in (AP, NDCG, PAP, PRECISION, RECALL, HIT, RR, AUROC, PAUROC, R_PRECISION, MAP_AT_R):
    METRICS.add(_record)


def create_metric(
    name: str,
    *,
    gain: Gain | None = None,
    ties: str | None = None,
    fpr_range: tuple[float, float] | None = None,
    label: str | None = None,
) -> Metric:
    """Create a metric by name, with its options.

    Args:
        name: a registered name or alias, with "@k" for a cutoff if the metric takes one.
        gain: "exp2" (default), "linear" or a function; for metrics of grades.
        ties: "average", "pessimistic" or "stable"; None is the metric's own default.
        fpr_range: false positive rates, for "pauroc"; (0, 0.1) by default.
        label: its name in results, if not `name`.

    Example:
        >>> metric = create_metric("ndcg@10", gain="linear")
        >>> metric.k, metric.gain
        (10, 'linear')
        >>> print(create_metric("recall@5").definition)  # doctest: +NORMALIZE_WHITESPACE
        relevant items among the first 5, divided by all relevant items; k: 5; ties: the mean over the orders of tied
        items; lists without a relevant item: left out
    """
    record, k = _parse(name)
    given = {"gain": gain, "fpr_range": fpr_range}
    for option, value in given.items():
        if value is not None and option not in record.options:
            raise ValueError(f"{option}: {record.name} does not take it, got {value!r}")
    options: list[tuple[str, Any]] = []
    if "gain" in record.options:
        gain_function(gain or "exp2")
        options.append(("gain", gain or "exp2"))
    if "fpr_range" in record.options:
        options.append(("fpr_range", check_fpr_range((0.0, 0.1) if fpr_range is None else fpr_range)))
    return Metric(label or name, record, k=k, ties=record.ties if ties is None else ties, options=tuple(options))


def create_metrics(
    metrics: str | Metric | Iterable[str | Metric], *, gain: Gain = "exp2", ties: str | None = None
) -> list[Metric]:
    """Create several metrics; `gain` and `ties` apply to those given by name."""
    wanted = [metrics] if isinstance(metrics, str | Metric) else list(metrics)
    made = [metric if isinstance(metric, Metric) else _with_gain(metric, gain, ties) for metric in wanted]
    names = [metric.name for metric in made]
    if not names:
        raise ValueError("metrics: expected at least one metric, got none")
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"metrics: {sorted(twice)[0]!r} is there twice; create_metric(..., label=) tells them apart")
    return made


def _with_gain(name: str, gain: Gain, ties: str | None) -> Metric:
    gain_function(gain)
    return create_metric(name, gain=gain if "gain" in _parse(name)[0].options else None, ties=ties)


def _parse(name: str) -> tuple[MetricRecord, int | None]:
    if not isinstance(name, str):
        raise TypeError(f'metric: expected a name like "ndcg@10", got {name!r}')
    if name in METRICS:
        return METRICS.get(name), None
    stem, at, cutoff = name.partition("@")
    record = METRICS.get(stem)
    if not at:
        return record, None
    if not record.takes_k:
        raise ValueError(f"metric: {stem!r} takes no cutoff, got {name!r}")
    if not cutoff.isdecimal() or int(cutoff) < 1:
        raise ValueError(f'metric: expected a whole number of at least 1 after "@", got {name!r}')
    return record, int(cutoff)
