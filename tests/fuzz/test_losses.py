"""Whatever lists come, every loss gives a finite value, a finite gradient and a finite state, or a clear refusal."""

from __future__ import annotations

import copy
import warnings
from functools import partial

import pytest
import torch
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fuzz.cases import DTYPES, IDS_OF_ALL_KINDS, SPREADS, Case, cases, drawn, refused_scores, search, searches
from rankwise.losses import LOSSES, AUPRCLoss, EmbeddingLoss, LateMemoryLoss, ListLoss, StableAPLoss
from rankwise.losses.baselines import PairwiseAUROCLoss

OVER_SCORES = [record for record in LOSSES if record.inputs == "scores"]
by_name = pytest.mark.parametrize("record", OVER_SCORES, ids=lambda record: record.name)


def run(loss: ListLoss, case: Case, scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scores = scores.detach().requires_grad_()
    value = loss(scores, case.labels, **case.given)
    (gradient,) = torch.autograd.grad(value, scores)
    return value.detach(), gradient


def check(build, case: Case) -> None:
    first, second = build(), build()
    try:
        value, gradient = run(first, case, case.laid_out(case.scores))
    except ValueError as refusal:
        # Some baselines are not defined for items of different weights.
        if not str(refusal).startswith("weights: expected equal weights") or not same_state(first, build()):
            raise
        return
    assert value.shape == ()
    assert bool(torch.isfinite(value)), value
    assert gradient.dtype == case.scores.dtype
    if case.scores.dtype in (torch.float16, torch.bfloat16):
        # Half precision only rounds; a gradient beyond its largest number cannot but become infinite.
        exact = run(build(), case, case.scores.float())[1]
        assert bool(torch.isfinite(exact).all()), exact
        assert torch.equal(gradient, exact.to(gradient.dtype))
    else:
        assert bool(torch.isfinite(gradient).all()), gradient
    assert not bool(gradient[~case.counted].any()), "what does not count gets a gradient"
    for name, tensor in first.state_dict().items():
        assert not tensor.is_floating_point() or bool(torch.isfinite(tensor).all()), name

    # The layout in memory and whether a gradient is wanted change nothing, bit for bit.
    again, gradient_again = run(second, case, case.scores.clone(memory_format=torch.contiguous_format))
    assert torch.equal(value, again)
    assert torch.equal(gradient, gradient_again)
    assert same_state(first, second)
    with torch.no_grad():
        assert torch.equal(build()(case.scores, case.labels, **case.given), again)

    # A loss that has seen this goes on, from its own state or from a copy of it, and reads it in eval mode.
    third = build()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a state that has seen nothing says so
        third.load_state_dict(copy.deepcopy(first.state_dict()))
    turned = case.scores.flip(-1)
    value, gradient = run(first, case, turned)
    again, gradient_again = run(third, case, turned)
    assert bool(torch.isfinite(value)), value
    assert not bool(gradient.isnan().any()), gradient
    assert torch.equal(value, again)
    assert torch.equal(gradient, gradient_again)
    before = copy.deepcopy(first.state_dict())
    assert bool(torch.isfinite(first.eval()(case.scores, case.labels, **case.given)))
    assert all(torch.equal(before[name], tensor) for name, tensor in first.state_dict().items())


def same_state(first: ListLoss, second: ListLoss) -> bool:
    left, right = first.state_dict(), second.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@searches
@by_name
def test_any_lists_give_finite_values_gradients_and_states(record, examples):
    search(partial(check, record.create), cases(record.labels), examples)


def check_refused(build, given: tuple[Case, torch.Tensor]) -> None:
    case, bad = given
    loss = build()
    first = case.labels[..., :1]
    loss(case.scores[..., :1], first, mask=torch.ones_like(first, dtype=torch.bool))
    before = copy.deepcopy(loss.state_dict())
    with pytest.raises(ValueError, match=r"^scores: expected finite numbers, got 1 NaN or infinite of \d+, first at "):
        loss(bad, case.labels, **case.given)
    assert all(torch.equal(before[name], tensor) for name, tensor in loss.state_dict().items())


@searches
@by_name
def test_scores_that_are_no_numbers_are_refused_before_the_state_changes(record, examples):
    search(partial(check_refused, record.create), refused_scores(record.labels), examples)


OVER_EMBEDDINGS = {record.name: record.create for record in LOSSES if record.inputs == "embeddings"} | {
    "cosine": lambda: EmbeddingLoss(AUPRCLoss()),
    "dot": lambda: EmbeddingLoss(StableAPLoss(), similarity="dot"),
    "late memory": lambda: LateMemoryLoss(AUPRCLoss(), memory=20),
}


@st.composite
def embeddings(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor]:
    """Vectors (B, d) and their classes; some vectors may be zero, or all the same."""
    count, size = draw(st.integers(1, 12)), draw(st.integers(1, 5))
    vectors = drawn(draw(st.sampled_from(SPREADS)), draw(st.integers(0, 2**32 - 1)), (count, size))
    vectors = vectors.clamp(-1e4, 1e4).to(draw(st.sampled_from(DTYPES)))
    if draw(st.booleans()):
        vectors[0] = 0
    return vectors, torch.tensor(draw(st.lists(IDS_OF_ALL_KINDS, min_size=count, max_size=count)))


def check_embeddings(build, given: tuple[torch.Tensor, torch.Tensor]) -> None:
    vectors, classes = given
    loss = build()
    for batch in (vectors, vectors.flip(0)):  # the second time it remembers the first
        leaf = batch.clone().requires_grad_()
        value = loss(leaf, classes)
        assert bool(torch.isfinite(value.detach())), value
        (gradient,) = torch.autograd.grad(value, leaf)
        assert gradient.dtype == vectors.dtype
        assert not bool(gradient.isnan().any()), gradient
    before = copy.deepcopy(loss.state_dict())
    bad = vectors.clone()
    bad[0, 0] = float("nan")
    with pytest.raises(ValueError, match=r"^embeddings: expected finite numbers"):
        loss(bad, classes)
    loss.eval()(vectors, classes)
    assert all(torch.equal(before[name], tensor) for name, tensor in loss.state_dict().items())


@searches
@pytest.mark.parametrize("name", OVER_EMBEDDINGS)
def test_any_vectors_give_finite_values_and_gradients(name, examples):
    search(partial(check_embeddings, OVER_EMBEDDINGS[name]), embeddings(), examples)


# All others hold a number for every pair of items, or try every order.
LONG = ("auprc", "stable-ap", "semi-variance", "cross-entropy", "focal", "pairwise-auroc", "soap", "ndcg", "top-k-ndcg")
LONG += ("listwise-cross-entropy", "listnet", "listmle", "softmax", "squared-error", "pap", "hinge-partial-auc")


@pytest.mark.parametrize("items", [20_000, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", LONG)
def test_a_long_list_gives_a_finite_value_and_gradient(name, items):
    scores = drawn("normal", 0, (items,)).float().requires_grad_()
    value = LOSSES.get(name).create()(scores, (torch.arange(items) % 100 == 0).long())
    value.backward()
    assert bool(torch.isfinite(value.detach()))
    assert bool(torch.isfinite(scores.grad).all())
    assert bool(scores.grad.any())


class Work(TorchDispatchMode):
    """Count the elements that the operations of torch read or write."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.elements += max(
            (leaf.numel() for leaf in tree_leaves((args, result)) if hasattr(leaf, "numel")), default=0
        )
        return result


def work(build, items: int) -> int:
    scores = drawn("normal", 0, (items,)).float().requires_grad_()
    with Work() as done:
        build()(scores, (torch.arange(items) % 2).long()).backward()
    return done.elements


@pytest.mark.parametrize(
    "build",
    [*(LOSSES.get(name).create for name in LONG), lambda: PairwiseAUROCLoss("huber")],
    ids=[*LONG, "pairwise-auroc huber"],
)
def test_the_work_grows_with_the_items_and_not_with_their_pairs(build):
    short, long = work(build, 20_000), work(build, 40_000)
    assert long < 2.5 * short
    assert long < 1000 * 40_000  # there are 10,000 pairs to an item
