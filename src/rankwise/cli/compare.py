"""`rankwise compare`: two or more runs or files of scores on the same items."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from rankwise.cli.console import print_paragraph, print_table, record_each
from rankwise.cli.scores import Columns, by_group, default_metrics, is_graded, judge, judge_run, open_scores, same_items
from rankwise.data import Scores, read_judgements
from rankwise.data.text_files import is_trec_run
from rankwise.extras import require
from rankwise.metrics import Comparison, compare, compare_items

if TYPE_CHECKING:
    from rankwise.training import History

__all__ = ["show_comparison"]


class Compared(NamedTuple):
    """One metric: of each other the comparison with the first, and all values per query, if there are many queries."""

    title: str
    comparisons: list[Comparison]
    values: list[Tensor]
    queries: list[str]


def show_comparison(
    paths: Sequence[Path],
    metrics: Sequence[str],
    columns: Columns,
    report: Path | None,
    judgements: Path | None = None,
) -> None:
    """Print how the others compare with the first, and write it to a report if one is wanted."""
    if report is not None:
        require("the report", ("jinja2",), extra="report")
    if all(path.is_file() and is_trec_run(path) for path in paths):
        _finish(paths, list(_compare_runs(paths, metrics, judgements)), report)
        return
    if judgements is not None:
        raise ValueError("--judgements: expected with TREC run files, got other files")
    seeds = [_seeds(path) for path in paths]
    if any(seeds):
        _show_seeds(paths, seeds, metrics, columns, report)
        return
    _finish(paths, _compare(paths, metrics, columns), report)


def _finish(paths: Sequence[Path], compared: Sequence[Compared], report: Path | None) -> None:
    """Print comparisons, and write them to a report if one is wanted."""
    for each in compared:
        _show(each.title, paths, each.comparisons)
    if report is not None:
        _write(report, paths, compared)
        print_paragraph(f"Report: {report}")


def _compare(paths: Sequence[Path], metrics: Sequence[str], columns: Columns) -> list[Compared]:
    if all(path.is_dir() for path in paths) and not all(_has_scores(path) for path in paths):
        return list(_compare_queries(paths, metrics))
    return list(_compare_scores(paths, metrics, columns))


def _seeds(path: Path) -> dict[int, Path]:
    """Return the folders of the seeds of a run that has several; nothing for a single run or a file."""
    if not path.is_dir() or _has_scores(path):
        return {}
    from rankwise.runs import RunFolder

    seeds = [each for each in path.glob("seed-*") if RunFolder(each).exists and not RunFolder(path).exists]
    return dict(sorted((int(each.name.removeprefix("seed-")), each) for each in seeds))


def _show_seeds(
    paths: Sequence[Path],
    folders: Sequence[dict[int, Path]],
    metrics: Sequence[str],
    columns: Columns,
    report: Path | None,
) -> None:
    """Compare runs with several seeds: pair by pair, those of the same seed."""
    from rankwise.problems.trials import tabulate_seeds

    seeds = list(folders[0])
    for path, each in zip(paths, folders, strict=True):
        if list(each) != seeds:
            told = ", ".join(map(str, each)) or "one without seeds"
            raise ValueError(f"{path}: expected the seeds of {paths[0]} ({', '.join(map(str, seeds))}), got {told}")
    compared = {seed: _compare([each[seed] for each in folders], metrics, columns) for seed in seeds}
    tables = []
    for index, title in enumerate(each.title for each in compared[seeds[0]]):
        comparisons = [compared[seed][index].comparisons for seed in seeds]
        gaps = {str(path): [each[number].difference for each in comparisons] for number, path in enumerate(paths[1:])}
        heads, differences = tabulate_seeds(seeds, gaps, differences=True)
        first = sum(each[0].mean_b for each in comparisons) / len(seeds)
        rows: list[tuple[str, ...]] = [(str(paths[0]), f"{first:.4f}", *[""] * (len(heads) + 1))]
        for number, (name, *cells) in enumerate(differences):
            mean = sum(each[number].mean_a for each in comparisons) / len(seeds)
            signs = [(gap > 0) - (gap < 0) for gap in gaps[name]]
            rows.append((name, f"{mean:.4f}", *cells, " / ".join(str(signs.count(sign)) for sign in (1, 0, -1))))
        few = len(heads) > 2
        table = (title, ("", "mean", "difference", *heads[1:], "+ / = / -"), rows)
        if few:  # each difference is there
            table = (title, table[1][:-1], [row[:-1] for row in rows])
        tables.append(table)
        print_table(f"{title}, {len(seeds)} seeds", table[1], table[2], numbers=True)
        counted = "" if few else "; + / = / -: with how many seeds it is better, equal, worse"
        print_paragraph(f"Differences to the first, of runs of the same seed{counted}.\n")
        others = [{"path": path, "differences": gaps[str(path)]} for path in paths[1:]]
        record_each("comparisons", {"title": title, "first": paths[0], "seeds": seeds, "others": others})
    if report is not None:
        _write_seeds(report, paths, folders, compared, tables)
        print_paragraph(f"Report: {report}")


def _write_seeds(
    report: Path,
    paths: Sequence[Path],
    folders: Sequence[dict[int, Path]],
    compared: dict[int, list[Compared]],
    tables: Sequence[tuple[str, tuple[str, ...], list[tuple[str, ...]]]],
) -> None:
    from rankwise.report import write_report
    from rankwise.report.compare import ComparedMetric
    from rankwise.report.seeds import seeds_comparison_report

    names = _names(paths)
    by_name = {
        f"{name}, seed {seed}": folder
        for name, each in zip(names, folders, strict=True)
        for seed, folder in each.items()
    }
    metrics = {seed: [ComparedMetric(*each) for each in group] for seed, group in compared.items()}
    write_report(report, seeds_comparison_report(names, list(compared), metrics, tables, _histories(by_name)))


def _compare_scores(paths: Sequence[Path], metrics: Sequence[str], columns: Columns) -> Iterator[Compared]:
    first, *others = (open_scores(path, columns) for path in paths)
    others = [same_items(first, other, str(path)) for other, path in zip(others, paths[1:], strict=True)]
    names = list(metrics) or default_metrics(graded=is_graded(first), by_query=first.query_ids is not None)[:1]
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
    comparisons = [compare(each, judged[0]) for each in judged[1:]]
    ids = judged[0].query_ids.tolist()
    queries = [str(each) if first.query_names is None else first.query_names[each] for each in ids]
    return Compared(title, comparisons, [next(iter(each.per_query.values())) for each in judged], queries)


def _compare_runs(paths: Sequence[Path], metrics: Sequence[str], judgements: Path | None) -> Iterator[Compared]:
    """Compare TREC run files."""
    judged = [judge_run(path, judgements, metrics, bootstrap=0) for path in paths]
    queries = list(read_judgements(judgements).queries)
    for name in judged[0].means:
        comparisons = [compare(each, judged[0], metric=name) for each in judged[1:]]
        yield Compared(name, comparisons, [each.per_query[name] for each in judged], queries)


def _compare_queries(paths: Sequence[Path], metrics: Sequence[str]) -> Iterator[Compared]:
    """Compare runs that have values per query only, such as retrieval."""
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
        comparisons = [compare(other, values[0], metric=name) for other in values[1:]]
        yield Compared(name, comparisons, values, queries[0])


def _write(report: Path, paths: Sequence[Path], compared: Sequence[Compared]) -> None:
    from rankwise.report import write_report
    from rankwise.report.compare import ComparedMetric, comparison_report

    names = _names(paths)
    histories = _histories({name: path for name, path in zip(names, paths, strict=True) if path.is_dir()})
    write_report(report, comparison_report(names, [ComparedMetric(*each) for each in compared], histories))


def _names(paths: Sequence[Path]) -> list[str]:
    """Return short names: without the folders the paths have in common, if that leaves them distinct."""
    short = [path.name or str(path) for path in paths]
    return short if len(set(short)) == len(paths) else [str(path) for path in paths]


def _histories(folders: dict[str, Path]) -> dict[str, tuple[str, History]]:
    """Return by name the metric a run was chosen by, and its history."""
    from rankwise.runs import RunFolder

    runs = {name: RunFolder(path) for name, path in folders.items()}
    return {
        name: (folder.read_problem().metric, history)
        for name, folder in runs.items()
        if (history := folder.read_history()) is not None
    }


def _show(title: str, paths: Sequence[Path], comparisons: Sequence[Comparison]) -> None:
    rows = [(str(paths[0]), f"{comparisons[0].mean_b:.4f}", "", "", "", "")]
    for path, each in zip(paths[1:], comparisons, strict=True):
        low, high = each.interval
        counts = f"{each.wins} / {each.ties} / {each.losses}" if each.pairs > 1 else "-"
        bounds = f"{low:+.4f} to {high:+.4f}"
        rows.append((str(path), f"{each.mean_a:.4f}", f"{each.difference:+.4f}", bounds, f"{each.p_value:.3g}", counts))
    others = [{"path": path, **vars(each)} for path, each in zip(paths[1:], comparisons, strict=True)]
    record_each("comparisons", {"title": title, "first": paths[0], "others": others})
    columns = ("", "mean", "difference", "95 % interval", "p", "+ / = / -")
    print_table(title, columns, rows, numbers=True)
    counts = "+ / = / -: on how many lists it is better, equal, worse; " if comparisons[0].pairs > 1 else ""
    print_paragraph(f"Differences to the first; {counts}p: two-sided, {comparisons[0].test}.\n")
    if len(comparisons) > 1:
        print_paragraph("Several comparisons at once: some look significant by chance; divide .05 by their number.")


def _has_scores(path: Path) -> bool:
    from rankwise.runs.folder import SCORES

    return (path / SCORES).is_file()


def _with_groups(scores: Scores, first: Scores) -> Scores:
    return replace(scores, group_ids=first.group_ids, group_names=first.group_names)
