"""`rankwise compare`: two or more runs or files of scores on the same items."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from rankwise.cli.console import print_paragraph, print_table
from rankwise.cli.machine import record_each
from rankwise.cli.scores import Columns, by_group, default_metrics, judge, open_scores, same_items
from rankwise.data import Scores
from rankwise.extras import require
from rankwise.metrics import Comparison, compare, compare_items

__all__ = ["show_comparison"]


class Compared(NamedTuple):
    """One metric: of each other the comparison with the first, and all values per query, if there are many queries."""

    title: str
    found: list[Comparison]
    values: list[Tensor]
    queries: list[str]


def show_comparison(paths: Sequence[Path], metrics: Sequence[str], columns: Columns, report: Path | None) -> None:
    """Print how the others compare with the first, and write it to a report if one is wanted."""
    if report is not None:
        require("the report", ("jinja2",), extra="report")
    if all(path.is_dir() for path in paths) and not all(_has_scores(path) for path in paths):
        compared = list(_compare_queries(paths, metrics))
    else:
        compared = list(_compare_scores(paths, metrics, columns))
    for each in compared:
        _show(each.title, paths, each.found)
    if report is not None:
        _write(report, paths, compared)
        print_paragraph(f"Report: {report}")


def _compare_scores(paths: Sequence[Path], metrics: Sequence[str], columns: Columns) -> Iterator[Compared]:
    first, *others = (open_scores(path, columns) for path in paths)
    others = [same_items(first, other, str(path)) for other, path in zip(others, paths[1:], strict=True)]
    names = list(metrics) or default_metrics(first)[:1]
    for name in names:
        yield _compare_all(name, name, [first, *others])
    for group, _ in by_group(first):
        assert first.group_ids is not None
        parts = [dict(by_group(_with_groups(each, first)))[group] for each in (first, *others)]
        for name in names:
            yield _compare_all(f"{name}, group {group}", name, parts)


def _compare_all(title: str, metric: str, systems: Sequence[Scores]) -> Compared:
    first, *others = systems
    if first.query_ids is None or len(first.query_ids.unique()) == 1:
        items = [compare_items(other.scores, first.scores, first.labels, metric) for other in others]
        return Compared(title, items, [], [])
    judged = [judge(each, [metric], bootstrap=0) for each in systems]
    found = [compare(each, judged[0]) for each in judged[1:]]
    ids = judged[0].query_ids.tolist()
    queries = [str(each) if first.query_names is None else first.query_names[each] for each in ids]
    return Compared(title, found, [next(iter(each.per_query.values())) for each in judged], queries)


def _compare_queries(paths: Sequence[Path], metrics: Sequence[str]) -> Iterator[Compared]:
    """Runs that have values per query only, such as retrieval."""
    from rankwise.runs import RunFolder

    tables = [RunFolder(path).read_queries() for path in paths]
    queries = [table["query"] for table in tables]
    for path, each in zip(paths[1:], queries[1:], strict=True):
        if each != queries[0]:
            raise ValueError(f"{path}: expected the queries of {paths[0]}, got others")
    shared = [name for name in tables[0] if name != "query" and all(name in table for table in tables)]
    for name in metrics or shared[:1]:
        if name not in shared:
            raise ValueError(f"metric: expected one that all runs have ({', '.join(shared)}), got {name!r}")
        values = [torch.tensor(table[name], dtype=torch.float64) for table in tables]
        found = [compare(other, values[0], metric=name) for other in values[1:]]
        yield Compared(name, found, values, queries[0])


def _write(report: Path, paths: Sequence[Path], compared: Sequence[Compared]) -> None:
    from rankwise.report import write_report
    from rankwise.report.compare import ComparedMetric, comparison_report
    from rankwise.runs import RunFolder

    # Without the folders they have in common, if that leaves them distinct.
    short = [path.name or str(path) for path in paths]
    names = short if len(set(short)) == len(paths) else [str(path) for path in paths]
    folders = {name: RunFolder(path) for name, path in zip(names, paths, strict=True) if path.is_dir()}
    histories = {
        name: (folder.read_problem().metric, history)
        for name, folder in folders.items()
        if (history := folder.read_history()) is not None
    }
    write_report(report, comparison_report(names, [ComparedMetric(*each) for each in compared], histories))


def _show(title: str, paths: Sequence[Path], found: Sequence[Comparison]) -> None:
    rows = [(str(paths[0]), f"{found[0].mean_b:.4f}", "", "", "", "")]
    for path, each in zip(paths[1:], found, strict=True):
        low, high = each.interval
        counts = f"{each.wins} / {each.ties} / {each.losses}" if each.pairs > 1 else "-"
        bounds = f"{low:+.4f} to {high:+.4f}"
        rows.append((str(path), f"{each.mean_a:.4f}", f"{each.difference:+.4f}", bounds, f"{each.p_value:.3g}", counts))
    others = [{"path": path, **vars(each)} for path, each in zip(paths[1:], found, strict=True)]
    record_each("comparisons", {"title": title, "first": paths[0], "others": others})
    columns = ("", "mean", "difference", "95 % interval", "p", "+ / = / -")
    print_table(title, columns, rows, numbers=True)
    counts = "+ / = / -: on how many lists it is better, equal, worse; " if found[0].pairs > 1 else ""
    print_paragraph(f"Differences to the first; {counts}p: two-sided, {found[0].test}.\n")
    if len(found) > 1:
        print_paragraph("Several comparisons at once: some look significant by chance; divide .05 by their number.")


def _has_scores(path: Path) -> bool:
    from rankwise.runs.folder import SCORES

    return (path / SCORES).is_file()


def _with_groups(scores: Scores, first: Scores) -> Scores:
    return replace(scores, group_ids=first.group_ids, group_names=first.group_names)
