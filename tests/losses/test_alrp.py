"""aLRP: value and updates equal to the definition; AP-loss when boxes are perfect; focal loss as detectors take it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oracles import baselines as oracle
from rankwise.losses.baselines import ALRPLoss, APLoss, FocalLoss

cases = st.integers(2, 10).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(-40, 40).map(lambda k: k / 16), min_size=n, max_size=n),
        st.lists(st.integers(0, 1), min_size=n, max_size=n).filter(lambda y: 0 < sum(y) < len(y)),
        st.lists(st.integers(0, 16).map(lambda k: k / 16), min_size=n, max_size=n),
    )
)


def run(scores, labels, errors, **options):
    leaf, off = (torch.tensor(each, dtype=torch.float64, requires_grad=True) for each in (scores, errors))
    value = ALRPLoss()(leaf, torch.tensor(labels), off, **options)
    return value.detach(), *torch.autograd.grad(value, (leaf, off))


def close(left, right):
    torch.testing.assert_close(left, torch.as_tensor(right, dtype=torch.float64), rtol=1e-9, atol=1e-9)


@given(cases)
def test_value_and_updates_equal_the_definition(case):
    expected, of_scores, of_errors = oracle.alrp(*case, 1.0)
    value, scores, errors = run(*case)
    close(value, expected)
    close(scores, of_scores)
    close(errors, of_errors)


@given(cases)
def test_perfect_boxes_make_it_ap_loss(case):
    scores, labels, _ = case
    value, update, _ = run(scores, labels, [0.0] * len(scores))
    leaf = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    expected = APLoss()(leaf, torch.tensor(labels))
    close(value, expected.detach())
    close(update, torch.autograd.grad(expected, leaf)[0])


def test_order_shape_and_masked_items_change_nothing():
    generator = torch.Generator().manual_seed(0)
    scores, errors = torch.randn(24, generator=generator), torch.rand(24, generator=generator)
    labels = (torch.rand(24, generator=generator) < 0.3).long()
    value = ALRPLoss()(scores, labels, errors)
    order = torch.randperm(24, generator=generator)
    torch.testing.assert_close(ALRPLoss()(scores[order], labels[order], errors[order]), value)
    torch.testing.assert_close(ALRPLoss()(*(each.view(2, 4, 3) for each in (scores, labels, errors))), value)
    more = [
        torch.cat([each, extra])
        for each, extra in ((scores, torch.tensor([9.0])), (labels, labels[:1]), (errors, errors[:1]))
    ]
    torch.testing.assert_close(ALRPLoss()(*more, mask=torch.arange(25) < 24), value)
    torch.testing.assert_close(ALRPLoss()(scores + 100, labels, errors), value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("label", [0, 1])
def test_one_kind_alone_is_a_zero_attached_to_the_graph(label):
    scores, errors = torch.randn(5, requires_grad=True), torch.rand(5, requires_grad=True)
    value = ALRPLoss()(scores, torch.full((5,), label), errors)
    value.backward()
    assert value.item() == 0
    assert not scores.grad.any()
    assert not errors.grad.any()


def test_wrong_input_is_named():
    good = torch.zeros(3), torch.tensor([1, 0, 0]), torch.zeros(3)
    with pytest.raises(ValueError, match=r"errors: expected numbers from 0 to 1, got 1\.5"):
        ALRPLoss()(*good[:2], torch.tensor([1.5, 0, 0]))
    with pytest.raises(ValueError, match=r"errors: expected the shape of scores, \(3,\), got \(2,\)"):
        ALRPLoss()(*good[:2], torch.zeros(2))
    with pytest.raises(ValueError, match="scores: expected finite numbers"):
        ALRPLoss()(torch.tensor([0.0, torch.nan, 0]), *good[1:])
    with pytest.raises(ValueError, match="labels: expected 0 or 1"):
        ALRPLoss()(good[0], torch.tensor([2, 0, 0]), good[2])


def test_half_precision_gives_half_precision_gradients():
    scores, errors = (torch.rand(6).to(torch.bfloat16).requires_grad_() for _ in range(2))
    ALRPLoss()(scores, torch.tensor([1, 0, 1, 0, 0, 0]), errors).backward()
    assert scores.grad.dtype == errors.grad.dtype == torch.bfloat16
    assert bool(torch.isfinite(scores.grad).all())


def test_focal_per_positive_is_that_of_torchvision_for_detectors():
    ops = pytest.importorskip("torchvision.ops")
    generator = torch.Generator().manual_seed(2)
    scores = torch.randn(60, generator=generator)
    labels = (torch.rand(60, generator=generator) < 0.1).long()
    expected = ops.sigmoid_focal_loss(scores, labels.float(), reduction="sum") / labels.sum()
    torch.testing.assert_close(FocalLoss(per="positive")(scores, labels), expected)
    without = FocalLoss(per="positive")(scores, torch.zeros_like(labels))
    torch.testing.assert_close(without, ops.sigmoid_focal_loss(scores, torch.zeros(60), reduction="sum"))
