"""Small files as a user of the program brings them: an imbalanced table, a LETOR file, and recipes for them."""

from __future__ import annotations

import numpy as np

TABULAR = """
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

LTR = """
task: ltr
data: {train: queries.txt}
model: {hidden: [8]}
loss: {name: song}
warm_up: {steps: 10, reset_last_layer: true}
batches: {queries: 8, relevant: 3, irrelevant: 5}
optimiser: {learning_rate: 0.01}
budget: {steps: 30}
evaluation: {every: 15}
checkpoints: {every: 4}
"""

PAP = """
task: pap
k: 3
data: {train: users.csv, label: liked, query: user}
batches: {users: 10}
optimiser: {name: sgd, learning_rate: 0.1}
budget: {steps: 30}
evaluation: {every: 15}
checkpoints: {every: 4}
"""


def write_table(path, rows=400, seed=0):
    random = np.random.default_rng(seed)
    labels = (random.random(rows) < 0.12).astype(int)
    features = random.normal(size=(rows, 5)) + labels[:, None] * np.array([1.5, 0.8, 0, 0, 0.4])
    lines = ["a,b,c,d,e,ill"]
    lines += [",".join(f"{x:.6f}" for x in row) + f",{label}" for row, label in zip(features, labels, strict=True)]
    path.write_text("\n".join(lines) + "\n")
    return path


def write_queries(path, queries=50, documents=14, seed=0):
    random = np.random.default_rng(seed)
    lines = []
    for query in range(queries):
        features = random.normal(size=(documents, 4))
        grades = np.clip(np.round(features[:, 0] + 0.5 * features[:, 1] + 0.5 * random.normal(size=documents)), 0, 3)
        for grade, row in zip(grades.astype(int), features, strict=True):
            lines.append(f"{grade} qid:{query + 100} " + " ".join(f"{i}:{x:.5f}" for i, x in enumerate(row, 1)))
    path.write_text("\n".join(lines) + "\n")


def write_users(path, users=40, items=16, seed=0):
    random = np.random.default_rng(seed)
    lines = ["user,x,y,z,liked"]
    for user in range(users):
        features = random.normal(size=(items, 3))
        liked = (features[:, 0] + 0.7 * random.normal(size=items) > 0.6).astype(int)
        lines += [
            f"u{user}," + ",".join(f"{x:.5f}" for x in row) + f",{y}" for row, y in zip(features, liked, strict=True)
        ]
    path.write_text("\n".join(lines) + "\n")


def write_recipe(folder):
    write_table(folder / "rows.csv")
    (folder / "rows.yaml").write_text(TABULAR)


def write_all(folder):
    write_recipe(folder)
    write_queries(folder / "queries.txt")
    (folder / "queries.yaml").write_text(LTR)
    write_users(folder / "users.csv")
    (folder / "users.yaml").write_text(PAP)
