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
from rankwise.data import (
    InteractionPart,
    Interactions,
    InteractionSchema,
    Split,
    cut_histories,
    hold_out,
    read_interaction_lists,
)
from rankwise.models import EASE
from rankwise.problems import Recommendation
from rankwise.training import fit

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
def load_split(fitted: str) -> Split[Interactions]:
    """Return the pairs; the validation part is always the same tenth of each user's training items, empty for "all"."""
    folder = find_data("movielens-1m-implicit")
    train, test = read_interaction_lists([folder / "train.txt", folder / "test.txt"])
    if fitted == "all":
        return Split(train, train.take(torch.zeros(0, dtype=torch.int64)), test)
    return Split(*hold_out(train, share=0.1, seed=0), test)


@cache
def load_parts(fitted: str) -> Split[InteractionPart]:
    """Return the parts of `load_split`."""
    return cut_histories(load_split(fitted))


@cache
def odd_films() -> Tensor:
    """Return films with more than 10 standard deviations too many pairs in the test part for a random one."""
    split = load_split("all")
    films = len(split.train.item_names)
    train, test = (torch.bincount(split.part(name).items, minlength=films).double() for name in ("train", "test"))
    share = test.sum() / (train + test).sum()
    expected = (train + test) * share
    return (test - expected > 10 * (expected * (1 - share)).sqrt()).nonzero().squeeze(1)


def run(key: Key, method: Method | None) -> tuple[Figures, Tensor | None]:
    started, parts = time.perf_counter(), load_parts(key.fitted)
    schema = InteractionSchema(parts.train.user_names, parts.train.item_names)
    of_users = key.scorer in ("ALS", "matrix-factorisation")
    recommender = {"name": "matrix-factorisation" if of_users else "item-item"}
    model: nn.Module
    if method is None:
        problem = Recommendation.model_validate({"model": recommender, "metrics": METRICS})
        known = parts.train.known
        if of_users:
            model = problem.build_model(schema)
            fit_als(model, known, penalty=key.decay, seed=key.seed)
        else:
            model = EASE(known.width, regularisation=key.decay).fit(known.dense())
    else:
        ease = 1000.0 if key.scorer.startswith("EASE") else None
        problem = Recommendation.model_validate(
            {
                "loss": {"name": method.loss, **method.options},
                "model": {**recommender, "ease": ease, "dimensions": DIMENSIONS[key.scorer]},
                "batches": {"users": USERS},
                "metrics": METRICS,
                "optimiser": {"learning_rate": key.rate, "weight_decay": key.decay, "betas": (0.9, 0.99)},
                "schedule": {"name": "steps", "at": [0.75], "factor": 0.3},
                "average": {"after": 0.5} if key.scorer == AVERAGED else None,
                "budget": {"epochs": EPOCHS},
                "evaluation": {"every": None, "weights": "last"},
            }
        )
        model = fit(problem, schema, parts, seed=key.seed).model
    seconds = time.perf_counter() - started
    figures = {"train": problem.evaluate(model, parts.train).means["ndcg@20"], "seconds": seconds}
    if key.fitted == "train":
        return {**figures, "validation": problem.evaluate(model, parts.part("validation")).means["ndcg@20"]}, None
    test = problem.evaluate(model, parts.part("test"))
    others = evaluate_others(problem, model, load_split(key.fitted))
    return {**figures, **test.means, OTHERS: others}, test.per_query["ndcg@20"].float()


def evaluate_others(problem: Recommendation, model: nn.Module, split: Split[Interactions]) -> float:
    """Return NDCG@20 on the test part without the odd films: they are not wanted, and come last."""
    odd, test = odd_films(), split.part("test")

    def put_last(module: nn.Module, inputs: object, scores: Tensor) -> Tensor:
        return scores.index_fill(1, odd, scores.min().item() - 1)

    others = test.take((~torch.isin(test.items, odd)).nonzero().squeeze(1))
    hook = model.register_forward_hook(put_last)
    result = problem.evaluate(model, cut_histories(replace(split, test=others)).part("test")).means["ndcg@20"]
    hook.remove()
    return result


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
