"""Which loss ranks the documents of MQ2008 best? `python -m benchmarks.quality.mq2008 [--slow] [--minutes M]`.

Needs `letor-mq2008` under RANKWISE_DATA. `--slow` adds NeuralNDCG, whose matrices take ten times as long. The row of
boosted trees needs the package lightgbm, and is left out without it.
"""

from __future__ import annotations

import time
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.quality.grid.command import run_plan
from benchmarks.quality.grid.plan import Figures, Key, Method, Plan
from benchmarks.quality.mq2008.data import join_validation, load_fold, with_ranks
from benchmarks.quality.mq2008.table import write_folds
from benchmarks.quality.mq2008.trees import fit_trees
from rankwise.data import Part, Split, TableSchema
from rankwise.metrics import Evaluation, evaluate
from rankwise.problems import SearchRanking
from rankwise.training import fit

STEPS, QUERIES, HIDDEN, DROPOUT = 120, 32, (256,), 0.5
METRICS = ("ndcg@5", "ndcg@10")
SETTINGS = ((3e-3, 0.01), (1e-3, 0.01), (1e-2, 0.01))
TREES = ((0.03, 7), (0.03, 15), (0.1, 7), (0.1, 15))
SEEDS = (0, 1, 2)
FOLDS = tuple(f"fold {number}" for number in range(1, 6))

METHODS = (
    Method("SONG", "song", ours=True),
    Method("SONG, shift 3", "song", {"discount_shift": 3}, ours=True),
    Method("SONG, shift 10", "song", {"discount_shift": 10}, ours=True),
    Method("K-SONG 5", "k-song", {"k": 5}, ours=True),
    Method("K-SONG 10, shift 3", "k-song", {"k": 10, "discount_shift": 3}, ours=True),
    Method("K-SONG 10", "k-song", {"k": 10}, ours=True),
    Method("SOLC", "solc", ours=True),
    Method("SOLC, then SONG", "song", ours=True),
    Method("ListNet", "listnet"),
    Method("ListMLE", "listmle"),
    Method("RankNet", "ranknet"),
    Method("LambdaLoss 2++", "lambdaloss"),
    Method("LambdaRank", "lambdarank"),
    Method("ApproxNDCG", "approx-ndcg"),
    Method("Gumbel ApproxNDCG", "gumbel-approx-ndcg"),
    Method("squared error", "squared-error"),
    Method("NeuralNDCG", "neural-ndcg", slow=True),
)

ABOUT = (
    "`python -m benchmarks.quality.mq2008 --slow`: MQ2008 (784 queries, 15,211 documents, grades 0 to 2), its five "
    "folds. Features are those of the data and the rank of each within its query. Scorer: one hidden layer of "
    f"{HIDDEN[0]}, dropout {DROPOUT}; {STEPS} steps of {QUERIES} queries, AdamW with a cosine schedule. For each fold "
    f"by itself, the learning rate (of {len(SETTINGS)}; for 100 trees, learning rate and number of leaves, of "
    f"{len(TREES)} pairs) is chosen by NDCG@5 on its validation section with the first seed; then "
    f"everything is fitted again with up to {len(SEEDS)} seeds, to training and validation sections together, and "
    "judged on the test section. Queries without a relevant document have no NDCG and are left out."
)


@cache
def load(fold: str, fitted: str) -> Split[Part]:
    """Return the split of a fold, with ranks; for "all" the training part holds the validation section as well."""
    if fitted == "all":
        return join_validation(load(fold, "train"))
    return with_ranks(load_fold(int(fold.removeprefix("fold "))))


def run(key: Key, method: Method | None) -> tuple[Figures, Tensor | None]:
    """Run a method on one fold, which the plan calls the scorer."""
    started, split = time.perf_counter(), load(key.scorer, key.fitted)
    judged = "validation" if key.fitted == "train" else "test"
    if method is None:
        parts = [split.train, split.part(judged)]
        scores = fit_trees(split.train, parts, rate=key.rate, leaves=int(key.decay), seed=key.seed)
        train, other = (
            evaluate(found, part.labels, METRICS, query_ids=part.query_ids, bootstrap=0)
            for found, part in zip(scores, parts, strict=True)
        )
    else:
        train, other = train_network(key, method, split, judged)
    seconds = time.perf_counter() - started
    figures = {"train": train.means[METRICS[0]], "seconds": seconds}
    if key.fitted == "train":
        return {**figures, "validation": other.means[METRICS[0]]}, None
    return {**figures, **other.means}, other.per_query[METRICS[0]].float()


def train_network(key: Key, method: Method, split: Split[Part], judged: str) -> tuple[Evaluation, Evaluation]:
    warm = method.name.startswith("SOLC, then")
    problem = make_problem({"name": method.loss, **method.options}, METRICS, key.rate, key.decay).changed(
        warm_up={"loss": "solc", "steps": STEPS // 2} if warm else None
    )
    model = fit(problem, TableSchema.of(split.train), split, seed=key.seed).model
    return problem.evaluate(model, split.train), problem.evaluate(model, split.part(judged))


def make_problem(loss: dict[str, object], metrics: tuple[str, ...], rate: float, decay: float) -> SearchRanking:
    """Return the problem that all methods share, with a loss and a setting; nothing is chosen while it trains."""
    return SearchRanking(
        model={"hidden": HIDDEN, "dropout": DROPOUT},
        loss=loss,
        batches={"queries": QUERIES},
        metrics=metrics,
        optimiser={"learning_rate": rate, "weight_decay": decay},
        budget={"steps": STEPS},
        evaluation={"every": None, "weights": "last"},
    )


PLAN = Plan(
    ABOUT,
    scorers=FOLDS,
    methods=METHODS,
    settings=SETTINGS,
    seeds=SEEDS,
    metrics=METRICS,
    run=run,
    closed_form=tuple(
        Key(fold, "LightGBM lambdarank", rate, leaves, SEEDS[0], "train")
        for fold in FOLDS
        for rate, leaves in TREES
        if find_spec("lightgbm")
    ),
)


if __name__ == "__main__":
    torch.set_num_threads(1)
    run_plan(PLAN, Path(__file__).parent, write_folds)
