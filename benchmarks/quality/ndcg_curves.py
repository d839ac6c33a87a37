"""Training curves of SONG on MQ2008: `RANKWISE_DATA=... python -m benchmarks.quality.ndcg_curves [--seeds N]`.

Fold 1, an MLP, batches of 32 queries. Sampled lists hold at most 2 relevant and 3 irrelevant items of each query, with
the unbiased `self_weight="exact"`. Three figures, as in the paper:

- rates: the update rate of the moving average, from .1 to 1 (1 remembers nothing);
- starts: averages that start at the first observation, against zero;
- items: the moving average against no memory and against training on all items of each list.

The curves show NDCG of the training part, all items ranked, and NDCG@10 of the validation part; the pictures leave out
the untrained model. Nothing is chosen by them. Writes `ndcg_curves.csv` beside this file and one SVG per figure into
`docs/assets`; `--draw` only draws what the file holds.
"""

from __future__ import annotations

import argparse
import csv
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from statistics import fmean

import torch

from benchmarks.quality.curve_picture import draw_curves
from benchmarks.quality.mq2008 import load_fold
from rankwise.data import Part, Split, TableSchema
from rankwise.losses import NDCGLoss
from rankwise.metrics import evaluate
from rankwise.problems import SearchRanking

ASSETS = Path(__file__).resolve().parents[2] / "docs" / "assets"
STEPS, EVERY, RATE = 300, 30, 3e-3
MODEL = {"hidden": [64], "scaling": "none"}
DRAWN = {"relevant": 2, "irrelevant": 3}
COLUMNS = ("figure", "curve", "seed", "step", "train ndcg", "validation ndcg@10")


@dataclass(frozen=True)
class Curve:
    figure: str
    name: str
    problem: SearchRanking
    start: str = "first observation"


def sampled(rate: float) -> SearchRanking:
    loss = {"name": "song", "update_rate": rate, "self_weight": "exact"}
    return SearchRanking(model=MODEL, loss=loss, batches=DRAWN)


CURVES = (
    *(Curve("rates", f"update_rate={rate}", sampled(rate)) for rate in (0.1, 0.2, 0.3, 0.4, 0.5, 1.0)),
    Curve("starts", "first observation", sampled(0.1)),
    Curve("starts", "zero", sampled(0.1), start="zero"),
    Curve("items", "moving average, .1", sampled(0.1)),
    Curve("items", "no memory", sampled(1.0)),
    Curve("items", "all items", SearchRanking(model=MODEL)),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--draw", action="store_true", help="train nothing")
    given = parser.parse_args()
    torch.set_num_threads(1)
    path = Path(__file__).with_suffix(".csv")
    if not given.draw:
        data = load_fold(1)
        rows = [row for curve in CURVES for seed in range(given.seeds) for row in train(curve, data, seed)]
        with path.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])
    with path.open(newline="") as file:
        draw([tuple(row) for row in csv.reader(file)][1:])


def draw(rows: list[tuple[str, ...]]) -> None:
    for figure in ("rates", "starts", "items"):
        names = [curve.name for curve in CURVES if curve.figure == figure]
        panels = {
            title: {name: mean_curve(rows, figure, name, column) for name in names}
            for title, column in (("NDCG, training part", 4), ("NDCG@10, validation part", 5))
        }
        (ASSETS / f"ndcg-{figure}.svg").write_text(draw_curves(panels, across="step"), encoding="utf-8")


def train(curve: Curve, data: Split[Part], seed: int) -> list[tuple[object, ...]]:
    problem, schema, rows = curve.problem, TableSchema.of(data.train), []
    torch.manual_seed(seed)
    model = problem.build_model(schema)
    loss = problem.build_loss(schema, data.train, steps=STEPS)
    if curve.start == "zero":
        start_at_zero(loss, data.train)
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    batches = chain.from_iterable(repeat(problem.train_loader(data.train, seed)))
    for step, batch in zip(range(STEPS + 1), batches, strict=False):
        if step % EVERY == 0:
            learned = evaluate(
                problem.predict(model, data.train),
                data.train.labels,
                ["ndcg"],
                query_ids=data.train.query_ids,
                bootstrap=0,
            ).means["ndcg"]
            held_out = problem.evaluate(model, data.part("validation")).means["ndcg@10"]
            rows.append((curve.figure, curve.name, seed, step, f"{learned:.5f}", f"{held_out:.5f}"))
        value = problem.training_step(model, loss, batch)
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
    print(*rows[-1], flush=True)
    return rows


def start_at_zero(loss: torch.nn.Module, train: Part) -> None:
    assert isinstance(loss, NDCGLoss)
    assert loss.averages is not None
    assert train.query_ids is not None
    relevant = (train.labels > 0).nonzero()[:, 0]
    pairs = torch.stack([train.query_ids[relevant], relevant], 1)
    loss.averages.table.update(pairs, torch.zeros(len(pairs), 1), 1.0)


def mean_curve(rows: list[tuple[str, ...]], figure: str, name: str, column: int) -> list[tuple[float, float]]:
    found: dict[float, list[float]] = {}
    for row in rows:
        # The untrained model is so far below that nothing else could be told apart.
        if row[:2] == (figure, name) and row[3] != "0":
            found.setdefault(float(row[3]), []).append(float(row[column]))
    return [(step, fmean(values)) for step, values in found.items()]


if __name__ == "__main__":
    main()
