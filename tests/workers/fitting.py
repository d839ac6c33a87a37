"""Small problems on bundled data, and trainings with options given one by one."""

from __future__ import annotations

from typing import Any

from rankwise.data import TableSchema, load_digit_retrieval, load_eights
from rankwise.problems import Tabular
from rankwise.training import fit

ROWS = {"hidden": (64,), "scaling": "none"}


def eights(
    loss: Any = "soprc", *, size: int = 64, positives: int | None = 8, kind: type = Tabular, **options: Any
) -> Any:
    """A tabular problem for `load_eights`: one network."""
    given = {
        "model": {**ROWS, "ensemble": None},
        "batches": {"size": size, "positives": positives},
        "metrics": ("ap",),
        **options,
    }
    return kind(loss=loss, **given)


def digits(loss: Any = "soprc", **options: Any) -> Any:
    """A retrieval problem for `load_digit_retrieval`."""
    from rankwise.problems import Retrieval

    batches = {"classes": 10, "samples_per_class": 6}
    return Retrieval(loss=loss, model={**ROWS, "dimensions": 32}, batches=batches, **options)


EIGHTS, DIGITS = load_eights(seed=0), load_digit_retrieval(seed=0)


def fit_with(
    problem: Any,
    split: Any,
    *,
    steps: int = 30,
    every: int | None = 10,
    rows: int | None = None,
    patience: int | None = None,
    weights: str = "last",
    optimiser: Any = None,
    schedule: Any = None,
    save_every: int | None = None,
    **rest: Any,
) -> Any:
    """`fit` with the options of the problem replaced by these; `gradient`, `average` and `device` may be among them."""
    groups = {name: rest.pop(name) for name in ("gradient", "average", "device") if name in rest}
    changed = problem.changed(
        budget={"steps": steps},
        evaluation={"every": every, "rows": rows, "patience": patience, "weights": weights},
        optimiser=optimiser or {"learning_rate": 3e-3},
        schedule=schedule or {"name": "cosine"},
        checkpoints={"every": save_every, "keep": 100},
        **groups,
    )
    schema = rest.pop("schema", None) or TableSchema.of(split.train)
    return fit(changed, schema, split, **rest)
