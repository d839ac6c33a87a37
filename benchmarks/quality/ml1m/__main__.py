"""Which loss ranks the films of MovieLens-1M best? `python -m benchmarks.quality.ml1m [--slow] [--minutes M]`.

Needs `movielens-1m-implicit` under RANKWISE_DATA. `--slow` adds the losses over all pairs (ten times as long).
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.quality.grid.command import run_plan
from benchmarks.quality.grid.plan import Figures, Key, Method, Plan
from rankwise.data import InteractionSplit, find_data, histories, hold_out, read_interaction_lists
from rankwise.models import EASE
from rankwise.tasks import RecsysTask
from rankwise.training import adamw, fit, steps_down

EPOCHS, USERS = 12, 128
DIMENSIONS = {"item-item": 128, "matrix-factorisation": 64}
METRICS = ("ndcg@20", "ndcg@10", "recall@20")
SETTINGS = ((5e-3, 0.4), (5e-3, 0.8), (5e-3, 0.2), (1e-2, 0.4), (2.5e-3, 0.4))
LAMBDAS = (300.0, 1000.0, 3000.0)
SEEDS = (0, 1)

METHODS = (
    Method("SONG, shift 30", "song", {"discount_shift": 30}, ours=True),
    Method("softmax (SOLC)", "softmax"),
    Method("SONG", "song", ours=True),
    Method("K-SONG 50, shift 30", "k-song", {"k": 50, "discount_shift": 30}, ours=True),
    Method("BPR", "bpr", slow=True),
    Method("LambdaRank", "lambdarank", slow=True),
    Method("ApproxNDCG", "approx-ndcg", slow=True),
)

ABOUT = (
    "`python -m benchmarks.quality.ml1m`: MovieLens-1M (6,040 users, 3,706 films), all films ranked but those known. "
    "A tenth of each user's training films, the same for all, is the validation part. Item-item of rank 128 with input "
    f"dropout .5, matrix factorisation of 64 dimensions; every loss sees whole lists, {EPOCHS} epochs of {USERS} users "
    "a step, AdamW (betas .9, .99; rate x .3 in the last quarter). Learning rate and weight decay (for EASE lambda, "
    f"from {[int(each) for each in LAMBDAS]}) are chosen by NDCG@20 on validation with the first seed; then "
    "everything is fitted again, to training and validation films together, and judged on the test part. "
    "With whole lists of 0 and 1 SOLC is the softmax loss."
)


@cache
def load_split(fitted: str) -> InteractionSplit:
    """A tenth of each user's training items, drawn once and for all, is the validation part; it is empty for "all"."""
    folder = find_data("movielens-1m-implicit")
    train, test = read_interaction_lists([folder / "train.txt", folder / "test.txt"])
    if fitted == "all":
        return InteractionSplit(train, train.take(torch.zeros(0, dtype=torch.int64)), test)
    return InteractionSplit(*hold_out(train, share=0.1, seed=0), test)


def run(key: Key, method: Method | None) -> tuple[Figures, Tensor | None]:
    started, split = time.perf_counter(), load_split(key.fitted)
    model: nn.Module
    if method is None:
        task = RecsysTask(split, "softmax", metrics=METRICS)
        known = histories(split.train)
        model = EASE(known.width, regularisation=key.decay).fit(known.dense())
    else:
        task = RecsysTask(
            split,
            method.loss,
            method.options,
            model=key.scorer,
            dimensions=DIMENSIONS[key.scorer],
            users=USERS,
            metrics=METRICS,
        )
        model = fit(
            task,
            steps=EPOCHS * len(task.train_loader(key.seed)),
            optimiser=adamw(key.rate, weight_decay=key.decay, betas=(0.9, 0.99)),
            schedule=steps_down([0.75], 0.3),
            seed=key.seed,
        ).model
    seconds = time.perf_counter() - started
    figures = {"train": task.evaluate(model, "train")["ndcg@20"], "seconds": seconds}
    if key.fitted == "train":
        return {**figures, "validation": task.evaluate(model, "validation")["ndcg@20"]}, None
    test = task.judge(model, "test")
    return {**figures, **test.means}, test.per_query["ndcg@20"].float()


PLAN = Plan(
    ABOUT,
    scorers=tuple(DIMENSIONS),
    methods=METHODS,
    settings=SETTINGS,
    seeds=SEEDS,
    metrics=METRICS,
    run=run,
    closed_form=tuple(Key("EASE", "closed form", 0.0, each, SEEDS[0], "train") for each in LAMBDAS),
)


if __name__ == "__main__":
    run_plan(PLAN, Path(__file__).parent)
