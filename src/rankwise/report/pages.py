"""The report of a run, from its folder and its data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankwise.problems.importance import Importance
from rankwise.problems.inspection import Inspection
from rankwise.problems.load import dump_problem
from rankwise.problems.problem import Problem
from rankwise.report import Listing, Report
from rankwise.report.run import RunResult, run_report
from rankwise.training import History

__all__ = ["page_of"]


def page_of(
    name: str,
    problem: Problem[Any, Any],
    record: Mapping[str, Any],
    inspection: Inspection,
    history: History,
    *,
    steps: int,
    part: str,
    importance: Importance | None = None,
) -> Report:
    """Return the report of a run.

    Args:
        name: of the run.
        problem, record: what it was made from.
        inspection: of its best weights on `part` of the data.
        history: of its training.
        steps: how many the run is to take in all.
        part: "test", or "validation" for a run that is not over.
        importance: of the columns, if it was measured.
    """
    result = RunResult(
        name,
        part,
        next(iter(inspection.evaluation.means)),
        problem.loss.name,
        inspection,
        history,
        steps,
        _facts(problem, record, history),
        (Listing("The complete recipe", dump_problem(problem)),),
        record.get("refit", {}) if problem.refit and not record.get("cross_validated") else None,
        importance,
        problem.evaluation.weights,
        record.get("settings", {}),
    )
    return run_report(result)


def _facts(problem: Problem[Any, Any], record: Mapping[str, Any], history: History) -> tuple[tuple[str, str], ...]:
    content = problem.model_dump(mode="json", exclude_none=True)
    parts = [
        (key.replace("_", " ").capitalize(), _in_words(_that_matter(content[key])))
        for key in ("loss", "model", "batches", "warm_up", "memory", "augmentation", "optimiser", "schedule")
        if key in content
    ]
    files = [f"{path} (SHA-256 {digest[:12]})" for path, digest in record["data"].items()]
    versions = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
    return (
        ("Task", f"{problem.kind}: {problem.summary}"),
        ("Data", "; ".join(files)),
        *parts,
        ("Seed", str(record["seed"])),
        ("Training", f"{len(history.losses):,} steps, {history.seconds:.1f} s without evaluation"),
        *((("Chosen on validation", _in_words(record["settings"])),) if _is_short(record.get("settings")) else ()),
        *((("Baselines", _in_words(record["baselines"])),) if record.get("baselines") else ()),
        ("Device", _in_words(content["device"])),
        ("Versions", versions),
        ("Machine", str(record["machine"])),
    )


def _is_short(settings: Mapping[str, Any] | None) -> bool:
    """Return whether there are settings that no section shows."""
    return bool(settings) and "alone" not in (settings or {})


def _that_matter(setting: object) -> object:
    """Return a recipe without the options of other optimisers and schedules than the one named."""
    foreign = {
        "adamw": ("momentum", "nesterov"),
        "sgd": ("betas",),
        "cosine": ("at", "factor"),
        "steps": ("warmup",),
        "constant": ("warmup", "at", "factor"),
    }
    if not isinstance(setting, Mapping):
        return setting
    return {key: value for key, value in setting.items() if key not in foreign.get(setting.get("name", ""), ())}


def _in_words(value: object) -> str:
    """Format settings in one line: the name first, then the others."""
    if isinstance(value, Mapping):
        name = f"{value['name']}: " if "name" in value else ""
        others = ", ".join(
            f"{key.replace('_', ' ')} {_in_words(each)}" for key, each in value.items() if key != "name" and each != []
        )
        return f"{name}{others}" if others else name.removesuffix(": ")
    if isinstance(value, list):
        return ", ".join(f"({_in_words(each)})" if isinstance(each, Mapping) else _in_words(each) for each in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
