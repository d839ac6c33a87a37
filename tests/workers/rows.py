"""A small imbalanced table, written to a file: what a user of the program brings."""

from __future__ import annotations

import numpy as np


def write_table(path, rows=400, seed=0):
    random = np.random.default_rng(seed)
    labels = (random.random(rows) < 0.12).astype(int)
    features = random.normal(size=(rows, 5)) + labels[:, None] * np.array([1.5, 0.8, 0, 0, 0.4])
    lines = ["a,b,c,d,e,ill"]
    lines += [",".join(f"{x:.6f}" for x in row) + f",{label}" for row, label in zip(features, labels, strict=True)]
    path.write_text("\n".join(lines) + "\n")
    return path


RECIPE = """
task: tabular
data: {train: rows.csv}
model: {hidden: [16]}
loss: {name: soprc, add: [{name: semi-variance}]}
batches: {size: 32, positives: 4}
optimiser: {learning_rate: 0.01, weight_decay: 0.01}
budget: {steps: 60}
evaluation: {every: 20}
checkpoints: {every: 7}
"""


def write_recipe(folder):
    write_table(folder / "rows.csv")
    (folder / "rows.yaml").write_text(RECIPE)
