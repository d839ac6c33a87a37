"""Every registered loss keeps the contract; and the contract catches losses that do not."""

from __future__ import annotations

import pytest
import torch

from rankwise.losses import (
    LOSSES,
    AUPRCLoss,
    BinaryCrossEntropyLoss,
    ListLoss,
    ListStatistics,
    ListwiseCELoss,
    NDCGLoss,
    PriorSchedule,
    SemiVarianceLoss,
    StableAPLoss,
    SumLoss,
    SwitchLoss,
    TopKNDCGLoss,
)
from rankwise.testing import check_loss

VARIANTS = {
    "batch recall": lambda: AUPRCLoss(recall="batch"),
    "full recall gradient": lambda: AUPRCLoss(recall_gradient="full"),
    "batch prior": lambda: AUPRCLoss(prior="batch"),
    "schedule": lambda: AUPRCLoss(prior=PriorSchedule(0.5, 0.02, 3)),
    "no link": lambda: AUPRCLoss(link="none"),
    "combined": lambda: SumLoss(AUPRCLoss(), SemiVarianceLoss(3, 15)),
    "sum": lambda: AUPRCLoss(reduction="sum"),
    "stable AP, batch ratio": lambda: StableAPLoss("batch"),
    "stable AP, data set ratio": lambda: StableAPLoss("dataset", prior=PriorSchedule(0.5, 0.02, 3)),
    "stable AP, h of the mean": lambda: StableAPLoss("batch", outer="batch"),
    "stable AP, rank weights": lambda: StableAPLoss("batch", weighting="rank"),
    "stable AP, no link": lambda: StableAPLoss(link="none"),
}


@pytest.mark.parametrize(
    "record", [record for record in LOSSES if record.inputs == "scores"], ids=lambda record: record.name
)
@pytest.mark.parametrize("seed", range(3))
def test_registered_loss_keeps_the_contract(record, seed):
    check_loss(record.create, labels=record.labels, shift_invariant=record.shift_invariant, seed=seed)


@pytest.mark.parametrize(
    "record", [record for record in LOSSES if record.inputs == "scores"], ids=lambda record: record.name
)
def test_the_unit_of_the_weights_changes_nothing(record):
    generator = torch.Generator().manual_seed(0)
    scores, labels = torch.randn(3, 12, generator=generator), (torch.arange(12) % 3 == 0).long().repeat(3, 1)
    weights = torch.randint(1, 4, (3, 12), generator=generator).double()
    if record.name == "blackbox-ap":  # not defined for different weights
        weights = torch.ones_like(weights)
    found = []
    for unit in (1, 1e-30, 1e20, 1e60):
        leaf = scores.clone().requires_grad_()
        value = record.create()(leaf, labels, weights=weights * unit)
        found.append((value.detach(), *torch.autograd.grad(value, leaf)))
    for other in found[1:]:
        torch.testing.assert_close(other, found[0])


@pytest.mark.parametrize("name", ["ndcg", "top-k-ndcg"])
def test_a_first_item_that_weighs_next_to_nothing_has_a_finite_gradient(name):
    scores = torch.tensor([3.0, 1.0, 0.0], requires_grad=True)
    value = LOSSES.get(name).create()(scores, torch.tensor([1, 0, 1]), weights=torch.tensor([1e-15, 1.0, 1.0]))
    value.backward()
    assert bool(torch.isfinite(value.detach()))
    assert bool(torch.isfinite(scores.grad).all())


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_keep_the_contract(name):
    check_loss(VARIANTS[name])


def sampled(build):
    """A loss over samples of lists of 60 items; the contract names no items, so their places stand in for ids."""
    ids = torch.cat([torch.arange(4) * 1_000_003 - 5 + shift for shift in (0, 1)])
    statistics = ListStatistics(torch.arange(4).repeat(8 * 15), ids.repeat_interleave(60))

    class Placed(build):
        def forward(self, scores, labels, **given):
            place = torch.arange(scores.shape[-1]) if "query_ids" not in given or scores.ndim > 1 else None
            if place is None:  # ragged lists: the contract shuffles items, whose scores still tell them apart
                place = scores.detach().argsort().argsort()
            return super().forward(scores, labels, sample_ids=place.expand(scores.shape), **given)

    return lambda **options: Placed(statistics=statistics, **options)


SAMPLED = {
    "exact": lambda: sampled(NDCGLoss)(self_weight="exact"),
    "sample": lambda: sampled(NDCGLoss)(self_weight="sample", discount_shift=30.0),
    "naive": lambda: sampled(NDCGLoss)(self_weight="naive", gain="linear"),
    "k stopped": lambda: sampled(TopKNDCGLoss)(k=5),
    "k full": lambda: sampled(TopKNDCGLoss)(k=5, selector_gradient="full"),
    "listwise": lambda: sampled(ListwiseCELoss)(),
    "k full, whole lists": lambda: TopKNDCGLoss(k=5, selector_gradient="full"),
    "switch": lambda: SwitchLoss(ListwiseCELoss(), NDCGLoss(), after=2),
}


@pytest.mark.parametrize("name", SAMPLED)
def test_losses_of_graded_lists_keep_the_contract(name):
    check_loss(SAMPLED[name], labels="grades")


@pytest.mark.parametrize("link", ["tanh", "sigmoid"])
@pytest.mark.parametrize("loss", [AUPRCLoss, StableAPLoss])
def test_bounded_links_keep_the_contract_but_for_shifts(loss, link):
    check_loss(lambda: loss(link=link), shift_invariant=False)


class FirstItemOnly(ListLoss):
    """Depends on the order of items."""

    def per_list(self, packed, group_ids):
        return packed.map(lambda lists: (lists.scores[:, 0] * 1.0, lists.mask.any(1)))


class SeesPadding(BinaryCrossEntropyLoss):
    """Divides by the padded width."""

    def per_list(self, packed, group_ids):
        values, valid = super().per_list(packed, group_ids)
        return values * packed.blocks[0].scores.shape[1], valid


class Forgetful(BinaryCrossEntropyLoss):
    """Keeps its state in a plain attribute."""

    calls = 0

    def per_list(self, packed, group_ids):
        values, valid = super().per_list(packed, group_ids)
        self.calls += 1
        return values * self.calls, valid


@pytest.mark.parametrize(
    "broken, message",
    [
        (FirstItemOnly, "the order of items changes the value"),
        (SeesPadding, "the width of the padding changes the value"),
        (Forgetful, "a loaded loss gives another value"),
    ],
)
def test_contract_names_what_is_broken(broken, message):
    with pytest.raises(AssertionError, match=message):
        check_loss(broken, shift_invariant=False)


@pytest.mark.parametrize("record", list(LOSSES), ids=lambda record: record.name)
def test_state_is_only_in_buffers(record):
    if record.inputs == "embeddings":
        pytest.importorskip("pytorch_metric_learning")
    loss = record.create()
    if record.inputs == "scores":
        loss(torch.tensor([0.5, -0.5, 0.1]), torch.tensor([1, 0, 0]))
    else:
        loss(torch.eye(3), torch.tensor([4, 4, 7]))
    tensors = {id(t) for t in loss.state_dict(keep_vars=True).values()}
    for module in loss.modules():
        loose = [n for n, v in vars(module).items() if isinstance(v, torch.Tensor) and id(v) not in tensors]
        assert loose in ([], ["_valid"])
