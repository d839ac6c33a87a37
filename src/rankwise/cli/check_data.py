"""`rankwise check-data`: read, look, print."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from rankwise.cli.console import print_paragraph, print_table, progress_bar, record
from rankwise.extras import require

if TYPE_CHECKING:
    from rankwise.data.check import Finding
    from rankwise.data.table_files import RawTable

__all__ = ["show_check"]

SEVERITIES = ("error", "warning", "note")


def show_check(
    files: Sequence[Path],
    *,
    label: str | None,
    query: str | None,
    drop: Sequence[str],
    positive: str | None,
    missing: str,
    positives: int | None,
    batch_size: int | None,
) -> int:
    """Print the findings in files, the first of which is for training; return 1 if there are errors, else 0."""
    require("check-data", ("polars", "sklearn"), extra="data")
    from rankwise.data.forms import check_form, form_of

    forms = [form_of(path) for path in files]
    if set(forms) != {"table"}:
        if label or query or drop or positive or positives is not None:
            raise typer.BadParameter("expected for tables only", param_hint="--label, --query, --drop, --positive")
        with progress_bar() as progress:
            bar = progress.add_task("reading", total=len(files))
            noticed = []
            for path, form in zip(files, forms, strict=True):
                progress.update(bar, description=f"reading {path.name}")
                if form == "table":
                    raise ValueError(f"{path}: expected data of the same form as the others, got a table")
                noticed += check_form(path, form)
                progress.advance(bar)
        return _show_findings(noticed)
    from rankwise.data import Table
    from rankwise.data.check import Finding, check_parts
    from rankwise.data.files import is_letor
    from rankwise.data.table_files import open_table
    from rankwise.data.tables import find_unusable, read_table

    names = _short_names(files)
    with progress_bar() as progress:
        bar = progress.add_task("reading", total=len(files) + 1)

        def advance(done: int, share: float) -> None:
            progress.update(bar, completed=done + share)

        tables: dict[str, Table] = {}
        unusable: dict[str, str] = {}
        for done, (name, path) in enumerate(zip(names, files, strict=True)):
            progress.update(bar, description=f"reading {name}")
            with _wrong_columns_are_wrong_arguments():
                if tables:
                    schema = tables[names[0]].schema
                    tables[name] = Table(schema.read(path, on_progress=partial(advance, done)), schema)
                    continue
                source: Any = path
                if not is_letor(path):
                    source = open_table(path)
                    label, query = _used_columns(source, label, query)
                    unusable = find_unusable(source, label=label, query=query, drop=drop)
                tables[name] = read_table(
                    source,
                    label=-1 if label is None else label,
                    query=query,
                    drop=[*drop, *unusable],
                    positive=positive,
                    missing="keep" if missing == "report" else missing,
                    on_progress=partial(advance, done),
                )
        progress.update(bar, description="looking")
        findings = check_parts(
            {name: table.part for name, table in tables.items()},
            feature_names=tables[names[0]].schema.inputs,
            fill_missing=missing == "median",
            positives=positives,
            batch_size=batch_size,
            on_progress=partial(advance, len(files)),
        )
    for column, reason in unusable.items():
        mend = "save the file with decimal points" if "decimal comma" in reason else "mend the cells"
        findings.append(Finding("error", names[0], reason, f"{mend}, or leave it out: --drop {column}"))
    if unusable:
        told = f"in a recipe: data.drop=[{','.join([*drop, *unusable])}]"
        findings.append(Finding("note", names[0], f"{len(unusable)} columns cannot be used", told))
    for column, reason in tables[names[0]].schema.left_out.items():
        findings.append(Finding("note", names[0], f"column {column!r} is left out: {reason}"))
    classes = tables[names[0]].schema.classes or ()
    if len(classes) > 2:
        labels = tables[names[0]].part.labels
        rarest = classes[int(labels.bincount(minlength=len(classes)).argmin())]
        told = f"name the positive one for one ranking: --positive {rarest}"
        findings.append(Finding("warning", names[0], f"{len(classes)} kinds of labels", told))
    read = tables[names[0]].schema
    if not read.letor:
        lists = "no column of queries" if read.query is None else f"queries in column {read.query!r}"
        findings.append(Finding("note", names[0], f"labels in column {read.label!r}, {lists}", "--label, --query"))
    for name, table in tables.items():
        if table.schema.classes is not None:
            meaning = ", ".join(f"{label} is {word!r}" for label, word in enumerate(table.schema.classes))
            print_paragraph(f"{name}: label {meaning} (column {table.schema.label!r})")
    return _show_findings(findings)


def _used_columns(raw: RawTable, label: str | None, query: str | None) -> tuple[str, str | None]:
    """Return the columns of labels and of queries: as given, else by their names as in training, else the last and
    none.
    """
    from rankwise.problems.inference import LABEL_NAMES, QUERY_NAMES, find_by_name

    names = raw.columns if raw.named else []
    if query is None:
        query = find_by_name([name for name in names if name != label], QUERY_NAMES)
    if label is None:
        free = [name for name in raw.columns if name != query]
        label = find_by_name([name for name in names if name != query], LABEL_NAMES) or free[-1]
    return label, query


def _show_findings(findings: list[Finding]) -> int:
    """Print findings, the worst first, and the verdict; return 1 if there are errors."""
    findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    texts = ("\n-> ".join(filter(None, (f"{each.part}: {each.what}", each.advice))) for each in findings)
    rows = [(each.severity, text) for each, text in zip(findings, texts, strict=True)]
    print_table("Findings", ("", "what, and what to do"), rows, numbers=False)
    counts = {severity: sum(finding.severity == severity for finding in findings) for severity in SEVERITIES}
    record(usable=not counts["error"], findings=findings)
    verdict = "not usable as it is" if counts["error"] else "usable"
    print_paragraph(f"{verdict}: {counts['error']} errors, {counts['warning']} warnings, {counts['note']} notes")
    return 1 if counts["error"] else 0


def _short_names(files: Sequence[Path]) -> list[str]:
    """Return the names of the files, with as many folders as it takes to tell them apart."""
    if len({file.name for file in files}) == len(files):
        return [file.name for file in files]
    if len({file.resolve() for file in files}) < len(files):
        raise typer.BadParameter("expected different files, got one twice", param_hint="files")
    common = os.path.commonpath([file.resolve() for file in files])
    return [os.path.relpath(file.resolve(), common) for file in files]


@contextmanager
def _wrong_columns_are_wrong_arguments() -> Iterator[None]:
    """Return the argument that an error of a reader begins with, if any, else the file."""
    try:
        yield
    except ValueError as problem:
        argument, _, message = str(problem).partition(": ")
        if argument in ("label", "query", "drop", "positive"):
            raise typer.BadParameter(message, param_hint=f"--{argument}") from None
        raise
