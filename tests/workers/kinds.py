"""A small run of every kind of task, on files whose names and classes are as hostile as a file system allows."""

from __future__ import annotations

import json

import numpy as np
import torch

from workers.boxed_pictures import write_coco
from workers.pictures import make_pictures
from workers.rows import write_queries, write_table, write_users
from workers.texts import make_texts

# What a browser would take for a program, an end of a tag, a style, an address, or a change of direction.
HOSTILE = (
    "<script>alert(1)<", "\"'><img src=x onerror=alert(1)>", "<", "javascript:alert(1)", "\u202ertl\u2066mark",
    "{{ 7 * 7 }}", "&lt;b&gt;", "]]><style>*{display:none}<",
)  # fmt: skip

SHORT = {"budget": {"steps": 12}, "evaluation": {"every": 4}, "optimiser": {"learning_rate": 0.01}}

RECIPES = {
    "tabular": {"data": {"train": "rows.csv"}, "batches": {"size": 32, "positives": 4}},
    "ltr": {
        "data": {"train": "queries.txt"},
        "loss": {"name": "k-song", "k": 3},
        "batches": {"queries": 8, "relevant": 3, "irrelevant": 5},
    },
    "text-search": {
        "data": {"corpus": "documents.csv", "train": "judgements.csv"},
        "model": {"dimensions": 12},
        "batches": {"queries": 8},
    },
    "pap": {"k": 3, "data": {"train": "users.csv", "label": "liked", "query": "user"}, "batches": {"users": 10}},
    "retrieval": {
        "data": {"train": "classes.csv"},
        "loss": {"name": "stable-ap"},
        "batches": {"classes": 6, "samples_per_class": 4},
    },
    "recsys": {"data": {"train": "clicks.csv", "leave_one_out": "random"}, "batches": {"users": 8}},
    "multilabel": {"data": {"train": "labels.txt"}, "model": {"hidden": []}, "batches": {"size": 16}},
    "image-retrieval": {
        "data": {"train": "photos", "size": 16, "channels": 1, "held_out": "images", "validation": 0.2, "test": 0.3},
        "model": {"dimensions": 16},
        "memory": {"size": 40, "after": 0.5},
        "batches": {"classes": 5, "samples_per_class": 3},
    },
    "longtail": {
        "data": {"train": "photos", "size": 16, "channels": 1, "imbalance": 3},
        "batches": {"size": 16},
    },
    "detection": {
        "data": {"train": "scenes/boxes.json", "height": 48, "width": 64},
        "model": {"channels": 16, "scale": 2},
        "loss": {"name": "stable-ap", "rho": 0.03},
        "batches": {"size": 6},
    },
}


def write_kinds(folder):
    """The recipes, as KIND.yaml, and their data."""
    write_table(folder / "rows.csv")
    write_queries(folder / "queries.txt")
    write_users(folder / "users.csv")
    _write_classes(folder / "classes.csv")
    _write_clicks(folder / "clicks.csv")
    _write_texts(folder)
    _write_labels(folder / "labels.txt")
    _write_photos(folder / "photos")
    _write_scenes(folder / "scenes")
    for kind, recipe in RECIPES.items():
        (folder / f"{kind}.yaml").write_text(json.dumps({"task": kind, **SHORT, **recipe}))


def _write_classes(path, classes=6, each=30):
    random = np.random.default_rng(0)
    lines = ["a,b,c,kind"]
    for label in range(classes):
        for row in random.normal(size=(each, 3)) + 2 * random.normal(size=3):
            lines.append(",".join(f"{x:.4f}" for x in row) + f",{label}")
    path.write_text("\n".join(lines) + "\n")


def _write_clicks(path, users=40, items=30):
    random = np.random.default_rng(0)
    names = [
        f"{HOSTILE[number % len(HOSTILE)]} {number}".replace('"', "'").replace(",", " ") for number in range(items)
    ]
    lines = ["user,item"]
    for user in range(users):
        lines += [f"<i>u{user},{names[item]}" for item in random.choice(items, 8, replace=False)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _write_texts(folder):
    documents, queries, pairs = make_texts()
    names = {
        name: f"{HOSTILE[number % len(HOSTILE)]} {number}".replace('"', "'").replace(",", " ")
        for number, name in enumerate(documents)
    }
    lines = ["id,text", *(f"{names[name]},{text}" for name, text in documents.items())]
    (folder / "documents.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    lines = ["query,document,grade"]
    lines += [f"<i>{queries[query]},{names[document]},{grade}" for query, document, grade in pairs]
    (folder / "judgements.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _write_labels(path, rows=120, features=20, labels=12):
    random = np.random.default_rng(0)
    lines = [f"{rows} {features} {labels}"]
    for _ in range(rows):
        own = random.choice(labels, 2, replace=False)
        words = sorted({int(label) for label in own} | set(random.choice(features, 4).tolist()))
        lines.append(",".join(map(str, sorted(own))) + " " + " ".join(f"{word}:1" for word in words))
    path.write_text("\n".join(lines) + "\n")


def _write_photos(folder):
    from PIL import Image

    images, labels = make_pictures(classes=len(HOSTILE), each=16, size=20)
    noise = torch.randint(0, 256, images.shape, generator=torch.Generator().manual_seed(1))
    images = ((images + 3 * noise) // 4).to(torch.uint8)  # faint, so that reports have mistakes to show
    for number, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
        # A slash cannot be part of a name; everything else can.
        place = folder / HOSTILE[label].replace("/", "")
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[0].numpy()).save(place / f"{number:03d}<b onclick='x'>.png")


def _write_scenes(folder):
    write_coco(folder, count=40)
    path = folder / "boxes.json"
    known = json.loads(path.read_text())
    for category, name in zip(known["categories"], HOSTILE, strict=False):
        category["name"] = name
    path.write_text(json.dumps(known))
