"""LightGBM's lambdarank on the same features."""

from __future__ import annotations

import torch
from torch import Tensor

from rankwise.data import Part

__all__ = ["fit_trees"]


def fit_trees(train: Part, parts: list[Part], *, rate: float, leaves: int, seed: int) -> list[Tensor]:
    """Scores of the rows of some parts, by 100 trees that see half of the features each."""
    import lightgbm

    assert train.query_ids is not None
    order = train.query_ids.argsort(stable=True)
    sizes = train.query_ids[order].unique_consecutive(return_counts=True)[1]
    model = lightgbm.LGBMRanker(
        n_estimators=100,
        learning_rate=rate,
        num_leaves=leaves,
        colsample_bytree=0.5,
        label_gain=[0, 1, 3],
        random_state=seed,
        n_jobs=1,
        verbosity=-1,
    )
    model.fit(train.features[order].numpy(), train.labels[order].numpy(), group=sizes.numpy())
    return [torch.from_numpy(model.predict(part.features.numpy())) for part in parts]
