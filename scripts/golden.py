"""Golden runs: show that a change of the code leaves what is trained as it was.

    python scripts/golden.py run OUT         train every kind of problem on small made-up data, in OUT
    python scripts/golden.py compare A B     compare two such folders, B with A

`run` trains with the rankwise that Python imports: run it once per commit (PYTHONPATH chooses the checkout), on the
same machine, and compare the two folders. Data and recipes depend on this file only, so take the same one for both.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import time
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch
from golden_data import write_data
from torch import Tensor

Values = Mapping[Any, Any]

SCORE_COLUMNS = ("score", "label", "query")

ROWS = {
    "task": "tabular",
    "data": {"train": "data/rows.csv"},
    "model": {"hidden": [16]},
    "batches": {"size": 32, "positives": 4},
}
QUERIES = {"task": "ltr", "data": {"train": "data/queries.txt"}, "model": {"hidden": [16]}, "batches": {"queries": 8}}
CLICKS = {"task": "recsys", "data": {"train": "data/clicks.csv", "leave_one_out": "time", "time": "time"}}
IMAGES = {"train": "data/images.npz", "size": 16, "channels": 1}
SCENES = {
    "task": "detection",
    "data": {"train": "data/scenes/boxes.json", "height": 48, "width": 64},
    "model": {"channels": 16, "scale": 2},
    "batches": {"size": 4},
    "optimiser": {"learning_rate": 0.003},
    "budget": {"steps": 40},
}
COMMON = {"budget": {"steps": 30}, "evaluation": {"every": 10}, "optimiser": {"learning_rate": 0.01}}

RECIPES: dict[str, dict[str, Any]] = {
    "tabular": {**ROWS, "loss": {"name": "soprc", "prior": "data", "add": [{"name": "semi-variance"}]}},
    "tabular-text": {
        **ROWS,
        "data": {"train": "data/words.csv", "label": "diagnosis", "drop": ["patient"], "missing": "median"},
    },
    "tabular-files": {
        **ROWS,
        "data": {"train": "data/rows.csv", "validation": "data/more.csv", "test": "data/other.csv", "label": "ill"},
        "model": {"hidden": [16], "scaling": "log"},
    },
    "tabular-previous": {**ROWS, "loss": {"name": "stable-ap"}, "gradient": {"previous_weights": True, "clip": 1.0}},
    "tabular-average": {**ROWS, "average": {"after": 0.3}},
    "tabular-accumulate": {**ROWS, "gradient": {"accumulate": 2}},
    "tabular-chunks": {**ROWS, "gradient": {"rows_at_once": 10}},
    "tabular-epochs": {**ROWS, "budget": {"epochs": 2.5}, "schedule": {"name": "steps", "at": [0.5]}},
    "tabular-patience": {
        **ROWS,
        "evaluation": {"every": 2, "patience": 2},
        "optimiser": {"name": "sgd", "learning_rate": 0.05, "weight_decay": 0.01},
        "schedule": {"name": "cosine", "warmup": 5},
    },
    "tabular-seeds": {**ROWS, "seeds": [0, 1]},
    "ltr-letor": QUERIES,
    "ltr-files": {
        **QUERIES,
        "data": {"train": "data/queries.txt", "validation": "data/short.txt", "test": "data/long.txt"},
        "loss": {"name": "k-song", "k": 3},
    },
    "ltr-table": {
        **QUERIES,
        "data": {"train": "data/documents.csv", "label": "grade", "query": "query", "missing": "median"},
        "model": {"name": "context-aware"},
        "warm_up": {"steps": 8, "reset_last_layer": True},
    },
    "ltr-sampled": {
        **QUERIES,
        "model": {"hidden": [16], "dropout": 0.2, "scaling": "none"},
        "warm_up": {"steps": 8, "reset_last_layer": True},
        "batches": {"queries": 8, "relevant": 3, "irrelevant": 5},
    },
    "pap": {
        "task": "pap",
        "k": 3,
        "data": {"train": "data/users.csv", "label": "liked", "query": "user"},
        "batches": {"users": 10},
    },
    "retrieval": {
        "task": "retrieval",
        "data": {"train": "data/kinds.csv"},
        "model": {"hidden": [16], "dimensions": 8},
        "batches": {"classes": 6, "samples_per_class": 4},
    },
    "multilabel-rows": {
        "task": "multilabel",
        "data": {"train": "data/labels.txt"},
        "model": {"hidden": [16]},
        "batches": {"size": 16},
    },
    "multilabel-columns": {
        "task": "multilabel",
        "data": {"train": "data/labels.arff"},
        "lists": "columns",
        "model": {"hidden": []},
        "loss": {"name": "stable-ap"},
        "batches": {"size": 16},
        "metrics": ["ap"],
    },
    "recsys-blend": {**CLICKS, "model": {"dimensions": 8}, "batches": {"users": 8}},
    "recsys-item-item": {**CLICKS, "model": {"name": "item-item", "dimensions": 8}, "batches": {"users": 8}},
    "recsys-ease": {
        **CLICKS,
        "data": {"train": "data/clicks.csv", "leave_one_out": "random"},
        "model": {"name": "item-item", "dimensions": 8, "ease": 5.0},
        "batches": {"users": 8},
    },
    "recsys-sampled": {
        "task": "recsys",
        "data": {"train": "data/chosen.txt", "test": "data/chosen-later.txt", "validation": 0.2},
        "model": {"name": "matrix-factorisation", "dimensions": 8},
        "warm_up": {"steps": 5},
        "batches": {"users": 8, "relevant": 2, "irrelevant": 6},
    },
    "recsys-neumf": {
        **CLICKS,
        "model": {"name": "neumf", "dimensions": 8, "hidden": [16, 8]},
        "batches": {"users": 8},
        "optimiser": {"learning_rate": 0.03},
        "budget": {"steps": 60},
    },
    "image-retrieval-memory": {
        "task": "image-retrieval",
        "data": {**IMAGES, "validation": 0.2, "test": 0.3},
        "model": {"dimensions": 16, "mixup": True},
        "memory": {"size": 60, "after": 0.5},
        "batches": {"classes": 4, "samples_per_class": 3},
    },
    "image-retrieval-gallery": {
        "task": "image-retrieval",
        "data": {"train": "data/photos.csv", "size": 16, "resize": 18, "channels": 3},
        "model": {"dimensions": 16},
        "augmentation": "crop-flip",
        "loss": {"name": "stable-ap"},
        "batches": {"classes": 4, "samples_per_class": 3},
    },
    "longtail": {
        "task": "longtail",
        "data": {**IMAGES, "imbalance": 3},
        "loss": {"name": "soprc", "prior": "data"},
        "batches": {"size": 16},
    },
    "text-search": {
        "task": "text-search",
        "data": {"corpus": "data/texts/corpus.csv", "train": "data/texts/judgements.csv"},
        "model": {"dimensions": 8},
        "batches": {"queries": 8},
    },
    "detection-retinanet": {**SCENES, "loss": {"name": "stable-ap", "rho": 0.03}},
    "detection-alrp": {**SCENES, "loss": {"name": "alrp"}, "lists": "all"},
    "detection-faster-rcnn": {
        **SCENES,
        "data": {"train": "data/voc", "height": 48, "width": 64, "cache": True},
        "model": {"kind": "faster-rcnn", "channels": 16, "scale": 2, "sampled": 64},
    },
}


def run(out: Path, only: list[str]) -> int:
    """Train every recipe in `out`; return how many failed."""
    import rankwise
    from rankwise.cli import main

    print(f"training with {rankwise.__path__[0]}")
    write_data(out / "data")
    os.chdir(out)
    failed = 0
    for name in only or RECIPES:
        # JSON is YAML. Paths are relative, so that two folders hold the same recipes.
        Path(f"{name}.yaml").write_text(json.dumps({**COMMON, **RECIPES[name]}, indent=2), encoding="utf-8")
        began = time.monotonic()
        with open(f"{name}.log", "w", encoding="utf-8") as log, redirect_stdout(log), redirect_stderr(log):
            code = main(["train", f"{name}.yaml", "--out", f"runs/{name}"])
        failed += code != 0
        ending = f"  failed ({code}), see {out / name}.log" if code else ""
        print(f"{name:24} {time.monotonic() - began:5.1f} s{ending}", flush=True)
    return failed


def compare(before: Path, after: Path) -> int:
    """Print for every run what differs between two folders; return how many runs differ."""
    runs = {each: {path.parent.relative_to(each) for path in each.rglob("test.json")} for each in (before, after)}
    # A recipe that failed in both folders is a difference, too.
    expected = {Path("runs", path.stem) for each in runs for path in each.glob("*.yaml")}
    found = set.union(*runs.values())
    names = sorted(found | {name for name in expected if not any(each.is_relative_to(name) for each in found)})
    if not names:
        raise SystemExit(f"{before}, {after}: expected golden runs, got none")
    differ = 0
    for name in names:
        differences, notes = [f"no finished run in {each}" for each, found in runs.items() if name not in found], []
        if not differences:
            try:
                differences, notes = compare_runs(before / name, after / name)
            except (OSError, KeyError, ValueError) as problem:
                differences = [f"cannot be compared: {type(problem).__name__} {problem}"]
        differ += bool(differences)
        print(f"{name!s:32} {'DIFFERS' if differences else 'equal'}")
        for line in [*differences, *(f"note: {note}" for note in notes)]:
            print(f"    {line}")
    print(f"{len(names)} runs, {differ} differ")
    return differ


def compare_runs(before: Path, after: Path) -> tuple[list[str], list[str]]:
    """Return what differs between two runs, and what a reader may want to know besides."""
    left, right = read_results(before), read_results(after)
    differences = [
        f"{what}: {said}"
        for what in {**left, **right}
        if (said := compare_values(left.get(what, {}), right.get(what, {}))) is not None
    ]
    notes = []
    for which in ("best", "last"):
        weights, more = compare_weights(read_weights(before, which), read_weights(after, which))
        differences += [f"{which} weights: {said}" for said in weights]
        notes += [f"{which} weights: {said}" for said in more]
    return differences, notes


def read_results(folder: Path) -> dict[str, Values]:
    """Return the results of a run by kind, each a mapping to numbers or words."""
    test = json.loads((folder / "test.json").read_text(encoding="utf-8"))
    history = _read_checkpoint(folder, "last")["history"]
    bounds = {(name, i): bound for name, pair in test["intervals"].items() for i, bound in enumerate(pair)}
    evaluations = zip(history["steps"], history["metrics"], strict=True)
    results: dict[str, Values] = {
        "test": {**test["means"], **bounds},
        "test per query": {
            (row["query"], name): value for row in _read_csv(folder / "test-queries.csv") for name, value in row.items()
        },
        "losses": {"best step": history["best_step"], **dict(enumerate(history["losses"].tolist(), 1))},
        "validation": {(step, name): value for step, metrics in evaluations for name, value in metrics.items()},
    }
    if (folder / "test-scores.csv").is_file():
        results["test scores"] = {
            (number, name): row[name]
            for number, row in enumerate(_read_csv(folder / "test-scores.csv"))
            for name in SCORE_COLUMNS
            if name in row
        }
    return results


def read_weights(folder: Path, which: str) -> dict[str, Tensor]:
    """Return the "best" or the "last" weights of a run, by name."""
    weights: dict[str, Tensor] = _read_checkpoint(folder, which)["model"]
    return weights


def compare_values(before: Values, after: Values) -> str | None:
    """Describe how two mappings differ; None if they are equal. NaN equals NaN."""
    said = []
    if absent := [key for key in before if key not in after]:
        said.append(f"{len(absent)} of {len(before)} values are gone, such as {absent[0]}")
    if added := [key for key in after if key not in before]:
        said.append(f"{len(added)} values are new, such as {added[0]}")
    both = [(key, _number(before[key]), _number(after[key])) for key in before if key in after]
    different = [(key, x, y) for key, x, y in both if x != y and not (x != x and y != y)]
    if different:
        key, x, y = max(different, key=lambda each: _distance(*each[1:]))
        said.append(f"{len(different)} of {len(both)} values differ, most {key}: {x} became {y}")
    return ", ".join(said) or None


def compare_weights(before: dict[str, Tensor], after: dict[str, Tensor]) -> tuple[list[str], list[str]]:
    """Compare two sets of tensors by shape and bits, whatever their names.

    Returns:
        What differs: tensors of `before` without an equal in `after`, each beside the nearest of its shape that is
        left. And notes: tensors that `after` holds besides, such as new buffers.
    """
    left, right = dict(before), dict(after)
    equals: dict[tuple[Any, ...], list[str]] = {}
    for name, tensor in after.items():
        equals.setdefault(_bits(tensor), []).append(name)
    for name, tensor in before.items():
        if names := equals.get(_bits(tensor)):
            del left[name], right[names.pop()]
    differences = []
    for name, tensor in left.items():
        near = {other: _largest(tensor, each) for other, each in right.items() if each.shape == tensor.shape}
        if not near:
            differences.append(f"{name} {tuple(tensor.shape)} is gone")
            continue
        other = min(near, key=lambda each: near[each])
        kind = "" if right[other].dtype == tensor.dtype else f", {tensor.dtype} became {right[other].dtype}"
        differences.append(f"{name} {tuple(tensor.shape)} differs from {other} by at most {near[other]:.3g}{kind}")
        del right[other]
    notes = [f"{name} {tuple(tensor.shape)} is new" for name, tensor in right.items()]
    return differences, notes


def _read_checkpoint(folder: Path, which: str) -> dict[str, Any]:
    kept = folder / "checkpoints"
    path = kept / "best.pt" if which == "best" else max(kept.glob("step-*.pt"))
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def _bits(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tuple(tensor.shape), tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()


def _largest(left: Tensor, right: Tensor) -> float:
    return (left.double() - right.double()).abs().amax().item() if left.numel() else 0.0


def _number(value: object) -> object:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return value


def _distance(left: object, right: object) -> float:
    if not (isinstance(left, float) and isinstance(right, float)) or left != left or right != right:
        return float("inf")
    return abs(left - right)


def _read_csv(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def main(arguments: list[str] | None = None) -> int:
    """Run a command; return 0 if no run failed or differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="train every recipe")
    running.add_argument("out", type=Path, help="a new folder")
    running.add_argument("--only", nargs="+", choices=list(RECIPES), default=[], metavar="NAME", help="some recipes")
    comparing = commands.add_parser("compare", help="compare two folders of runs")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    chosen = parser.parse_args(arguments)
    if chosen.command == "run":
        return int(run(chosen.out.resolve(), chosen.only) > 0)
    return int(compare(chosen.before, chosen.after) > 0)


if __name__ == "__main__":
    sys.exit(main())
