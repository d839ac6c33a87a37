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
LEFT, RIGHT, TOP, STEP = 230.0, 820.0, 78.0, 40.0


@dataclass(frozen=True)
class Picture:
    """What to draw.

    Attributes:
        name: of the picture; file: the results, below `benchmarks/quality`.
        metric: the column to show; rows without it were not judged on the test part.
        method: the columns that name a row of the picture.
        where: only rows of the file with these words in these columns.
        kinds: "ours", "proxy" or "other" for the methods; what is not named is a proxy.
        names: how methods are called in the picture, if otherwise than in the file.
        title, subtitle, note: what stands above and below.
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
    note: str


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
        title="Recommending films: NDCG@20 on MovieLens-1M, all films ranked",
        subtitle="the same scorer trained by each loss; a dot per seed, the mean in numbers",
        note="Green: rankwise's losses for NDCG. Blue: other losses. Grey: other models, as practitioners use them.",
    ),
)


def main() -> None:
    environment = Environment(loader=FileSystemLoader(HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    for picture in PICTURES:
        text = environment.get_template("results.svg.j2").render(**layout(picture, read(picture)))
        (HERE / "assets" / f"results-{picture.name}.svg").write_text(text, encoding="utf-8")


def read(picture: Picture) -> dict[str, list[float]]:
    """The values of every method, one per seed, the best mean first."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    with (QUALITY / picture.file).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row[picture.metric] and all(row[column] in words for column, words in picture.where.items()):
                found[", ".join(row[column] for column in picture.method)].append(float(row[picture.metric]))
    return dict(sorted(found.items(), key=lambda item: -sum(item[1]) / len(item[1])))


def layout(picture: Picture, found: dict[str, list[float]]) -> dict[str, object]:
    """Where everything goes."""
    values = [value for each in found.values() for value in each]
    margin = (max(values) - min(values)) * 0.15 or 0.01
    low, high = min(values) - margin, max(values) + margin

    def across(value: float) -> float:
        return round(LEFT + (RIGHT - LEFT) * (value - low) / (high - low), 1)

    rows = [
        {
            "name": picture.names.get(name, name),
            "kind": picture.kinds.get(name, "proxy"),
            "y": TOP + 20 + STEP * place,
            "dots": [across(value) for value in each],
            "text": f"{sum(each) / len(each):.3f}",
        }
        for place, (name, each) in enumerate(found.items())
    ]
    ticks = [place / 100 for place in range(ceil(low * 100), int(high * 100) + 1)]
    return {
        "picture": picture,
        "rows": rows,
        "ticks": [(across(value), f"{value:.2f}") for value in ticks],
        "bottom": TOP + STEP * len(rows),
        "box": {"left": LEFT, "right": RIGHT, "top": TOP},
    }


if __name__ == "__main__":
    main()
