"""Losses, metrics, estimators and samplers on a pretend accelerator: the values, gradients and states of the CPU."""

from __future__ import annotations

import warnings
from functools import partial

import pytest
import torch
from torch.nn.functional import normalize

import rankwise as rw
from benchmarks.device.pretend import DEVICE, PretendDevice, PretendTensor
from rankwise import checks, metrics, samplers
from rankwise.estimators import IdTable, PairAverages, RecentRows
from rankwise.losses import (
    LOSSES,
    ALRPLoss,
    AUPRCLoss,
    EmbeddingLoss,
    GroupPrior,
    LateMemoryLoss,
    ListStatistics,
    ListwiseCELoss,
    NDCGLoss,
    PApLoss,
    PriorSchedule,
    SemiVarianceLoss,
    StableAPLoss,
    SumLoss,
    SwitchLoss,
    TopKNDCGLoss,
    class_prior,
    create_loss,
    data_prior,
    pap_margins,
)

LIST_LOSSES = [record for record in LOSSES if record.inputs == "scores"]
# Which of the items that tie for the last of the k best is taken is left open.
TOP_K = ("pap", "hinge-partial-auc", "precision-at-k", "greedy-top-k")
PAIR_LOSSES = [record for record in LOSSES if record.inputs == "embeddings"]


def random(seed=0):
    return torch.Generator().manual_seed(seed)


def lists(layout, grades, seed=0, weighted=True, tied=True):
    """Return scores, labels and the options of a call; rows have masks, weights and ids."""
    generator = random(seed)
    if layout == "ragged":
        queries = torch.arange(4).mul(5).sub(9).repeat_interleave(torch.tensor([3, 12, 40, 6]))
        queries = queries[torch.randperm(len(queries), generator=generator)]
        scores = 3 * torch.randn(len(queries), generator=generator)
        return scores, torch.randint(0, grades, scores.shape, generator=generator), {"query_ids": queries}
    shape = {"one": (40,), "columns": (20, 3)}.get(layout, (5, 12))
    scores = torch.randint(-6, 7, shape, generator=generator) / 2.0
    if not tied:
        scores += torch.rand(shape, generator=generator)
    labels = torch.randint(0, grades, shape, generator=generator)
    if layout != "rows":
        return scores, labels, {}
    mask = torch.rand(shape, generator=generator) < 0.8
    mask[:, :2], labels[:, :2] = True, torch.tensor([0, grades - 1])
    options = {
        "mask": mask,
        "weights": torch.rand(shape, generator=generator) + 0.1 if weighted else mask.float(),
        "query_ids": torch.arange(5) * 7 - 3,
        "sample_ids": torch.arange(60).view(shape),
    }
    return scores, labels, options


def call(loss, put, scores, *others, **options):
    """Return the value and the gradient of one call."""
    scores = put(scores).requires_grad_()
    value = loss(scores, *map(put, others), **{name: put(option) for name, option in options.items()})
    value.sum().backward()
    return [value.detach(), scores.grad]


def train(build, batches, put, device):
    """Return values and gradients of some calls, the state after them, and what a loss with that state gives then."""
    loss = build().to(device)
    results = [tensor for batch in batches[:-1] for tensor in call(loss, put, *batch[:-1], **batch[-1])]
    state = loss.state_dict()
    assert all(buffer.device.type == device.type for buffer in loss.buffers())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a state that has seen nothing
        again = build().to(device)
        again.load_state_dict(state)
    results += call(again, put, *batches[-1][:-1], **batches[-1][-1])
    return [*results, *state.values()]


def assert_equal(on_cpu, on_device, tolerance=1e-5):
    assert len(on_cpu) == len(on_device)
    for ours, theirs in zip(on_cpu, on_device, strict=True):
        if isinstance(theirs, PretendTensor):
            theirs = theirs.numbers
        torch.testing.assert_close(theirs, ours, rtol=tolerance, atol=tolerance, equal_nan=True, check_dtype=False)


def assert_same_training(build, batches, **device):
    torch.manual_seed(0)
    on_cpu = train(build, batches, torch.clone, torch.device("cpu"))
    torch.manual_seed(0)
    with PretendDevice(**device) as pretend:
        on_device = train(build, batches, pretend.put, DEVICE)
    assert_equal(on_cpu, on_device, 1e-5 if pretend.float64 else 1e-3)


@pytest.fixture
def without_float64(monkeypatch):
    """Give the pretend device the restriction of MPS."""
    monkeypatch.setattr(checks, "_WITHOUT_FLOAT64", {DEVICE.type})


def batches_of(record, layout):
    grades = 2 if record.labels == "binary" else 4
    # Ranks of unequal weights are undefined.
    weighted = record.name != "blackbox-ap"
    return [lists(layout, grades, seed, weighted, tied=record.name not in TOP_K) for seed in range(3)]


@pytest.mark.parametrize("layout", ["one", "rows", "ragged", "columns"])
@pytest.mark.parametrize("record", LIST_LOSSES, ids=lambda record: record.name)
def test_a_loss_is_that_of_the_cpu(record, layout):
    build = partial(record.build, **({"lists": "columns"} if layout == "columns" else {}))
    assert_same_training(build, batches_of(record, layout))


@pytest.mark.parametrize("record", LIST_LOSSES, ids=lambda record: record.name)
def test_a_loss_needs_no_float64(record, without_float64):
    assert_same_training(record.build, batches_of(record, "rows"), float64=False)


FULL = torch.randint(0, 4, (6, 50), generator=random(1)) * (torch.rand(6, 50, generator=random(2)) < 0.4)


def statistics():
    return ListStatistics(FULL.flatten(), torch.arange(6).repeat_interleave(50))


def samples(seed):
    items = torch.stack([torch.randperm(50, generator=random(10 * seed + row))[:12] for row in range(6)])
    options = {"query_ids": torch.arange(6), "sample_ids": items}
    return torch.randn(6, 12, generator=random(seed)), FULL.gather(1, items), options


SAMPLED = {
    "song": lambda: NDCGLoss(statistics()),
    "song, exact": lambda: NDCGLoss(statistics(), self_weight="exact"),
    "song, naive": lambda: NDCGLoss(statistics(), self_weight="naive"),
    "k-song": lambda: TopKNDCGLoss(5, statistics()),
    "k-song, full": lambda: TopKNDCGLoss(5, statistics(), selector_gradient="full"),
    "solc": lambda: ListwiseCELoss(statistics()),
}


@pytest.mark.parametrize("name", SAMPLED)
def test_sampled_lists_are_those_of_the_cpu(name):
    assert_same_training(SAMPLED[name], [samples(seed) for seed in range(4)])


@pytest.mark.parametrize("name", SAMPLED)
def test_sampled_lists_need_no_float64(name, without_float64):
    assert_same_training(SAMPLED[name], [samples(seed) for seed in range(4)], float64=False)


BINARY_VARIANTS = {
    "batch recall": lambda: AUPRCLoss(recall="batch", recall_gradient="full", recall_floor=0.2),
    "full recall gradient": lambda: AUPRCLoss(recall_gradient="full"),
    "tanh": lambda: AUPRCLoss("batch", link="tanh"),
    "schedule": lambda: AUPRCLoss(PriorSchedule(0.5, 0.02, 10), link="none"),
    "values of lists": lambda: AUPRCLoss(reduction="none"),
    "rank weights": lambda: StableAPLoss("batch", weighting="rank"),
    "one h": lambda: StableAPLoss(outer="batch"),
    "sum": lambda: SumLoss(AUPRCLoss(), SemiVarianceLoss(3, 15)),
    **{f"pap {word}": partial(PApLoss, 4, surrogate=word) for word in ("ramp", "avg", "avg+", "max", "ts", "ts*")},
    "pap of all": lambda: PApLoss(None, surrogate="ts", short_lists="clip"),
}
GRADED_VARIANTS = {
    "k-song": lambda: TopKNDCGLoss(3),
    "k-song, full": lambda: TopKNDCGLoss(3, selector_gradient="full"),
    "gains of a function": lambda: NDCGLoss(gain=_doubled),
    "switch": lambda: SwitchLoss(ListwiseCELoss(), NDCGLoss(), after=1),
}


def _doubled(grades):
    return grades * 2.0


@pytest.mark.parametrize("layout", ["rows", "ragged"])
@pytest.mark.parametrize("name", [*BINARY_VARIANTS, *GRADED_VARIANTS])
def test_options_give_what_they_give_on_the_cpu(name, layout):
    if name == "values of lists" and layout == "ragged":
        pytest.skip("a list without positives has no value")
    build, grades = (BINARY_VARIANTS[name], 2) if name in BINARY_VARIANTS else (GRADED_VARIANTS[name], 4)
    batches = [lists(layout, grades, seed, tied="pap" not in name) for seed in range(3)]
    assert_same_training(build, batches)


def test_previous_scores_are_used_as_on_the_cpu():
    batches = [lists("rows", 2, seed) for seed in range(3)]
    for seed, (scores, _, options) in enumerate(batches):
        options["previous_scores"] = scores + torch.randn(scores.shape, generator=random(seed))
    assert_same_training(StableAPLoss, batches)


def test_long_lists_are_those_of_the_cpu():
    scores = torch.randn(2, 9000, generator=random())
    labels = (torch.rand(2, 9000, generator=random(1)) < 0.15).long()
    for build in (AUPRCLoss, NDCGLoss, partial(create_loss, "pairwise-auroc")):
        assert_same_training(build, [(scores, labels, {})] * 2)


def vectors(seed, size=24, references=False, previous=False):
    embeddings = torch.randn(size, 6, generator=random(seed))
    options = {}
    if references:
        options["reference_embeddings"] = torch.randn(30, 6, generator=random(seed + 50))
        options["reference_labels"] = torch.arange(30) % 6
    if previous:
        options["previous_embeddings"] = embeddings + 0.1
    return embeddings, torch.arange(size) // 4, options


RETRIEVAL = {
    "soprc": lambda: EmbeddingLoss(AUPRCLoss()),
    "soprc of products": lambda: EmbeddingLoss(AUPRCLoss(), similarity="dot"),
    "stable ap": lambda: EmbeddingLoss(StableAPLoss()),
    "song": lambda: EmbeddingLoss(NDCGLoss()),
    "pap": lambda: EmbeddingLoss(PApLoss(5)),
    "smooth ap": lambda: EmbeddingLoss(create_loss("smooth-ap")),
    "fast ap": lambda: EmbeddingLoss(create_loss("fast-ap")),
    "sum": lambda: EmbeddingLoss(SumLoss(AUPRCLoss(), SemiVarianceLoss())),
    "late memory": lambda: LateMemoryLoss(AUPRCLoss(), memory=60, after=1),
}


@pytest.mark.parametrize("case", ["batch", "references", "previous"])
@pytest.mark.parametrize("name", RETRIEVAL)
def test_retrieval_is_that_of_the_cpu(name, case):
    given = {} if case == "batch" else {case: True}
    assert_same_training(RETRIEVAL[name], [vectors(seed, **given) for seed in range(4)])


def test_large_batches_are_those_of_the_cpu():
    assert_same_training(RETRIEVAL["soprc"], [vectors(seed, size=400) for seed in range(2)])


@pytest.mark.parametrize("name", RETRIEVAL)
def test_retrieval_needs_no_float64(name, without_float64):
    assert_same_training(RETRIEVAL[name], [vectors(seed) for seed in range(3)], float64=False)


@pytest.mark.parametrize("record", PAIR_LOSSES, ids=lambda record: record.name)
def test_a_pair_loss_is_that_of_the_cpu(record):
    pytest.importorskip("pytorch_metric_learning")
    batches = [(normalize(embeddings), classes, {}) for embeddings, classes, _ in map(vectors, range(3))]
    assert_same_training(record.build, batches)


def on_both(run, *tensors, **device):
    """Return what `run` returns of tensors on the CPU and of the same tensors on the device."""
    ours = run(*map(torch.clone, tensors))
    with PretendDevice(**device) as pretend:
        return ours, run(*map(pretend.put, tensors))


def test_alrp_is_that_of_the_cpu():
    def run(scores, labels, errors):
        scores, errors = scores.requires_grad_(), errors.requires_grad_()
        value = ALRPLoss().to(scores.device)(scores, labels, errors)
        return [value.detach(), *torch.autograd.grad(value, (scores, errors))]

    tensors = torch.randn(30, generator=random()), (torch.arange(30) < 8).long(), torch.rand(30, generator=random(1))
    assert_equal(*on_both(run, *tensors))


@pytest.mark.parametrize("float64", [True, False])
@pytest.mark.parametrize("layout", ["one", "rows", "ragged"])
def test_metrics_are_those_of_the_cpu(layout, float64, request):
    if not float64:
        request.getfixturevalue("without_float64")
    names = ["ap", "ndcg", "ndcg@3", "pap@3", "precision@3", "recall@5", "hit@3", "rr", "auroc", "pauroc", "map@r"]
    scores, labels, options = lists(layout, 2, weighted=False)
    options.pop("sample_ids", None)
    for ties in ("average", "pessimistic", "stable"):

        def run(scores, labels, *others, ties=ties):
            given = dict(zip(options, others, strict=True))
            result = rw.evaluate(scores, labels, names, ties=ties, bootstrap=20, **given)
            assert result.query_ids.device == result.per_query["ap"].device
            assert (result.query_ids.device == scores.device) == (float64 or scores.device.type == "cpu")
            return [*result.per_query.values(), *map(torch.tensor, result.intervals.values())]

        assert_equal(*on_both(run, scores, labels, *options.values(), float64=float64))


@pytest.mark.parametrize("float64", [True, False])
def test_retrieval_metrics_and_classes_are_those_of_the_cpu(float64, request):
    if not float64:
        request.getfixturevalue("without_float64")
    embeddings, classes, _ = vectors(0, size=40)

    def retrieve(embeddings, classes):
        return [torch.tensor(mean) for mean in rw.evaluate_retrieval(embeddings, classes, bootstrap=20).means.values()]

    assert_equal(*on_both(retrieve, embeddings, classes, float64=float64))
    pytest.importorskip("torchmetrics")
    scores, labels, _ = lists("rows", 2)

    def accumulate(scores, labels, queries):
        metric = metrics.AveragePrecision().to(scores.device)
        metric.update(scores, labels, query_ids=queries)
        metric.update(scores + 0.1, labels, query_ids=queries + 5)
        return [metric.compute()]

    assert_equal(*on_both(accumulate, scores, labels, torch.arange(5), float64=float64))


def test_comparisons_and_margins_are_those_of_the_cpu():
    scores, labels, _ = lists("rows", 2)

    def run(scores, labels):
        first, second = (rw.evaluate(each, labels, ["ap"], bootstrap=0) for each in (scores, scores + labels))
        margins = pap_margins(scores, labels, k=3)
        return [torch.tensor(rw.compare(first, second).p_value), margins.weak, margins.moderate]

    assert_equal(*on_both(run, scores, labels))


def test_estimators_are_those_of_the_cpu():
    def run(ids, pairs, values):
        table, averages = IdTable(width=2).to(ids.device), PairAverages(0.3, "log").to(ids.device)
        results = []
        for step in range(4):
            known = ids[step * 100 : step * 100 + 300]
            results += [table.update(known, values[: len(known)], 0.3), averages(pairs + step, values[:, 0])]
        averages.eval()
        recent = RecentRows(50).to(ids.device)
        for _ in range(3):
            recent.add(values[:20], ids[:20])
        results += [*table.read(ids), averages(pairs, values[:, 0]), recent.vectors, recent.classes]
        return [*results, table.ids, table.rows, averages.table.ids, averages.table.rows]

    ids = torch.randint(-(10**12), 10**12, (600,), generator=random()).repeat_interleave(2)[:600]
    pairs = torch.randint(0, 20, (300, 2), generator=random(1))
    assert_equal(*on_both(run, ids, pairs, torch.randn(300, 2, generator=random(2))))


def test_samplers_take_labels_of_the_device():
    labels = (torch.arange(200) % 10 == 0).long()

    def run(labels, queries):
        made = (
            samplers.ShuffledBatchSampler(labels, batch_size=16, drop_last=True, seed=0),
            samplers.BinaryBatchSampler(labels, positives=2, negatives=6),
            samplers.create_sampler("queries", labels, query_ids=queries, queries=2, relevant=2, irrelevant=3),
        )
        return [torch.tensor(next(iter(sampler))) for sampler in made]

    assert_equal(*on_both(run, labels, torch.arange(200) // 40))


def test_priors_may_be_made_of_tensors_of_the_device():
    def run(labels, groups):
        many, classes = data_prior(labels), class_prior(groups)
        given = GroupPrior(labels.float().mean(0))
        return [prior(torch.zeros_like(groups[:2]).float(), groups[:2]) for prior in (many, classes, given)]

    labels = (torch.rand(50, 3, generator=random()) < 0.3).long()
    assert_equal(*on_both(run, labels, torch.tensor([2, 1, 1, 2])))


def test_labels_and_ids_may_stay_on_the_cpu():
    scores, labels, options = lists("rows", 2)
    expected = call(AUPRCLoss(), torch.clone, scores, labels, **options, group_ids=torch.arange(5) // 2)
    with PretendDevice() as pretend:
        leaf = pretend.put(scores).requires_grad_()
        value = AUPRCLoss().to(DEVICE)(leaf, labels, **options, group_ids=torch.arange(5) // 2)
        value.backward()
        assert_equal(expected, [value.detach(), leaf.grad])


NOT_MOVED = {
    "soprc": (AUPRCLoss, {}),
    "stable ap": (StableAPLoss, {}),
    "group prior": (lambda: AUPRCLoss(GroupPrior([0.1, 0.2]), recall="batch", link="none"), {}),
    "statistics": (lambda: NDCGLoss(statistics()), {"sample_ids": torch.arange(40)}),
}


@pytest.mark.parametrize("name", NOT_MOVED)
def test_a_loss_that_was_not_moved_says_so(name):
    build, options = NOT_MOVED[name]
    scores, labels, _ = lists("one", 2)
    with (
        PretendDevice() as pretend,
        pytest.raises(RuntimeError, match=r'is on cpu, its input on meta.*loss\.to\("meta'),
    ):
        call(build(), pretend.put, scores, labels, **options)


@pytest.mark.parametrize("build", [partial(PApLoss, 3), NDCGLoss, partial(create_loss, "ranknet")])
def test_a_loss_without_state_needs_no_move(build):
    scores, labels, _ = lists("one", 2)
    with PretendDevice() as pretend:
        on_device = call(build(), pretend.put, scores, labels)
    assert_equal(call(build(), torch.clone, scores, labels), on_device)


@pytest.mark.parametrize("name", ["auprc", "stable-ap", "ndcg", "pap", "smooth-ap", "lambdarank"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_that_of_the_cpu(name, dtype):
    scores, labels, _ = lists("rows", 2)
    batches = [(scores.to(dtype), labels, {})] * 2
    assert_same_training(partial(create_loss, name), batches)


def test_a_cast_leaves_the_state_exact():
    """A moving average in half precision would stop moving."""
    built = {
        "soprc": lambda: AUPRCLoss(GroupPrior([0.1] * 5)),
        "song": lambda: NDCGLoss(statistics()),
        "memory": lambda: LateMemoryLoss(AUPRCLoss(), memory=60),
        "xbm": partial(create_loss, "cross-batch-memory"),
    }
    given = {"soprc": lists("columns", 2)[:2], "song": samples(0), "memory": vectors(0), "xbm": vectors(0)}
    for name, build in built.items():
        if name == "xbm":
            pytest.importorskip("pytorch_metric_learning")
        loss = build()
        options = given[name][2] if len(given[name]) > 2 else {"query_ids": torch.arange(5)}
        scores, labels = given[name][:2]
        if name == "soprc":
            scores, labels = 5 * torch.randn(5, 8, generator=random()), torch.arange(8).expand(5, 8) % 2
        loss(scores, labels, **options)
        before = {key: value.clone() for key, value in loss.state_dict().items()}
        for cast in (loss.bfloat16, loss.half):
            after = cast().state_dict()
            assert all(
                torch.equal(after[key], value) and after[key].dtype == value.dtype for key, value in before.items()
            )
        assert bool(loss(scores, labels, **options).isfinite())


def test_values_have_the_dtype_of_the_scores():
    scores, labels, _ = lists("rows", 2)
    for record in LIST_LOSSES:
        for dtype in (torch.float32, torch.float64):
            assert record.build()(scores.to(dtype), labels).dtype == dtype, record.name


def test_state_and_errors_of_other_devices_are_not_read_by_numpy():
    with PretendDevice() as pretend:
        tensor = pretend.put(torch.arange(3.0))
        with pytest.raises(TypeError, match="numpy"):
            tensor.numpy()
        with pytest.raises(RuntimeError, match="one device"):
            tensor + torch.arange(3.0)
        pretend.reset()
        assert (tensor + 1).sum().item() == 6
        assert list(pretend.stops) == ["_local_scalar_dense at the backward pass"]
