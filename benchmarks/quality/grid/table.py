"""The results as Markdown: figures of the chosen settings, overfitting, and paired differences over lists."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from benchmarks.quality.grid.plan import Key, Plan
from benchmarks.quality.grid.results import Results
from rankwise.metrics import compare

__all__ = ["write_table"]


def write_table(plan: Plan, results: Results) -> str:
    """The whole page."""
    names = (*plan.metrics, "validation", "train")
    lines = [
        plan.about,
        "",
        "| scorer | loss | rate, decay | tried | seeds | " + " | ".join(names) + " |",
        "|---|---|--:|--:|--:|" + "--:|" * len(names),
    ]
    chosen: dict[tuple[str, str], list[Key]] = {}
    missing: list[str] = []
    for row in plan.rows:
        tried = results.tried(*row)
        keys = results.final(tried[0], plan.seeds) if tried else []
        if not keys:
            missing.append(f"{row[0]} with {row[1]}")
            continue
        chosen[row] = keys
        means = {name: _mean([results[key].get(name) for key in keys]) for name in (*plan.metrics, "train")}
        means["validation"] = f"{results[tried[0]]['validation']:.4f}"
        setting = f"{keys[0].rate:g}, {keys[0].decay:g}" if keys[0].rate else f"{keys[0].decay:g}"
        figures = " | ".join(means[name] for name in names)
        lines.append(f"| {row[0]} | {row[1]} | {setting} | {len(tried)} | {len(keys)} | {figures} |")
    lines += [
        "",
        f"validation and train: {plan.metrics[0]} there, the first of the run that was chosen. tried: settings run, of "
        "which the best on validation was taken." + (f" Not run: {'; '.join(missing)}." if missing else ""),
    ]
    own = {method.name for method in plan.methods if method.ours}
    ours = [row for row in chosen if row[1] in own]
    if ours:
        best = max(ours, key=lambda row: results[results.tried(*row)[0]]["validation"])
        lines += ["", *_differences(plan, results, chosen, best)]
    return "\n".join(lines) + "\n"


def _mean(values: Sequence[float | None]) -> str:
    """A dash if a run has no such figure, because it was not asked for then."""
    known = [value for value in values if value is not None]
    return f"{fmean(known):.4f}" if len(known) == len(values) else "-"


def _differences(
    plan: Plan, results: Results, chosen: dict[tuple[str, str], list[Key]], best: tuple[str, str]
) -> list[str]:
    own = results.per_list(chosen[best])
    lines = [
        f"{best[1]} with {best[0]} (of ours the best on validation) minus each other: test "
        f"{plan.metrics[0]} of the same lists, each the mean over seeds, with 95 % bootstrap intervals and a paired "
        "permutation test:",
        "",
        "| against | difference | 95 % interval | p | lists better / worse |",
        "|---|--:|--:|--:|--:|",
    ]
    for row, keys in chosen.items():
        other = results.per_list(keys)
        if row == best or own is None or other is None:
            continue
        found = compare(own, other)
        low, high = found.interval
        lines.append(
            f"| {row[0]}, {row[1]} | {found.difference:+.4f} | {low:+.4f} to {high:+.4f} | {found.p_value:.2g} | "
            f"{found.wins} / {found.losses} |"
        )
    return lines
