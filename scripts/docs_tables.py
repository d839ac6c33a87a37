"""Write what pages include: tables of losses, metrics and samplers from the registry, and the examples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from rankwise.losses import LOSSES
from rankwise.metrics import METRICS
from rankwise.registry import LossRecord, MetricRecord, SamplerRecord
from rankwise.samplers import SAMPLERS

ROOT = Path(__file__).resolve().parents[1]
SNIPPETS = ROOT / "build" / "docs"


def main() -> None:
    SNIPPETS.mkdir(parents=True, exist_ok=True)
    losses = ((_names(r), r.summary, r.role, _labels(r), r.paper) for r in LOSSES)
    write("losses", ("name", "what it trains for", "role", "labels", "paper"), losses)
    baselines = (
        (_names(r), r.summary, r.inputs, r.state or "nothing", r.advice, r.paper)
        for r in LOSSES
        if r.role == "baseline"
    )
    write("baselines", ("name", "what it does", "called with", "remembers", "when to take it", "paper"), baselines)
    metrics = ((_names(r, "@k" if r.takes_k else ""), r.summary, r.labels, _definition(r)) for r in METRICS)
    write("metrics", ("name", "what it measures", "labels", "definition"), metrics)
    write("samplers", ("name", "what a batch holds"), ((_names(r), r.summary) for r in SAMPLERS))
    for example in (ROOT / "examples").glob("*.py"):
        code = example.read_text(encoding="utf-8")
        (SNIPPETS / f"example-{example.stem}.md").write_text(f"```python\n{code}```\n", encoding="utf-8")


def write(name: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    (SNIPPETS / f"{name}.md").write_text(text, encoding="utf-8")


def _labels(record: LossRecord) -> str:
    return record.labels if record.inputs == "scores" else "classes (called with embeddings)"


def _names(record: LossRecord | MetricRecord | SamplerRecord, suffix: str = "") -> str:
    names = (record.name, *record.aliases)
    return ", ".join(f"`{name}{suffix}`" for name in names)


def _definition(record: MetricRecord) -> str:
    # The braces mark options that are filled in where a metric was made with them.
    return record.definition.replace("{", "").replace("}", "")


if __name__ == "__main__":
    main()
