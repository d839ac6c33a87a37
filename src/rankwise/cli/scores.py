"""Files of scores on the command line: what is wrong with them is the user's to mend, so it ends with code 2."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import typer
from torch import Tensor

from rankwise.data import Scores, open_score_lists, read_judgements, read_scores, read_trec_run
from rankwise.data.files import Progress
from rankwise.extras import require
from rankwise.metrics import Evaluation, evaluate_grades, evaluate_run, merge_evaluations

__all__ = [
    "Columns",
    "by_group",
    "default_metrics",
    "is_graded",
    "judge",
    "judge_lists",
    "judge_run",
    "open_scores",
    "read_file",
    "same_items",
]


def read_file(
    path: Path,
    *,
    score: str | None = None,
    label: str | None = None,
    query: str | None = None,
    group: str | None = None,
    id: str | None = None,
    features: Sequence[str] = (),
) -> Scores:
    """Call `read_scores`; turn its errors into errors of the command line."""
    if path.suffix.lower() != ".npz":
        require("reading such a file", ("polars",))
    try:
        return read_scores(path, score=score, label=label, query=query, group=group, id=id, features=features)
    except (OSError, ValueError) as problem:
        raise typer.BadParameter(str(problem)) from None


@dataclass(frozen=True)
class Columns:
    """The columns of a file of scores; None finds them by their usual names."""

    score: str | None = None
    label: str | None = None
    query: str | None = None
    group: str | None = None


def open_scores(path: Path, columns: Columns) -> Scores:
    """Return the scores of a file, or those of the test part of a run."""
    if path.is_dir():
        from rankwise.runs.folder import SCORES

        inside = path / SCORES
        if not inside.is_file():
            raise ValueError(f"{path}: expected a file of scores or the folder of a finished run, got no {SCORES}")
        return read_file(inside)
    return read_file(path, score=columns.score, label=columns.label, query=columns.query, group=columns.group)


def judge_run(path: Path, judgements: Path | None, metrics: Sequence[str], *, bootstrap: int = 1000) -> Evaluation:
    """Return the metrics of a TREC run file, as trec_eval defines them."""
    if judgements is None:
        raise typer.BadParameter(f"{path} is a TREC run file; give --judgements FILE, the qrels")
    names = list(metrics) or ["ndcg@10", "map", "recall@100", "mrr"]
    grades = read_judgements(judgements).by_query()
    return evaluate_run(read_trec_run(path).by_query(), grades, names, bootstrap=bootstrap)


def is_graded(scores: Scores) -> bool:
    """Return whether a label is neither 0 nor 1."""
    return bool(((scores.labels != 0) & (scores.labels != 1)).any())


def default_metrics(*, graded: bool, by_query: bool) -> list[str]:
    """Return the default metrics: NDCG for grades, average precision for labels of 0 and 1."""
    if graded:
        return ["ndcg", "ndcg@10"]
    return ["ap", "ndcg@10"] if by_query else ["ap", "auroc"]


def judge(scores: Scores, metrics: Sequence[str], *, bootstrap: int = 1000) -> Evaluation:
    return evaluate_grades(scores.scores, scores.labels, metrics, query_ids=scores.query_ids, bootstrap=bootstrap)


def judge_lists(
    path: Path, columns: Columns, metrics: Sequence[str], on_progress: Progress
) -> tuple[Evaluation, dict[str, Evaluation]]:
    """Return the metrics of a file of scores that may be larger than memory, and those of each group without intervals.

    Reading is the first half of the work, as far as `on_progress` is told.
    """
    if path.suffix.lower() != ".npz":
        require("reading such a file", ("polars",))
    with ExitStack() as opened:
        reading = open_score_lists(path, **vars(columns), on_progress=lambda share: on_progress(share / 2))
        try:
            lists = opened.enter_context(reading)
        except (OSError, ValueError) as problem:
            raise typer.BadParameter(str(problem)) from None
        names = list(metrics) or default_metrics(graded=lists.graded, by_query=lists.by_query)
        group_names = lists.group_names or {}
        groups: dict[int, list[Evaluation]] = {each: [] for each in group_names}
        parts, done = [], 0
        for chunk in lists:
            # All rows in one chunk: the interval of a single list comes from its items.
            parts.append(judge(chunk, names, bootstrap=1000 if len(chunk) == lists.rows else 0))
            for group, judged in groups.items():
                assert chunk.group_ids is not None
                rows = _select(chunk, chunk.group_ids.eq(group))
                if len(rows):
                    judged.append(judge(rows, names, bootstrap=0))
            done += len(chunk)
            on_progress(0.5 + done / lists.rows / 2)
    whole = parts[0] if len(parts) == 1 else merge_evaluations(parts)
    return whole, {group_names[group]: merge_evaluations(judged, bootstrap=0) for group, judged in groups.items()}


def by_group(scores: Scores) -> Iterator[tuple[str, Scores]]:
    """Return the rows of each group with its name; none where the file has no groups."""
    if scores.group_ids is None:
        return
    for group in scores.group_ids.unique().tolist():
        name = str(group) if scores.group_names is None else scores.group_names[group]
        yield name, _select(scores, scores.group_ids == group)


def _select(scores: Scores, rows: Tensor) -> Scores:
    """Return some of the rows."""

    def of(values: Tensor | None) -> Tensor | None:
        return None if values is None else values[rows]

    return replace(
        scores,
        scores=scores.scores[rows],
        labels=scores.labels[rows],
        query_ids=of(scores.query_ids),
        group_ids=of(scores.group_ids),
        sample_ids=of(scores.sample_ids),
        features=of(scores.features),
    )


def same_items(first: Scores, second: Scores, name: str) -> Scores:
    """Sort the rows of the second file like those of the first, so that they can be compared item by item.

    Rows are matched by query and item if both files have a column of items; otherwise they must be in the same order.
    """
    if len(first) != len(second):
        raise ValueError(f"{name}: expected the {len(first)} items of the first, got {len(second)}")
    if first.sample_ids is not None and second.sample_ids is not None:
        left, right = (_keys(each) for each in (first, second))
        row_of = {key: row for row, key in enumerate(right)}
        if len(row_of) == len(right) and len(set(left)) == len(left):
            missing = [key for key in left if key not in row_of]
            if missing:
                raise ValueError(f"{name}: expected the items of the first, got none for {missing[0]}")
            second = _select(second, torch.tensor([row_of[key] for key in left]))
    queries = [_names(each.query_ids, each.query_names, len(each)) for each in (first, second)]
    if queries[0] != queries[1]:
        row = next(row for row, (left, right) in enumerate(zip(*queries, strict=True)) if left != right)
        raise ValueError(f"{name}: expected the queries of the first, got {queries[1][row]!r} in row {row + 1}")
    if not torch.equal(first.labels.double(), second.labels.double()):
        row = int((first.labels.double() != second.labels.double()).nonzero()[0])
        raise ValueError(f"{name}: expected the labels of the first, got another in row {row + 1} (sort, or add an id)")
    return replace(second, query_ids=first.query_ids, query_names=first.query_names)


def _keys(scores: Scores) -> list[tuple[str, str]]:
    queries = _names(scores.query_ids, scores.query_names, len(scores))
    return list(zip(queries, _names(scores.sample_ids, scores.sample_names, len(scores)), strict=True))


def _names(ids: Tensor | None, names: tuple[str, ...] | None, rows: int) -> list[str]:
    if ids is None:
        return [""] * rows
    return [str(each) if names is None else names[each] for each in ids.tolist()]
