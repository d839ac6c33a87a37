"""List stability (Definition 1 of the SOPRC paper): one example replaced moves the trained model by about 1 / N."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rankwise.losses import AUPRCLoss

PRIOR, STEPS, POSITIVES, NEGATIVES, MODELS = 0.25, 100, 4, 12, 300


def train(features, labels, seed):
    """Linear models, one per list, (M, N, d) to (M, d): SGD with the schedule of Theorem 3 up to its constant."""
    models, count, width = features.shape
    positives = int(labels.sum())
    weights = torch.zeros(models, width, requires_grad=True)
    loss = AUPRCLoss(PRIOR, tau=1.0, tau_recall=0.2, link="none", reduction="sum")
    batch_labels = torch.tensor([1] * POSITIVES + [0] * NEGATIVES).expand(models, -1)
    generator = torch.Generator().manual_seed(seed)
    for step in range(STEPS):
        chosen = torch.cat(
            [
                torch.randint(0, positives, (models, POSITIVES), generator=generator),
                torch.randint(positives, count, (models, NEGATIVES), generator=generator),
            ],
            1,
        )
        rows = features.gather(1, chosen[:, :, None].expand(-1, -1, width))
        scores = torch.einsum("mbd,md->mb", rows, weights)
        (gradient,) = torch.autograd.grad(loss(scores, batch_labels, query_ids=torch.arange(models)), weights)
        with torch.no_grad():
            weights -= 0.5 * (2 * step + 1) / (step + 1) ** 2 * gradient
    return weights.detach()


def mean_distance(count, kind):
    """The mean distance between models trained on lists that differ in one example of a kind."""
    generator = torch.Generator().manual_seed(count + kind)
    labels = (torch.arange(count) < count * PRIOR).long()
    features = torch.randn(MODELS, count, 4, generator=generator) + labels[:, None]
    changed = features.clone()
    changed[:, 0 if kind else -1] = torch.randn(MODELS, 4, generator=generator) + kind
    return float((train(features, labels, 0) - train(changed, labels, 0)).norm(dim=1).mean())


@pytest.mark.parametrize("kind", [1, 0], ids=["a positive", "a negative"])
def test_distance_falls_about_as_one_over_n(kind):
    sizes = [40, 160, 640]
    distances = [mean_distance(size, kind) for size in sizes]
    slope = np.polyfit(np.log(sizes), np.log(distances), 1)[0]
    assert -1.3 < slope < -0.7, (slope, distances)
