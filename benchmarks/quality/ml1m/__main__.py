"""Which loss ranks the films of MovieLens-1M best? `python -m benchmarks.quality.ml1m [--slow] [--minutes M]`.

Needs `movielens-1m-implicit` under RANKWISE_DATA. `--slow` adds the losses over all pairs (ten times as long). The row
of ALS needs the package implicit, and is left out without it.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.find import find_data
from benchmarks.quality.grid.command import run_plan
from benchmarks.quality.grid.plan import Figures, Key, Method, Plan
from benchmarks.quality.ml1m.als import fit_als
from rankwise.data import Interactions, InteractionSplit, histories, hold_out, read_interaction_lists
from rankwise.models import EASE
from rankwise.tasks import RecsysTask
from rankwise.training import adamw, averaged, fit, steps_down

EPOCHS, USERS = 12, 128
AVERAGED = "EASE + item-item, averaged"
DIMENSIONS = {"item-item": 128, "EASE + item-item": 128, AVERAGED: 128, "matrix-factorisation": 64}
METRICS = ("ndcg@20", "ndcg@10", "recall@20")
OTHERS = "others"
SETTINGS = ((5e-3, 0.8), (5e-3, 1.6), (5e-3, 0.4), (5e-3, 0.2), (1e-2, 0.4), (2.5e-3, 0.4))
LAMBDAS = (300.0, 1000.0, 3000.0)
PENALTIES = (3.0, 30.0, 100.0)
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
    "dropout .5, alone or as a correction of EASE (lambda 1000), matrix factorisation of 64 dimensions; every loss "
    f"sees whole lists, {EPOCHS} epochs of {USERS} users a step, AdamW (betas .9, .99; rate x .3 in the last quarter); "
    "averaged: the mean of the weights of the second half of the steps. "
    f"Learning rate and weight decay (for EASE lambda, from {[int(each) for each in LAMBDAS]}; for ALS of the package "
    f"implicit, 64 factors, the penalty, from {[int(each) for each in PENALTIES]}) are chosen by NDCG@20 on validation "
    "with the first seed; then everything is fitted again, to training and validation films together, and judged on "
    "the test part. others: NDCG@20 on the test part without the films of which it holds far too many to be a random "
    "part (more than 10 standard deviations); a dash: that run did not ask for it. With whole lists of 0 and 1 SOLC is "
    "the softmax loss."
)


@cache
def load_split(fitted: str) -> InteractionSplit:
    """A tenth of each user's training items, drawn once and for all, is the validation part; it is empty for "all"."""
    folder = find_data("movielens-1m-implicit")
    train, test = read_interaction_lists([folder / "train.txt", folder / "test.txt"])
    if fitted == "all":
        return InteractionSplit(train, train.take(torch.zeros(0, dtype=torch.int64)), test)
    return InteractionSplit(*hold_out(train, share=0.1, seed=0), test)


@cache
def odd_films() -> Tensor:
    """Films with more than 10 standard deviations too many pairs in the test part for a random one."""
    split = load_split("all")
    films = len(split.train.item_names)
    train, test = (torch.bincount(part.items, minlength=films).double() for part in (split.train, split.test))
    share = test.sum() / (train + test).sum()
    expected = (train + test) * share
    return (test - expected > 10 * (expected * (1 - share)).sqrt()).nonzero().squeeze(1)


def run(key: Key, method: Method | None) -> tuple[Figures, Tensor | None]:
    started, split = time.perf_counter(), load_split(key.fitted)
    model: nn.Module
    if method is None:
        of_users = key.scorer == "ALS"
        task = RecsysTask(split, "softmax", model="matrix-factorisation" if of_users else "item-item", metrics=METRICS)
        known = histories(split.train)
        if of_users:
            model = task.build_model()
            fit_als(model, known, penalty=key.decay, seed=key.seed)
        else:
            model = EASE(known.width, regularisation=key.decay).fit(known.dense())
    else:
        task = RecsysTask(
            split,
            method.loss,
            method.options,
            model="matrix-factorisation" if key.scorer == "matrix-factorisation" else "item-item",
            ease=1000.0 if key.scorer.startswith("EASE") else None,
            dimensions=DIMENSIONS[key.scorer],
            users=USERS,
            metrics=METRICS,
        )
        steps = EPOCHS * len(task.train_loader(key.seed))
        optimiser = adamw(key.rate, weight_decay=key.decay, betas=(0.9, 0.99))
        model = fit(
            task,
            steps=steps,
            optimiser=optimiser,
            schedule=steps_down([0.75], 0.3),
            average=averaged(after=0.5) if key.scorer == AVERAGED else None,
            seed=key.seed,
        ).model
    seconds = time.perf_counter() - started
    figures = {"train": task.evaluate(model, "train")["ndcg@20"], "seconds": seconds}
    if key.fitted == "train":
        return {**figures, "validation": task.evaluate(model, "validation")["ndcg@20"]}, None
    test = task.judge(model, "test")
    return {**figures, **test.means, OTHERS: judge_others(task, model)}, test.per_query["ndcg@20"].float()


def judge_others(task: RecsysTask, model: nn.Module) -> float:
    """NDCG@20 on the test part without the odd films: they are not to be found, and stand last."""
    odd = odd_films()

    def stand_last(module: nn.Module, inputs: object, scores: Tensor) -> Tensor:
        return scores.index_fill(1, odd, scores.min().item() - 1)

    test: Interactions = task.data.test
    rest = replace(task, data=replace(task.data, test=test.take((~torch.isin(test.items, odd)).nonzero().squeeze(1))))
    hook = model.register_forward_hook(stand_last)
    found = rest.evaluate(model, "test")["ndcg@20"]
    hook.remove()
    return found


PLAN = Plan(
    ABOUT,
    scorers=tuple(DIMENSIONS),
    methods=METHODS,
    settings=SETTINGS,
    seeds=SEEDS,
    metrics=(*METRICS, OTHERS),
    run=run,
    closed_form=(
        *(Key("EASE", "closed form", 0.0, each, SEEDS[0], "train") for each in LAMBDAS),
        *(Key("ALS", "squares", 0.0, each, SEEDS[0], "train") for each in PENALTIES if find_spec("implicit")),
    ),
)


if __name__ == "__main__":
    run_plan(PLAN, Path(__file__).parent)
