"""AUROC against scikit-learn; its part against trapezoids and McClish's formula."""

from __future__ import annotations

import pytest
import torch

from oracles import metrics as oracle
from rankwise.metrics import auroc, partial_auroc


def cases(size, length, seed):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(size, length, generator=generator, dtype=torch.float64)
    scores[::2] = (2 * scores[::2]).round()
    labels = torch.randint(2, (size, length), generator=generator)
    labels[:, 0], labels[:, 1] = 1, 0
    return scores, labels, torch.rand(size, length, generator=generator, dtype=torch.float64) + 0.01


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("length", [3, 17])
@pytest.mark.parametrize("lists", [400, pytest.param(2500, marks=pytest.mark.slow)])
def test_scikit_learn_agrees_list_by_list(lists, length, weighted, scikit_learn):
    scores, labels, weights = cases(lists, length, seed=length)
    ours = auroc(scores, labels, weights=weights if weighted else None, reduction="none")
    rows = zip(labels.numpy(), scores.numpy(), weights.numpy(), strict=True)
    with scikit_learn.config_context(assume_finite=True, skip_parameter_validation=True):
        theirs = [scikit_learn.metrics.roc_auc_score(y, s, sample_weight=w if weighted else None) for y, s, w in rows]
    torch.testing.assert_close(ours, torch.tensor(theirs, dtype=torch.float64), rtol=0, atol=1e-9)


@pytest.mark.parametrize("fpr_range", [(0.0, 1.0), (0.0, 0.1), (0.0, 0.35), (0.2, 0.7), (0.9, 1.0)])
def test_part_of_the_area_is_the_trapezoids_between_the_bounds(fpr_range):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(6, (200, 12), generator=generator).float()
    labels = torch.randint(2, (200, 12), generator=generator)
    ours = partial_auroc(scores, labels, fpr_range=fpr_range, reduction="none")
    rows = zip(scores.tolist(), labels.tolist(), strict=True)
    plain = [oracle.partial_auroc(list(zip(s, y, strict=True)), *fpr_range) for s, y in rows]
    torch.testing.assert_close(ours, torch.tensor(plain, dtype=torch.float64), rtol=0, atol=1e-12, equal_nan=True)


def test_whole_range_is_the_whole_area():
    scores, labels, weights = cases(50, 20, seed=1)
    part = partial_auroc(scores, labels, weights=weights, fpr_range=(0.0, 1.0), reduction="none")
    torch.testing.assert_close(part, auroc(scores, labels, weights=weights, reduction="none"))


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
def test_mcclish_correction_gives_the_value_of_scikit_learn(rate, scikit_learn):
    # scikit-learn stretches the area so that chance is 1/2: (1 + (area - b^2/2) / (b - b^2/2)) / 2.
    scores, labels, weights = cases(40, 30, seed=2)
    ours = partial_auroc(scores, labels, weights=weights, fpr_range=(0.0, rate), reduction="none") * rate
    corrected = (1 + (ours - rate**2 / 2) / (rate - rate**2 / 2)) / 2
    rows = zip(labels.numpy(), scores.numpy(), weights.numpy(), strict=True)
    theirs = [scikit_learn.metrics.roc_auc_score(y, s, sample_weight=w, max_fpr=rate) for y, s, w in rows]
    torch.testing.assert_close(corrected, torch.tensor(theirs, dtype=torch.float64), rtol=0, atol=1e-9)


@pytest.mark.parametrize("label", [0, 1])
def test_list_of_one_class_is_undefined(label):
    assert torch.isnan(auroc([[1.0, 2.0]], [[label] * 2], reduction="none")).all()
    assert torch.isnan(partial_auroc([[1.0, 2.0]], [[label] * 2], reduction="none")).all()


def test_tied_pair_counts_half_or_as_asked():
    assert auroc([1.0, 1.0], [1, 0]).item() == 0.5
    assert auroc([1.0, 1.0], [1, 0], ties="pessimistic").item() == 0
    assert auroc([1.0, 1.0], [1, 0], ties="stable").item() == 1


def test_rounding_does_not_take_it_below_0():
    assert auroc([0.1, 0.9], [1, 0], weights=torch.tensor([1e-20, 2e-20], dtype=torch.float64)) == 0
