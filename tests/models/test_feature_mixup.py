"""Deep feature mixup: the definition, labels, seeds, eval mode, lonely classes."""

from __future__ import annotations

import pytest
import torch

from oracles import stable_ap as oracle
from rankwise.models import FeatureMixup

LABELS = torch.tensor([4, -2, 4, 4, 9, -2])


def test_mixture_equals_the_definition():
    features = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.manual_seed(5)
    draws = 1 - torch.rand(6, 6)
    torch.manual_seed(5)
    mixed, labels = FeatureMixup(keep=0.7)(features, LABELS)
    expected = oracle.mixed(features.tolist(), LABELS.tolist(), draws.tolist(), 0.7)
    assert torch.equal(mixed[:6], features)
    torch.testing.assert_close(mixed[6:], torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=1e-6)
    assert torch.equal(labels, torch.cat([LABELS, LABELS]))


def test_any_shape_of_features_is_mixed_alike():
    features = torch.randn(6, 2, 3, 4)
    torch.manual_seed(0)
    shaped, _ = FeatureMixup()(features, LABELS)
    torch.manual_seed(0)
    flat, _ = FeatureMixup()(features.flatten(1), LABELS)
    assert shaped.shape == (12, 2, 3, 4)
    torch.testing.assert_close(shaped.flatten(1), flat)


def test_the_seed_decides_and_two_uses_make_the_batch_four_times_as_large():
    mix = FeatureMixup()
    results = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        results.append(mix(*mix(torch.arange(12.0).view(6, 2), LABELS)))
    (first, labels), (again, _), (other, _) = results
    assert first.shape == (24, 2)
    assert torch.equal(labels, LABELS.repeat(4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_classes_do_not_mix_and_a_lonely_sample_comes_twice():
    features = torch.nn.functional.one_hot(torch.tensor([0, 1, 0, 0, 2, 1])).double()
    mixed, _ = FeatureMixup(keep=0.5)(features, LABELS)
    torch.testing.assert_close(mixed[6:], features)  # a mean of equal features is that feature
    lonely = torch.randn(3, 4)
    torch.testing.assert_close(FeatureMixup()(lonely, torch.arange(3))[0], torch.cat([lonely, lonely]))


def test_eval_mode_is_the_identity_and_draws_nothing():
    mix, features = FeatureMixup().eval(), torch.randn(6, 2)
    state = torch.get_rng_state()
    same, labels = mix(features, LABELS)
    assert same is features
    assert labels is LABELS
    assert torch.equal(torch.get_rng_state(), state)


def test_gradient_flows_to_the_sample_and_to_its_class():
    features = torch.randn(6, 2, dtype=torch.float64, requires_grad=True)
    mixed, _ = FeatureMixup(keep=0.9)(features, LABELS)
    (gradient,) = torch.autograd.grad(mixed[6].sum(), features)
    assert bool((gradient[0] > 0.9).all())
    assert bool((gradient[[2, 3]] > 0).all())
    assert not bool(gradient[[1, 4, 5]].any())


def test_half_precision_stays_so():
    mixed, _ = FeatureMixup()(torch.randn(6, 2).bfloat16(), LABELS)
    assert mixed.dtype == torch.bfloat16


@pytest.mark.parametrize(
    "labels, kind, message",
    [
        (torch.rand(6), TypeError, "labels: expected integers"),
        (torch.arange(5), ValueError, "labels: expected the shape of one class per row of features"),
    ],
)
def test_bad_labels_are_named(labels, kind, message):
    with pytest.raises(kind, match=message):
        FeatureMixup()(torch.rand(6, 2), labels)


def test_bad_share_is_named():
    with pytest.raises(ValueError, match=r"keep: expected a number in \(0, 1\), got 1.2"):
        FeatureMixup(keep=1.2)
