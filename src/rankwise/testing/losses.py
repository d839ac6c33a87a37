"""The contract of a loss, executable by anyone who writes one."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from rankwise.losses import ListLoss

__all__ = ["check_loss"]

Build = Callable[[], ListLoss]


def check_loss(build: Build, *, labels: str = "binary", shift_invariant: bool = True, seed: int = 0) -> None:
    """Check that a list loss keeps the promises all losses here make; an AssertionError names the broken one.

    The order of items, the width of the padding and the other lists of the batch change nothing; neither does a shift
    of all scores, if promised. Ties, one-class lists, huge scores and half precision give finite values and gradients.
    A refused input leaves the state untouched, and so does eval mode. A saved and loaded loss goes on bit for bit.

    Args:
        build: makes a fresh loss, `AUPRCLoss` or `lambda: AUPRCLoss(prior=0.05)`.
        labels: "binary" or "grades": what the loss takes.
        shift_invariant: whether adding a constant to all scores must change nothing.
        seed: of the random lists.

    Example:
        >>> from rankwise.losses import AUPRCLoss
        >>> check_loss(AUPRCLoss)
    """
    case = _Case(build, labels, torch.Generator().manual_seed(seed))
    case.order_of_items_changes_nothing()
    case.padding_changes_nothing()
    case.other_lists_change_nothing()
    case.ragged_equals_padded()
    if shift_invariant:
        case.shift_changes_nothing()
    case.weight_zero_is_absence()
    case.better_rankings_cost_less()
    case.one_class_lists_are_counted_and_harmless()
    case.ties_and_huge_scores_stay_finite()
    case.half_precision_comes_close()
    case.bad_scores_leave_the_state_untouched()
    case.eval_mode_writes_nothing()
    case.saved_and_loaded_goes_on_bit_for_bit()


class _Case:
    def __init__(self, build: Build, labels: str, generator: torch.Generator) -> None:
        self.build, self.generator, self.grades = build, generator, 2 if labels == "binary" else 4

    def lists(self, count: int = 4, length: int = 12) -> tuple[Tensor, Tensor, Tensor]:
        """Scores in [-1, 1], labels with every grade in each list, and list ids."""
        scores = torch.rand(count, length, generator=self.generator, dtype=torch.float64) * 2 - 1
        labels = torch.randint(self.grades, (count, length), generator=self.generator)
        labels[:, : self.grades] = torch.arange(self.grades)
        return scores, labels, torch.arange(count) * 1_000_003 - 5

    def order_of_items_changes_nothing(self) -> None:
        scores, labels, ids = self.lists()
        order = torch.randperm(scores.shape[1], generator=self.generator)
        value, gradient = _run(self.build(), scores, labels, query_ids=ids)
        shuffled, shuffled_gradient = _run(self.build(), scores[:, order], labels[:, order], query_ids=ids)
        _same("the order of items changes the value", value, shuffled)
        _same("the order of items changes the gradient", gradient[:, order], shuffled_gradient)

    def padding_changes_nothing(self) -> None:
        scores, labels, ids = self.lists()
        mask = torch.rand(scores.shape, generator=self.generator) < 0.8
        mask[:, : self.grades] = True
        wide = [
            torch.cat([t, torch.full((len(t), 7), fill, dtype=t.dtype)], 1) for t, fill in ((scores, 9), (labels, 1))
        ]
        wide_mask = torch.cat([mask, torch.zeros(len(mask), 7, dtype=torch.bool)], 1)
        value, gradient = _run(self.build(), scores, labels, query_ids=ids, mask=mask)
        padded, padded_gradient = _run(self.build(), *wide, query_ids=ids, mask=wide_mask)
        _same("the width of the padding changes the value", value, padded)
        _same("the width of the padding changes the gradient", gradient, padded_gradient[:, : scores.shape[1]])
        _same("padding gets a gradient", padded_gradient[~wide_mask], torch.zeros(1, dtype=torch.float64))

    def other_lists_change_nothing(self) -> None:
        scores, labels, ids = self.lists()
        together = _per_list(self.build(), 3 * scores, labels, ids)
        alone = _per_list(self.build(), 3 * scores[1:2], labels[1:2], ids[1:2])
        _same("other lists of the batch change the value of a list", together[1:2], alone)

    def ragged_equals_padded(self) -> None:
        scores, labels, ids = self.lists()
        order = torch.randperm(scores.numel(), generator=self.generator)
        flat = (t.flatten()[order] for t in (scores, labels, ids[:, None].expand(scores.shape)))
        flat_scores, flat_labels, flat_ids = flat
        value, _ = _run(self.build(), scores, labels, query_ids=ids)
        ragged, _ = _run(self.build(), flat_scores, flat_labels, query_ids=flat_ids)
        _same("ragged lists give another value than rows", value, ragged)

    def shift_changes_nothing(self) -> None:
        scores, labels, ids = self.lists()
        value, gradient = _run(self.build(), scores, labels, query_ids=ids)
        shifted, shifted_gradient = _run(self.build(), scores + 4, labels, query_ids=ids)
        # What a loss remembers is float32, so a shift costs some of its digits.
        _same("a shift of all scores changes the value", value, shifted, 1e-5)
        _same("a shift of all scores changes the gradient", gradient, shifted_gradient, 1e-5)

    def weight_zero_is_absence(self) -> None:
        scores, labels, ids = self.lists()
        keep = torch.ones(scores.shape, dtype=torch.bool)
        keep[:, self.grades + 1 :: 3] = False
        value, gradient = _run(self.build(), scores, labels, query_ids=ids, weights=keep.double())
        masked, masked_gradient = _run(self.build(), scores, labels, query_ids=ids, mask=keep)
        _same("weight 0 does not equal a masked item", value, masked)
        _same("weight 0 changes the gradient of others", gradient, masked_gradient)
        scaled, _ = _run(self.build(), scores, labels, query_ids=ids, weights=keep * 2.5)
        _same("scaling all weights changes the value", value, scaled)

    def better_rankings_cost_less(self) -> None:
        _, labels, ids = self.lists()
        scores = labels / (self.grades - 1) * 1.6 - 0.8
        good, _ = _run(self.build(), scores, labels, query_ids=ids)
        bad, _ = _run(self.build(), -scores, labels, query_ids=ids)
        assert float(good) <= float(bad) + 1e-12, "a perfect ranking costs more than the worst one"

    def one_class_lists_are_counted_and_harmless(self) -> None:
        scores, labels, ids = self.lists()
        one_class = labels.clone()
        one_class[0], one_class[1] = 0, 1
        loss = self.build()
        value, gradient = _run(loss, scores, one_class, query_ids=ids)
        _finite("one-class lists", value, gradient)
        if loss.skipped:
            kept, _ = _run(self.build(), scores[2:], one_class[2:], query_ids=ids[2:])
            _same("left-out lists change the value", value, kept)
            assert not bool(gradient[:2].any()), "a left-out list gets a gradient"
            nothing, gradient = _run(self.build(), scores[:1], torch.zeros_like(labels[:1]), query_ids=ids[:1])
            assert float(nothing) == 0, "a batch with nothing left does not cost 0"
            assert not bool(gradient.any()), "a batch with nothing left has a gradient"

    def ties_and_huge_scores_stay_finite(self) -> None:
        scores, labels, ids = self.lists()
        for name, case in (("constant", scores * 0), ("tied", scores.round()), ("huge", scores * 1e30)):
            _finite(f"{name} scores", *_run(self.build(), case.float(), labels, query_ids=ids))

    def half_precision_comes_close(self) -> None:
        scores, labels, ids = self.lists()
        for dtype in (torch.float16, torch.bfloat16):
            rounded = scores.to(dtype)
            value, gradient = _run(self.build(), rounded, labels, query_ids=ids)
            exact, _ = _run(self.build(), rounded.float(), labels, query_ids=ids)
            assert gradient.dtype == dtype, f"{dtype} scores get {gradient.dtype} gradients"
            _same(f"{dtype} scores give another value than the same scores in float32", value.float(), exact, 1e-3)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                cast, _ = _run(self.build(), rounded.float(), labels, query_ids=ids)
            _same("autocast changes the value", exact, cast, 1e-6)

    def bad_scores_leave_the_state_untouched(self) -> None:
        scores, labels, ids = self.lists()
        loss = self.build()
        _run(loss, scores, labels, query_ids=ids)
        before = copy.deepcopy(loss.state_dict())
        bad = scores.clone()
        bad[1, 2] = float("nan")
        said = ""
        try:
            loss(bad, labels, query_ids=ids)
        except ValueError as error:
            said = str(error)
        assert "scores" in said, f"NaN among the scores is not refused by a ValueError that names them: {said!r}"
        _same_state("a refused batch changes the state", before, loss.state_dict())

    def eval_mode_writes_nothing(self) -> None:
        scores, labels, ids = self.lists()
        loss = self.build()
        _run(loss, scores, labels, query_ids=ids)
        before = copy.deepcopy(loss.state_dict())
        loss.eval()
        loss(scores.flip(1), labels, query_ids=ids)
        loss(scores, labels, query_ids=ids + 1)
        _same_state("eval mode changes the state", before, loss.state_dict())

    def saved_and_loaded_goes_on_bit_for_bit(self) -> None:
        batches = [self.lists() for _ in range(4)]
        straight, first = self.build(), self.build()
        for batch in batches[:2]:
            straight(*batch[:2], query_ids=batch[2])
            first(*batch[:2], query_ids=batch[2])
        resumed = self.build()
        resumed.load_state_dict(copy.deepcopy(first.state_dict()))
        for batch in batches[2:]:
            value, gradient = _run(straight, *batch[:2], query_ids=batch[2])
            again, again_gradient = _run(resumed, *batch[:2], query_ids=batch[2])
            assert torch.equal(value, again), "a loaded loss gives another value"
            assert torch.equal(gradient, again_gradient), "a loaded loss gives another gradient"
        _same_state("a loaded loss ends in another state", straight.state_dict(), resumed.state_dict())


def _run(loss: ListLoss, scores: Tensor, labels: Tensor, **given: Tensor) -> tuple[Tensor, Tensor]:
    scores = scores.detach().clone().requires_grad_()
    value = loss(scores, labels, **given)
    assert value.requires_grad, "the value is not attached to the graph"
    (gradient,) = torch.autograd.grad(value, scores)
    return value.detach(), gradient


def _per_list(loss: ListLoss, scores: Tensor, labels: Tensor, ids: Tensor) -> Tensor:
    loss.reduction = "none"
    values: Tensor = loss(scores, labels, query_ids=ids)
    return values


def _same(broken: str, left: Tensor, right: Tensor, tolerance: float = 1e-9) -> None:
    difference = float((left - right).abs().max()) if left.numel() else 0.0
    size = max(1.0, float(right.abs().max()) if right.numel() else 0.0)
    assert difference <= tolerance * size, f"{broken} (by {difference:.2g})"


def _finite(what: str, *tensors: Tensor) -> None:
    assert all(bool(torch.isfinite(t).all()) for t in tensors), f"{what} give values or gradients that are not finite"


def _same_state(broken: str, left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    assert left.keys() == right.keys(), broken
    changed = [name for name in left if not torch.equal(left[name], right[name])]
    assert not changed, f"{broken}: {', '.join(changed)}"
