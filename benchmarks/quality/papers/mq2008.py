"""One training of an NDCG loss on each fold of MQ2008, judged on the test sections."""

from __future__ import annotations

import torch

from benchmarks.quality.images.plan import Options, Outcome, Row, Trial
from benchmarks.quality.mq2008.__main__ import FOLDS, QUERIES, SETTINGS, load, make_problem
from rankwise.data import TableSchema
from rankwise.training import fit

__all__ = ["METRICS", "run_mq2008"]

METRICS = ("ndcg@5", "ndcg@10")
# Documents of each list in a batch, by variant: whole lists, or samples, whose threshold is remembered.
LISTS: dict[str, dict[str, int]] = {"whole lists": {}, "samples of 2 + 3": {"relevant": 2, "irrelevant": 3}}


def run_mq2008(row: Row, options: Options, trial: Trial) -> Outcome:
    values: dict[str, list[torch.Tensor]] = {"validation": [], **{name: [] for name in METRICS}}
    for fold in FOLDS:
        split = load(fold, "train")
        problem = make_problem({"name": row.loss, **options}, METRICS, *SETTINGS[0]).changed(
            batches={"queries": QUERIES, **LISTS[row.variant]}, budget={"steps": trial.steps}
        )
        model = fit(problem, TableSchema.of(split.train), split, seed=trial.seed).model
        validation, test = (problem.evaluate(model, split.part(name)).per_query for name in ("validation", "test"))
        values["validation"].append(validation[METRICS[0]])
        for name in METRICS:
            values[name].append(test[name])
    lists = {name: torch.cat(found) for name, found in values.items()}
    defined = lists[METRICS[0]].isfinite()
    return Outcome({name: float(found.nanmean()) for name, found in lists.items()}, lists[METRICS[0]][defined].float())
