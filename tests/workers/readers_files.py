"""The files that a page supposes its reader to have, made from bundled data; keys are names of pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars
import torch
from sklearn.datasets import load_breast_cancer, load_digits

from workers.boxed_pictures import write_voc
from workers.rows import write_queries


def write_cells(folder: Path) -> None:
    """Cells of breast cancer: 30 numbers each, and whether they are malignant."""
    bunch = load_breast_cancer()
    names = [name.replace(" ", "_") for name in bunch.feature_names]
    malignant = ["malignant" if label == 0 else "benign" for label in bunch.target]
    table = polars.DataFrame(bunch.data, schema=names).with_columns(polars.Series("cancer", malignant))
    table[:400].write_csv(folder / "cells.csv")
    table[400:].write_csv(folder / "new.csv")


def write_train_and_test(folder: Path) -> None:
    write_cells(folder)
    (folder / "cells.csv").rename(folder / "train.csv")
    (folder / "new.csv").rename(folder / "test.csv")


def write_letor(folder: Path) -> None:
    for seed, name in enumerate(("train", "vali", "test")):
        write_queries(folder / f"{name}.txt", seed=seed)


def write_scores(folder: Path) -> None:
    """Scores of ten users, under column names of their own."""
    generator = torch.Generator().manual_seed(0)
    clicked = (torch.rand(600, generator=generator) < 0.2).long()
    scores = torch.randn(600, generator=generator) + clicked
    users = [f"user {number % 10}" for number in range(600)]
    table = {"my_score": scores.tolist(), "clicked": clicked.tolist(), "user": users}
    polars.DataFrame(table).write_csv(folder / "scores.csv")


def write_photos(folder: Path) -> None:
    """Digits as images, the early and the late ones as classes of their own: some as photos, some as other-photos."""
    from PIL import Image

    bunch = load_digits()
    for number, (pixels, digit) in enumerate(zip(bunch.images, bunch.target, strict=True)):
        if number >= 400:
            break
        place = folder / ("photos" if number % 8 < 5 else "other-photos") / f"digit-{digit}-{number // 200}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray((pixels * 15).astype("uint8")).resize((80, 80)).save(place / f"{number:04}.png")


def write_choices(folder: Path) -> None:
    """What 200 users chose of 30 items: lines of lists, a table of pairs with times, and tables to use a run with."""
    generator = torch.Generator().manual_seed(0)
    likes = torch.arange(200)[:, None] % 3 == torch.arange(30) % 3
    taste = torch.rand(200, 30, generator=generator) < 0.1 + 0.5 * likes
    pairs = taste.nonzero()
    held = torch.rand(len(pairs), generator=generator) < 0.2
    for name, part in (("train", pairs[~held]), ("test", pairs[held])):
        lines = [" ".join(map(str, [user, *part[part[:, 0] == user, 1].tolist()])) for user in range(200)]
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    rows = [f"u{user},i{item},{place}" for place, (user, item) in enumerate(pairs.tolist())]
    (folder / "clicks.csv").write_text("\n".join(["who,what,when", *rows]) + "\n")
    later = (likes & ~taste).nonzero().tolist()
    for name, chosen in (("histories", pairs.tolist()[:50]), ("later", later)):
        (folder / f"{name}.csv").write_text("\n".join(["what,who", *(f"i{i},u{u}" for u, i in chosen)]) + "\n")
    (folder / "users.csv").write_text("who\nu3\nu1\n")


def write_documents(folder: Path) -> None:
    """Documents of 8 words with 4 labels, as ARFF."""
    generator = torch.Generator().manual_seed(0)
    head = ["@relation 'bibtex: -C 4'", *(f"@attribute label{number} {{0,1}}" for number in range(4))]
    head += [*(f"@attribute word{number} numeric" for number in range(8)), "@data"]
    for name in ("train", "test"):
        counts = torch.randint(0, 3, (300, 8), generator=generator)
        labels = (counts[:, :4] + torch.randint(0, 2, (300, 4), generator=generator) > 1).long()
        rows = [",".join(map(str, row)) for row in torch.cat([labels, counts], 1).tolist()]
        (folder / f"bibtex-{name}.arff").write_text("\n".join([*head, *rows]) + "\n")


def write_choices_and_documents(folder: Path) -> None:
    write_choices(folder)
    write_documents(folder)


def write_boxed_cells(folder: Path) -> None:
    """Scenes with boxes, as two folders in the form of Pascal VOC."""
    write_voc(folder / "cells", count=48)
    write_voc(folder / "other-cells", count=12, seed=1)


def write_cells_and_recipe(folder: Path) -> None:
    write_cells(folder)
    (folder / "cells.yaml").write_text("{task: tabular, data: {train: cells.csv}}")


READERS_FILES: dict[str, Callable[[Path], None]] = {
    "README.md": write_cells,
    "docs/audit.md": write_scores,
    "docs/data.md": write_train_and_test,
    "docs/detection.md": write_boxed_cells,
    "docs/how-to/serve.md": write_cells,
    "docs/how-to/use-a-run.md": write_cells,
    "docs/images.md": write_photos,
    "docs/recommendation.md": write_choices_and_documents,
    "docs/report.md": write_cells_and_recipe,
    "docs/training.md": write_cells,
}
