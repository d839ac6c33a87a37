"""Boosted trees on MQ2008: LightGBM and XGBoost by their own ranking objectives and by those of rankwise.

All have their default parameters and 100 rounds; nothing is chosen. Intervals are of the paired differences, by
bootstrap over the queries of all folds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.quality.mq2008.data import join_validation, load_fold
from rankwise.boosting import objective
from rankwise.data import Part
from rankwise.metrics import ndcg

FOLDS, ROUNDS, BOOTSTRAP = 5, 100, 2000
LOSSES = ("song", "listnet", "softmax", "k-song", "solc", "lambdarank", "ranknet", "approx-ndcg")
Fit = Callable[[Part, Part], Tensor]


def main() -> None:
    contenders: dict[str, Fit] = {"LightGBM lambdarank": lightgbm_with("lambdarank")}
    contenders |= {f"LightGBM {name}": lightgbm_with(objective(name)) for name in LOSSES}
    contenders["XGBoost rank:ndcg"] = xgboost_with("rank:ndcg")
    contenders |= {f"XGBoost {name}": xgboost_with(objective(name)) for name in ("song", "listnet")}
    folds = [join_validation(load_fold(number)) for number in range(1, FOLDS + 1)]
    values: dict[str, Tensor] = {}
    seconds: dict[str, float] = {}
    for name, fit in contenders.items():
        begin, parts = time.process_time(), []
        for split in folds:
            test = split.part("test")
            scores = fit(split.train, test)
            each = ndcg(scores, test.labels, query_ids=test.query_ids, k=10, reduction="none", empty="skip")
            parts.append(each)
        values[name], seconds[name] = torch.cat(parts), (time.process_time() - begin) / FOLDS
        print(f"{name:28} {values[name].nanmean():.4f} {seconds[name]:.2f} s", flush=True)
    lines = [
        f"`python -m benchmarks.quality.mq2008.bridge`: NDCG@10 of the five folds, {ROUNDS} trees with default "
        "parameters, fitted to training and validation sections; difference to the library's own objective with its 95 % interval; "
        "CPU seconds of a fold.",
        "",
        "| trees by | NDCG@10 | difference | CPU s |",
        "| --- | --: | --: | --: |",
    ]
    for name, each in values.items():
        own = values["LightGBM lambdarank" if name.startswith("LightGBM") else "XGBoost rank:ndcg"]
        lines.append(f"| {name} | {each.nanmean():.4f} | {difference(each, own)} | {seconds[name]:.2f} |")
    text = "\n".join(lines) + "\n"
    print(text)
    Path(__file__).with_suffix(".md").write_text(text)


def difference(values: Tensor, own: Tensor) -> str:
    """Return the mean paired difference with its interval, or nothing for a contender and itself."""
    if values is own:
        return ""
    gaps = (values - own)[~(values - own).isnan()].numpy()
    random = np.random.default_rng(0)
    means = gaps[random.integers(0, len(gaps), (BOOTSTRAP, len(gaps)))].mean(1)
    low, high = np.quantile(means, (0.025, 0.975))
    return f"{gaps.mean():+.4f} ({low:+.4f}, {high:+.4f})"


def lightgbm_with(loss: Any) -> Fit:
    def fit(train: Part, test: Part) -> Tensor:
        import lightgbm

        features, labels, sizes = by_query(train)
        model = lightgbm.LGBMRanker(objective=loss, n_estimators=ROUNDS, label_gain=[0, 1, 3], n_jobs=1, verbosity=-1)
        model.fit(features, labels, group=sizes)
        return torch.from_numpy(np.asarray(model.predict(test.features.numpy(), raw_score=True)))

    return fit


def xgboost_with(loss: Any) -> Fit:
    def fit(train: Part, test: Part) -> Tensor:
        import xgboost

        features, labels, sizes = by_query(train)
        data = xgboost.DMatrix(features, labels, group=sizes)
        chosen: dict[str, Any] = {"params": {"nthread": 1}}
        if isinstance(loss, str):
            chosen["params"]["objective"] = loss
        else:
            chosen["obj"] = loss
        model = xgboost.train(dtrain=data, num_boost_round=ROUNDS, **chosen)
        return torch.from_numpy(model.predict(xgboost.DMatrix(test.features.numpy()), output_margin=True))

    return fit


def by_query(part: Part) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, labels and sizes of the queries, the rows of a query one after the other."""
    assert part.query_ids is not None
    order = part.query_ids.argsort(stable=True)
    sizes = part.query_ids[order].unique_consecutive(return_counts=True)[1]
    return part.features[order].numpy(), part.labels[order].numpy(), sizes.numpy()


if __name__ == "__main__":
    main()
