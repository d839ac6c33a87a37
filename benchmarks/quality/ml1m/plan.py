"""The budget, the same for every method, and one cell of the table."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmarks.quality.ml1m.methods import EASE_LAMBDAS, METHODS, SCORERS, Method
from rankwise.data import InteractionSplit, find_data, histories, hold_out, read_interaction_lists
from rankwise.models import EASE
from rankwise.tasks import RecsysTask
from rankwise.training import adamw, fit, steps_down

__all__ = ["DECAYS", "EPOCHS", "RATE", "SEEDS", "USERS", "Cell", "Key", "cells", "load_split", "run_cell"]

EPOCHS = 12
USERS = 128
RATE = 5e-3
DECAYS = (0.4, 0.8, 0.2)
SEEDS = (0, 1)
HELD_OUT = 0.1
METRICS = ("ndcg@20", "ndcg@10", "recall@20")


@dataclass(frozen=True)
class Key:
    """Which cell: `setting` is the weight decay, for EASE lambda; seed -1 stands for no randomness."""

    scorer: str
    method: str
    setting: float
    seed: int


@dataclass(frozen=True)
class Cell:
    """What a run reached: NDCG@20 on validation and training items, three figures on the test part, and its time."""

    validation: float
    train: float
    ndcg_20: float
    ndcg_10: float
    recall_20: float
    seconds: float


def load_split() -> InteractionSplit:
    """A tenth of each user's training items, chosen at random once and for all, is the validation part."""
    folder = find_data("movielens-1m-implicit")
    train, test = read_interaction_lists([folder / "train.txt", folder / "test.txt"])
    kept, held = hold_out(train, share=HELD_OUT, seed=0)
    return InteractionSplit(kept, held, test)


def cells(*, slow: bool, scorers: tuple[str, ...] = tuple(SCORERS)) -> Iterator[tuple[Key, Method | None]]:
    """The first seed with every setting, those of most interest first; the other seeds are asked for afterwards."""
    for scorer in scorers:
        for decay in DECAYS:
            for method in METHODS:
                if slow or not method.slow:
                    yield Key(scorer, method.name, decay, SEEDS[0]), method
        if scorer == "item-item":
            for each in EASE_LAMBDAS:
                yield Key("EASE", "closed form", each, -1), None


def run_cell(split: InteractionSplit, key: Key, method: Method | None) -> tuple[Cell, Tensor]:
    """The figures of a cell, and NDCG@20 of each user on the test part."""
    started = time.perf_counter()
    model: nn.Module
    if method is None:
        task = RecsysTask(split, "softmax", metrics=METRICS)
        known = histories(split.train)
        model = EASE(known.width, regularisation=key.setting).fit(known.dense())
    else:
        task = RecsysTask(
            split,
            method.loss,
            method.options,
            model=key.scorer,
            dimensions=SCORERS[key.scorer],
            users=USERS,
            metrics=METRICS,
        )
        model = fit(
            task,
            steps=EPOCHS * len(task.train_loader(key.seed)),
            optimiser=adamw(RATE, weight_decay=key.setting, betas=(0.9, 0.99)),
            schedule=steps_down([0.75], 0.3),
            seed=key.seed,
        ).model
    seconds = time.perf_counter() - started
    validation = task.evaluate(model, "validation")["ndcg@20"]
    train = task.evaluate(model, "train")["ndcg@20"]
    test = task.judge(model, "test")
    found = [test.means[name] for name in METRICS]
    return Cell(validation, train, *found, seconds), test.per_query["ndcg@20"].to(torch.float32)
