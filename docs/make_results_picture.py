"""Draw pictures of result tables, `docs/assets/results-*.svg`: `python docs/make_results_picture.py`.

Nothing is computed here: every dot is a row of a CSV file in `benchmarks/quality`, and every row that was run is shown.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from jinja2 import Environment, FileSystemLoader

HERE = Path(__file__).parent
QUALITY = HERE.parent / "benchmarks" / "quality"
# Narrow, so that the text can still be read on a phone.
WIDTH, LEFT, RIGHT, TOP, STEP = 600, 196.0, 530.0, 70.0, 34.0


@dataclass(frozen=True)
class Picture:
    """Describe one picture.

    Attributes:
        name: of the picture; file: the results, below `benchmarks/quality`.
        metric: the column to show; rows without it were not measured on the test part.
        method: the columns that name a row of the picture.
        where: only rows of the file with these words in these columns.
        kinds: "ours", "proxy" or "other" for each method; a method that is not named is a proxy.
        names: names of methods in the picture, where they differ from the file.
        title, subtitle: text above the picture.
        note: lines of text below it.
    """

    name: str
    file: str
    metric: str
    method: tuple[str, ...]
    where: dict[str, tuple[str, ...]]
    kinds: dict[str, str]
    names: dict[str, str]
    title: str
    subtitle: str
    note: tuple[str, ...]


PICTURES = (
    Picture(
        name="ml1m",
        file="ml1m/results.csv",
        metric="ndcg@20",
        method=("method",),
        where={"scorer": ("EASE + item-item, averaged", "EASE", "ALS")},
        kinds={
            "SONG, shift 30": "ours",
            "SONG": "ours",
            "K-SONG 50, shift 30": "ours",
            "closed form": "other",
            "squares": "other",
        },
        names={"closed form": "EASE", "squares": "ALS (implicit)"},
        title="Recommending films: NDCG@20 on MovieLens-1M",
        subtitle="all films ranked; the same scorer, one loss per row; a dot per seed, and the mean",
        note=(
            "Green: rankwise's losses for NDCG. Blue: other losses.",
            "Grey: other models, as practitioners use them.",
        ),
    ),
)


def main() -> None:
    environment = Environment(loader=FileSystemLoader(HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    for picture in PICTURES:
        text = environment.get_template("results.svg.j2").render(**layout(picture, read(picture)))
        (HERE / "assets" / f"results-{picture.name}.svg").write_text(text, encoding="utf-8")


def read(picture: Picture) -> dict[str, list[float]]:
    """Return the values of every method, one per seed, the best mean first."""
    values: defaultdict[str, list[float]] = defaultdict(list)
    with (QUALITY / picture.file).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row[picture.metric] and all(row[column] in words for column, words in picture.where.items()):
                values[", ".join(row[column] for column in picture.method)].append(float(row[picture.metric]))
    return dict(sorted(values.items(), key=lambda item: -sum(item[1]) / len(item[1])))


def layout(picture: Picture, values: dict[str, list[float]]) -> dict[str, object]:
    """Return the coordinates of everything in the picture."""
    every = [value for each in values.values() for value in each]
    margin = (max(every) - min(every)) * 0.15 or 0.01
    low, high = min(every) - margin, max(every) + margin

    def across(value: float) -> float:
        return round(LEFT + (RIGHT - LEFT) * (value - low) / (high - low), 1)

    rows = [
        {
            "name": picture.names.get(name, name),
            "kind": picture.kinds.get(name, "proxy"),
            "y": TOP + 20 + STEP * position,
            "dots": [across(value) for value in each],
            "text": f"{sum(each) / len(each):.3f}",
        }
        for position, (name, each) in enumerate(values.items())
    ]
    ticks = [step / 50 for step in range(ceil(low * 50), int(high * 50) + 1)]
    return {
        "picture": picture,
        "rows": rows,
        "ticks": [(across(value), f"{value:.2f}") for value in ticks],
        "bottom": TOP + STEP * len(rows),
        "box": {"width": WIDTH, "left": LEFT, "right": RIGHT, "top": TOP},
    }


if __name__ == "__main__":
    main()
