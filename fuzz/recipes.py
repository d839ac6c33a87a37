"""Recipes, `key=value` changes and records of runs."""

from __future__ import annotations

from target import fuzz, instrumented

with instrumented():
    from rankwise.recipes.load import library, load_recipe, make_recipe
    from rankwise.recipes.record import read_record

SEEDS = [
    *(text.encode() for text in library().values()),
    b"task: tabular\ndata: {train: rows.csv}\nbudget: {steps: 2}\n",
    b"a: &a [1, 2]\nb: *a\n",
    b"loss.prior=0.05",
    b"loss={name: soprc, add: [{name: semi-variance}]}",
    b'{"recipe": {"task": "tabular"}, "seed": 0, "data": {"rows.csv": "00"}}',
]


def change(path):
    """A change of a recipe that is in order."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return make_recipe({"task": "tabular", "data": {"train": "rows.csv"}}, [text])


READERS = {"recipe.yaml": load_recipe, "change": change, "record.json": read_record}

if __name__ == "__main__":
    fuzz(READERS, SEEDS, say_file=False)
