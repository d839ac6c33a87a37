"""Stability of losses and of training: what one example can do, against how many there are."""

from __future__ import annotations

import pytest
import torch

from oracles import auprc as oracle
from rankwise.audit import list_stability, stability
from rankwise.audit._stability import PLAIN, SOPRC, STABLE, _replacements, slope


def made_up(*, shift, count=4000):
    generator = torch.Generator().manual_seed(0)
    labels = (torch.arange(count) < count // 8).long()
    return torch.randn(count, generator=generator, dtype=torch.float64) + shift * labels, labels


@pytest.fixture(scope="module")
def separated():
    """A good model, whose ranking one example can spoil."""
    found = stability(*made_up(shift=3.0), repeats=2)
    return {change.name: change for change in found.changes}, found


def test_stable_ap_falls_faster_than_plain_ap_and_lies_below_it(separated):
    """With a good model and a small margin one example is worth hundreds: plain AP hardly falls."""
    changes, _ = separated
    assert changes[PLAIN].slope > -0.45
    assert changes[STABLE].slope < changes[PLAIN].slope - 0.1
    assert changes[STABLE].worst[-1] < 0.6 * changes[PLAIN].worst[-1]


def test_stable_ap_falls_as_one_over_n_where_its_constant_is_small():
    """Scores in (0, 1) and a wide margin: the largest pair loss is 3 and h is not at its steepest."""
    scores, labels = made_up(shift=1.0)
    found = stability(torch.sigmoid(scores), labels, tau=1.0, repeats=2)
    change = next(each for each in found.changes if each.name == STABLE)
    assert change.slope == pytest.approx(-1, abs=0.15)


def test_a_positive_moves_soprc_by_no_more_than_its_own_term(separated):
    """No other positive's term depends on it, unlike in the plain loss."""
    changes, _ = separated
    for size, change in zip(changes[SOPRC].sizes, changes[SOPRC].positives, strict=True):
        assert change <= 1 / (size / 8) + 1e-9
    assert all(a > b for a, b in zip(changes[PLAIN].positives, changes[SOPRC].positives, strict=True))


def test_the_sentence_says_what_the_numbers_say(separated):
    changes, found = separated
    assert f"{changes[PLAIN].worst[-1]:.3f}" in found.sentence
    assert f"{changes[STABLE].worst[-1]:.3f}" in found.sentence


def test_exactly_one_example_of_the_kind_is_replaced_extremes_included():
    scores = torch.linspace(0, 1, 12, dtype=torch.float64)
    positive = torch.arange(12) < 4
    everything = torch.linspace(-5, 5, 101, dtype=torch.float64)
    lists = _replacements(scores, positive, everything[:50], everything, torch.Generator().manual_seed(0))
    changed = lists != scores
    assert int(changed.sum(1).max()) == 1
    assert not bool(changed[:, ~positive].any())
    for place in (0, 3):
        assert {-5.0, 5.0} <= set(lists[changed[:, place], place].tolist())


def test_the_plain_loss_changes_as_by_the_definition():
    """Lists of the two extreme examples only, so that the worst replacement is known."""
    scores, labels = torch.tensor([1.0] * 8 + [0.0] * 8), torch.tensor([1] * 8 + [0] * 8)
    found = stability(scores, labels, positives=1, negatives=1, sizes=[4, 8], repeats=1)
    for column, size in enumerate((4, 8)):
        half = size // 2

        def value(positives, negatives):
            def tensors(values):
                return [torch.tensor(float(each), dtype=torch.float64) for each in values]

            # Recall by the batch: a positive counts itself as one of n, and those above it.
            total = 0.0
            for p in tensors(positives):
                false = sum(oracle.one_sided_huber(p - n, 0.1) for n in tensors(negatives)) / len(negatives)
                true = (1 + sum(oracle.one_sided_tanh(p - v, 0.001) for v in tensors(positives))) / len(positives)
                odds = float(false / true) * len(negatives) / len(positives)
                total += odds / (1 + odds)
            return total / len(positives)

        before = value([1] * half, [0] * half)
        with_low = value([0] + [1] * (half - 1), [0] * half)
        with_high = value([1] * half, [1] + [0] * (half - 1))
        change = found.changes[0]
        assert change.positives[column] == pytest.approx(abs(with_low - before), abs=1e-9)
        assert change.negatives[column] == pytest.approx(abs(with_high - before), abs=1e-9)


def test_slope_is_that_of_a_power():
    assert slope([10, 20, 80], [3 * n**-0.7 for n in (10, 20, 80)]) == pytest.approx(-0.7)


@pytest.fixture(scope="module")
def trained():
    return list_stability(models=100, seed=0)


def test_soprc_falls_about_as_one_over_n(trained):
    """Over seeds the slopes are -.82 +- .11 for positives and -.91 +- .14 for negatives."""
    for each in trained.of(SOPRC).slopes:
        assert -1.5 < each < -0.3


def test_soprc_is_steadier_than_the_plain_loss_trained_as_a_whole(trained):
    ours, plain = trained.of(SOPRC), trained.of(PLAIN)
    # Over seeds the ratios are .17 +- .07 and .31 +- .07.
    assert ours.positives[-1] < 0.5 * plain.positives[-1]
    assert sum(ours.negatives) < 0.6 * sum(plain.negatives)
    # Not because it has learnt nothing.
    assert ours.ap[-1] > max(0.75, plain.ap[-1] - 0.03)
    assert f"{ours.positives[-1]:.1%}" in trained.sentence
    assert f"{plain.positives[-1]:.1%}" in trained.sentence


def test_own_features_are_used_and_their_scale_does_not_matter():
    generator = torch.Generator().manual_seed(0)
    labels = (torch.arange(300) < 80).long()
    features = torch.randn(300, 3, generator=generator) + labels[:, None]
    options = {"sizes": [24, 48], "models": 4, "steps": 5}
    plain = list_stability(features, labels, **options)
    scaled = list_stability(100 * features + 7, labels, **options)
    assert not plain.synthetic
    for a, b in zip(plain.distances, scaled.distances, strict=True):
        assert a.positives == pytest.approx(b.positives, rel=0.02)
    assert list_stability(**options).distances != plain.distances


SCORES, LABELS = made_up(shift=1.0, count=200)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: stability(SCORES, LABELS, sizes=[64]), "sizes: expected at least two"),
        (lambda: stability(SCORES, LABELS, sizes=[2, 64]), "sizes: expected lists long enough for both kinds"),
        (lambda: stability(SCORES, LABELS, tau=0), "tau: expected a finite number > 0"),
        (lambda: stability(SCORES, torch.ones(200)), "labels: expected a list with both"),
        (lambda: list_stability(torch.rand(5), LABELS), r"features: expected shape \(N, D\)"),
        (lambda: list_stability(torch.rand(5, 2), torch.ones(4)), "labels: expected the shape of one label per row"),
        (lambda: list_stability(torch.rand(4, 2), torch.ones(4)), "labels: expected both a 1 and a 0"),
        (lambda: list_stability(torch.rand(4, 2)), "labels: expected the labels of the features"),
        (lambda: list_stability(sizes=[40]), "sizes: expected at least two"),
        (lambda: list_stability(models=1), "models: expected a whole number of at least 2"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
