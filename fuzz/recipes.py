"""Recipes, `key=value` changes and records of runs."""

from __future__ import annotations

from target import fuzz, instrumented

with instrumented():
    from rankwise.problems import load_problem, make_problem
    from rankwise.problems.load import library
    from rankwise.runs import RunFolder

SEEDS = [
    *(text.encode() for text in library().values()),
    b"task: tabular\ndata: {train: rows.csv}\nbudget: {steps: 2}\n",
    b"a: &a [1, 2]\nb: *a\n",
    b"loss.prior=0.05",
    b"loss={name: soprc, add: [{name: semi-variance}]}",
    b'{"format": 2, "recipe": {"task": "tabular"}, "seed": 0, "data": {"rows.csv": "00"}}',
]


def change(path):
    """A change of a recipe that is in order."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return make_problem({"task": "tabular", "data": {"train": "rows.csv"}}, [text])


def record(path):
    """The record of a run."""
    return RunFolder(path.parent).read_record()


READERS = {"recipe.yaml": load_problem, "change": change, "run.json": record}

if __name__ == "__main__":
    fuzz(READERS, SEEDS, say_file=False)
