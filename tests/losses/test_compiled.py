"""Losses in graphs of torch.compile(fullgraph=True): values, gradients, states and refusals of the plain ones."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from torch import nn

from rankwise import graphs
from rankwise.estimators import IdTable
from rankwise.losses import (
    LOSSES,
    ALRPLoss,
    AUPRCLoss,
    EmbeddingLoss,
    GroupPrior,
    LateMemoryLoss,
    ListStatistics,
    NDCGLoss,
    PApLoss,
    PriorSchedule,
    SemiVarianceLoss,
    StableAPLoss,
    SumLoss,
    SwitchLoss,
    TopKNDCGLoss,
    create_loss,
)
from rankwise.surrogates import Hinge, OneSidedHuber, Sigmoid, SquaredHinge

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*left out every list"),
    # `opcheck` and the compiler look at gradients of inner tensors.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]

LISTS, ITEMS = 6, 12
GRADES = torch.randint(0, 3, (LISTS, ITEMS), generator=torch.Generator().manual_seed(0))
GRADES[:, :2] = torch.tensor([0, 2])
STATISTICS = ListStatistics(GRADES.flatten(), torch.arange(LISTS).repeat_interleave(ITEMS), size=50)
# Losses that read tensor values on the way, or write state other than tables: in a graph they are one operator.
OPERATORS = {
    "contrastive",
    "cross-batch-memory",
    "fast-ap-pairs",
    "gumbel-approx-ndcg",
    "multi-similarity",
    "neural-ndcg",
    "triplet",
}


def weighted_rows(seed, grades=3):
    """Padded lists with a mask, weights and ids."""
    random = torch.Generator().manual_seed(seed)
    labels = GRADES if grades == 3 else (GRADES > 0).long()
    mask = torch.rand(LISTS, ITEMS, generator=random) < 0.8
    mask[:, :2] = True
    options = {
        "mask": mask,
        "weights": torch.rand(LISTS, ITEMS, generator=random) + 0.1,
        "query_ids": torch.arange(LISTS) * 7 - 3,
        "sample_ids": torch.arange(LISTS * ITEMS).view(LISTS, ITEMS),
    }
    return (2 * torch.randn(LISTS, ITEMS, generator=random), labels), options


def rows(seed, grades=3):
    """Padded lists with a mask and ids."""
    inputs, options = weighted_rows(seed, grades)
    return inputs, {name: option for name, option in options.items() if name != "weights"}


def plain_rows(seed, grades=3):
    return rows(seed, grades)[0], {}


def sampled(seed):
    return rows(seed)[0], {"query_ids": torch.arange(LISTS), "sample_ids": torch.arange(72).view(LISTS, ITEMS)}


def one_list(seed):
    (scores, labels), _ = rows(seed, 2)
    return (scores.flatten(), labels.flatten()), {}


def ragged(seed, grades=2):
    (scores, labels), _ = rows(seed, grades)
    order = torch.randperm(72, generator=torch.Generator().manual_seed(9))
    queries = torch.arange(LISTS).repeat_interleave(ITEMS)[order]
    return (scores.flatten(), labels.flatten()), {"query_ids": queries}


def vectors(seed):
    return (torch.randn(12, 4, generator=torch.Generator().manual_seed(seed)), torch.arange(12) // 3), {}


def assert_same(build, batch, *, backend="aot_eager", steps=3):
    """Compare a compiled loss with a plain one over some training steps and one in eval mode; return the compiled."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    plain = build()
    inner = copy.deepcopy(plain)
    compiled = torch.compile(inner, fullgraph=True, backend=backend)
    for step in range(steps + 1):
        if step == steps:
            plain.eval(), inner.eval()
        (scores, *others), options = batch(step)
        found = []
        for loss in (plain, compiled):
            leaf = scores.clone().requires_grad_()
            torch.manual_seed(step)
            value = loss(leaf, *others, **options)
            (3 * value.sum()).backward()
            gradients = [p.grad for p in loss.parameters()]
            found.append([value.detach(), leaf.grad, *gradients])
        torch.testing.assert_close(*found, rtol=2e-5, atol=2e-6, equal_nan=True)
        torch.testing.assert_close(inner.state_dict(), plain.state_dict(), rtol=1e-5, atol=1e-6)
        if hasattr(plain, "skipped"):
            assert inner.skipped == plain.skipped
    return inner


@pytest.fixture
def operators(monkeypatch):
    """The losses that became one operator."""
    found = []
    add = graphs._operator_value

    def note(loss, *others):
        found.append(type(loss).__name__)
        return add(loss, *others)

    monkeypatch.setattr(graphs, "_operator_value", note)
    return found


@pytest.mark.parametrize("record", LOSSES, ids=lambda record: record.name)
def test_a_compiled_loss_is_the_plain_one(record, operators):
    if record.build.__module__.endswith("metric_learning"):
        pytest.importorskip("pytorch_metric_learning")
    batch = vectors if record.inputs == "embeddings" else partial(rows, grades=3 if record.labels == "grades" else 2)
    assert_same(record.create, batch)
    assert bool(operators) == (record.name in OPERATORS)


CASES = {
    "soprc, one list": (AUPRCLoss, one_list),
    "soprc, classes": (lambda: AUPRCLoss(lists="columns"), partial(plain_rows, grades=2)),
    "soprc, ragged": (AUPRCLoss, ragged),
    "soprc, weighted": (AUPRCLoss, partial(weighted_rows, grades=2)),
    "soprc, prior of each list": (
        lambda: AUPRCLoss(GroupPrior([0.1] * LISTS, torch.arange(LISTS) * 7 - 3)),
        partial(rows, grades=2),
    ),
    "soprc, schedule": (lambda: AUPRCLoss(PriorSchedule(steps=2)), partial(rows, grades=2)),
    "soprc, recall of the batch": (lambda: AUPRCLoss(recall="batch", recall_gradient="full"), one_list),
    "stable-ap, weighted": (StableAPLoss, partial(weighted_rows, grades=2)),
    "stable-ap, by rank": (lambda: StableAPLoss(weighting="rank"), partial(rows, grades=2)),
    "song, weighted": (NDCGLoss, weighted_rows),
    "song, per list": (lambda: NDCGLoss(reduction="none"), rows),
    "song, sampled": (lambda: NDCGLoss(STATISTICS), sampled),
    "k-song, sampled": (lambda: TopKNDCGLoss(3, STATISTICS), sampled),
    "k-song, full gradient": (lambda: TopKNDCGLoss(3, selector_gradient="full"), rows),
    "solc, sampled": (lambda: create_loss("solc", statistics=STATISTICS), sampled),
    "pap, ts*": (lambda: PApLoss(3, surrogate="ts*"), partial(rows, grades=2)),
    "alrp": (ALRPLoss, lambda seed: ((*one_list(seed)[0], torch.rand(LISTS * ITEMS)), {})),
    "sum": (lambda: SumLoss(AUPRCLoss(), SemiVarianceLoss()), one_list),
    "switch": (lambda: SwitchLoss(AUPRCLoss(), StableAPLoss(), after=1), one_list),
    "retrieval": (lambda: EmbeddingLoss(AUPRCLoss()), vectors),
    "retrieval, products": (lambda: EmbeddingLoss(StableAPLoss(), similarity="dot"), vectors),
    "retrieval with memory": (lambda: LateMemoryLoss(AUPRCLoss(), memory=24, after=1), vectors),
}
# Of these, the ones that are one operator: ragged lists, the weighted ideal DCG, counted steps, memories.
CASE_OPERATORS = {"soprc, ragged", "soprc, schedule", "song, weighted", "alrp", "switch", "retrieval with memory"}


@pytest.mark.parametrize("case", CASES)
def test_other_input_and_options(case, operators):
    assert_same(*CASES[case])
    assert bool(operators) == (case in CASE_OPERATORS)


@pytest.mark.parametrize("case", ["soprc, one list", "song, sampled", "soprc, ragged"])
def test_inductor_computes_the_same(case):
    assert_same(*CASES[case], backend="inductor", steps=2)


def test_a_step_is_one_graph():
    torch._dynamo.reset()
    model, loss = nn.Linear(5, 1), AUPRCLoss()
    found = torch._dynamo.explain(lambda features: loss(model(features)[:, 0], torch.arange(24) % 4 == 0))(
        torch.randn(24, 5)
    )
    assert (found.graph_count, found.graph_break_count) == (1, 0)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_equal_calls_in_one_graph_are_two_updates(backend):
    torch._dynamo.reset()
    plain, inner = AUPRCLoss(update_rate=0.5), AUPRCLoss(update_rate=0.5)
    twice = torch.compile(lambda s, y: inner(s, y) + inner(s, y), fullgraph=True, backend=backend)
    for seed in range(2):
        (scores, labels), _ = one_list(seed)
        torch.testing.assert_close(twice(scores, labels), plain(scores, labels) + plain(scores, labels))
    torch.testing.assert_close(inner.state_dict(), plain.state_dict())


BAD = {
    "nan": lambda scores, labels: (scores.index_fill(1, torch.tensor([1]), torch.nan), labels),
    "labels": lambda scores, labels: (scores, labels + 5),
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("build", [AUPRCLoss, StableAPLoss, lambda: SwitchLoss(AUPRCLoss(), AUPRCLoss(), after=9)])
def test_a_refused_batch_changes_no_state(build, bad):
    torch._dynamo.reset()
    inner = build()
    compiled = torch.compile(inner, fullgraph=True, backend="aot_eager")
    (scores, labels), options = rows(0, 2)
    options = {"query_ids": options["query_ids"]}
    compiled(scores, labels, **options)
    before = copy.deepcopy(inner.state_dict())
    scores, labels = BAD[bad](scores, labels)
    with pytest.raises(ValueError, match=r"scores|labels") as plain:
        copy.deepcopy(inner)(scores, labels, **options)
    with pytest.raises(ValueError, match=r"scores|labels") as found:
        compiled(scores, labels, **options)
    assert str(found.value) == str(plain.value)
    torch.testing.assert_close(inner.state_dict(), before, rtol=0, atol=0)


def test_values_per_list_of_an_operator_are_refused():
    torch._dynamo.reset()
    compiled = torch.compile(AUPRCLoss(reduction="none"), fullgraph=True, backend="aot_eager")
    (scores, labels), options = ragged(0)
    with pytest.raises(Exception, match='reduction: AUPRCLoss with "none" and this input is no part of a compiled'):
        compiled(scores, labels, **options)


def test_a_compiled_loss_warns_of_batches_without_lists():
    torch._dynamo.reset()
    compiled = torch.compile(AUPRCLoss(), fullgraph=True, backend="aot_eager")
    batch = torch.randn(8), torch.zeros(8, dtype=torch.int64)
    for _ in range(9):
        compiled(*batch)
    with pytest.warns(UserWarning, match="left out every list of the last 10 batches"):
        compiled(*batch)


def test_losses_of_one_kind_keep_states_of_their_own():
    torch._dynamo.reset()
    one, other = AUPRCLoss(), AUPRCLoss()
    step = torch.compile(lambda loss, s, y: loss(s, y), fullgraph=True, backend="aot_eager")
    (scores, labels), _ = one_list(0)
    step(one, scores, labels)
    assert len(one.tracker.table) == 1
    assert len(other.tracker.table) == 0
    step(other, scores, labels)
    assert len(other.tracker.table) == 1


@pytest.mark.parametrize("surrogate", [OneSidedHuber(0.5), Hinge(0.3), SquaredHinge(1.0), Sigmoid(0.2)])
@pytest.mark.parametrize("masked", [False, True])
def test_the_operator_of_pair_sums_is_sound(surrogate, masked):
    from rankwise.pairs import operators, pair_sums

    random = torch.Generator().manual_seed(0)
    anchors, others, weights = (torch.randn(3, n, generator=random) for n in (5, 7, 7))
    masks = [torch.rand(3, n, generator=random) < 0.7 for n in (5, 7)] if masked else [None, None]
    tensors = [anchors.requires_grad_(), others.requires_grad_(), weights.requires_grad_()]
    (parameter,) = vars(surrogate).values()
    torch.library.opcheck(
        torch.ops.rankwise.pair_sums, (*tensors, *masks, type(surrogate).__name__, parameter), atol=1e-5, rtol=1e-5
    )
    options = {"weights": weights, "anchor_mask": masks[0], "other_mask": masks[1]}
    sums_of = operators.add_pair_sums, pair_sums
    found, expected = (function(anchors, others, surrogate, **options) for function in sums_of)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(sums.square().sum(), tensors) for sums in (found, expected)]
    torch.testing.assert_close(*gradients)


def test_the_operators_of_tables_and_checks_are_sound():
    order, table, loss = torch.zeros(1), IdTable(width=2), AUPRCLoss()
    ids, values = torch.tensor([4, 9, 4]), torch.randn(3, 2)
    operators = torch.ops.rankwise
    torch.library.opcheck(operators.update, (order, table._number, ids, values, 0.5, "linear", None, None, True, False))
    torch.library.opcheck(operators.locate, (order, table._number, ids))
    torch.library.opcheck(operators.read, (order, table._number, torch.tensor([0, -1, 1])))
    torch.library.opcheck(operators.note, (order, loss._number, torch.tensor([True, False])))
    (scores, labels), _ = one_list(0)
    torch.library.opcheck(operators.refuse, (order, torch.tensor(False), loss._number, "", [scores, labels, None]))
    stateless = create_loss("smooth-ap")
    torch.library.opcheck(operators.loss, (order, stateless._number, "", [0], [scores, labels], []))
