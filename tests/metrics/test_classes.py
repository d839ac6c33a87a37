"""The torchmetrics classes: function = class = several processes = plain definition."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from oracles import metrics as oracle
from rankwise import metrics
from workers.processes import run_ranks

pytest.importorskip("torchmetrics")

CASES = {
    "AveragePrecision": ({}, metrics.average_precision, oracle.average_precision, ()),
    "NDCG": ({"k": 3}, metrics.ndcg, oracle.ndcg, (3, lambda grade: 2**grade - 1)),
    "PAp": ({"k": 2}, metrics.pap, oracle.pap, (2,)),
    "Precision": ({"k": 2}, metrics.precision, oracle.precision, (2,)),
    "Recall": ({"k": 2}, metrics.recall, oracle.recall, (2,)),
    "HitRate": ({"k": 2}, metrics.hit_rate, oracle.hit, (2,)),
    "ReciprocalRank": ({"k": 3}, metrics.reciprocal_rank, oracle.reciprocal_rank, (3,)),
    "AUROC": ({}, metrics.auroc, oracle.auroc, ()),
    "PartialAUROC": ({"fpr_range": (0.0, 0.4)}, metrics.partial_auroc, oracle.partial_auroc, (0.0, 0.4)),
}


def items(size=90, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(6, (size,), generator=generator).float()
    labels = torch.randint(2, (size,), generator=generator)
    query_ids = torch.randint(12, (size,), generator=generator) * 5 - 20
    return scores, labels, query_ids, torch.arange(size)


def plain_mean(of_list, options):
    scores, labels, query_ids, _ = items()
    values = []
    for query in query_ids.unique():
        own = query_ids == query
        values.append(of_list(list(zip(scores[own].tolist(), labels[own].tolist(), strict=True)), *options))
    return torch.tensor(values, dtype=torch.float64).nanmean().item()


def in_process(rank, world, where, results):
    """Both processes see a part, some items in both; then only the last one sees anything."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{where}", rank=rank, world_size=world)
    seen = items()
    found = {}
    for name, (options, *_) in CASES.items():
        shared, lopsided = (getattr(metrics, name)(**options) for _ in range(2))
        scores, labels, query_ids, sample_ids = (values[:50] if rank == 0 else values[43:] for values in seen)
        shared.update(scores[:20], labels[:20], query_ids=query_ids[:20], sample_ids=sample_ids[:20])
        shared.update(scores[20:], labels[20:], query_ids=query_ids[20:], sample_ids=sample_ids[20:])
        if rank == world - 1:
            lopsided.update(*seen[:2], query_ids=seen[2])
        with warnings.catch_warnings():
            # torchmetrics warns of a metric that was not updated in this process.
            warnings.simplefilter("ignore")
            found[name] = {"shared": shared.compute().item(), "lopsided": lopsided.compute().item()}
    torch.save(found, f"{results}.{rank}")
    dist.destroy_process_group()
    # What counts is written. Once, torch aborted while threads of its own were taken down at the end of the process.
    os._exit(0)


@pytest.fixture(scope="module")
def of_processes(tmp_path_factory):
    """What each of two processes computed."""
    folder = tmp_path_factory.mktemp("processes")
    run_ranks(in_process, 2, str(folder / "store"), str(folder / "results"))
    return [torch.load(folder / f"results.{rank}") for rank in range(2)]


@pytest.mark.parametrize("name", CASES)
def test_class_is_the_function_and_the_plain_definition(name):
    options, function, of_list, oracle_options = CASES[name]
    scores, labels, query_ids, _ = items()
    metric = getattr(metrics, name)(**options)
    for part in (slice(0, 31), slice(31, 33), slice(33, None)):
        metric.update(scores[part], labels[part], query_ids=query_ids[part])
    expected = function(scores, labels, query_ids=query_ids, **options).item()
    assert metric.compute().item() == pytest.approx(expected, abs=1e-14)
    assert expected == pytest.approx(plain_mean(of_list, oracle_options), abs=1e-12)


@pytest.mark.parametrize("share", ["shared", "lopsided"])
@pytest.mark.parametrize("name", CASES)
def test_two_processes_agree_with_one_even_if_one_saw_nothing(of_processes, name, share):
    options, function, _, _ = CASES[name]
    scores, labels, query_ids, _ = items()
    expected = function(scores, labels, query_ids=query_ids, **options).item()
    for found in of_processes:
        assert found[name][share] == pytest.approx(expected, abs=1e-14)


def test_item_seen_twice_counts_once_where_it_has_an_id():
    scores, labels, query_ids, sample_ids = items()
    once, twice, blind = (metrics.AveragePrecision() for _ in range(3))
    once.update(scores, labels, query_ids, sample_ids)
    for metric, ids in ((twice, sample_ids), (blind, None)):
        metric.update(scores, labels, query_ids, ids)
        metric.update(scores[:9], labels[:9], query_ids[:9], None if ids is None else ids[:9])
    torch.testing.assert_close(twice.compute(), once.compute(), rtol=0, atol=1e-12)
    assert not torch.isclose(blind.compute(), once.compute())


def test_same_sample_in_two_lists_counts_in_both():
    metric = metrics.Precision(k=2)
    metric.update([2.0, 1.0, 2.0, 1.0], [1, 1, 1, 0], query_ids=[0, 0, 1, 1], sample_ids=[8, 9, 8, 9])
    assert metric.compute().item() == 0.75


def test_rows_with_ids_and_mask_are_taken():
    scores, labels = torch.tensor([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]]), torch.tensor([[1, 0, 1], [1, 0, 1]])
    mask = torch.tensor([[True, True, True], [True, True, False]])
    metric = metrics.AveragePrecision()
    metric.update(scores, labels, query_ids=[4, 2], mask=mask)
    torch.testing.assert_close(metric.compute(), metrics.average_precision(scores, labels, mask=mask))


def test_item_weights_are_those_of_the_function():
    scores, labels, query_ids, _ = items()
    weights = torch.rand(len(scores), generator=torch.Generator().manual_seed(1))
    metric = metrics.NDCG(k=4, gain="linear")
    metric.update(scores, labels, query_ids, weights=weights)
    expected = metrics.ndcg(scores, labels, k=4, gain="linear", query_ids=query_ids, weights=weights.double())
    torch.testing.assert_close(metric.compute(), expected)


def test_reset_forgets():
    metric = metrics.AUROC()
    metric.update([1.0, 2.0], [1, 0])
    metric.reset()
    metric.update([1.0, 2.0], [0, 1])
    assert metric.compute().item() == 1


def test_metric_that_has_seen_nothing_is_nan():
    metric = metrics.AveragePrecision()
    with pytest.warns(UserWarning, match="compute"):
        assert torch.isnan(metric.compute())


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: metrics.NDCG(k=0), ValueError, "k: expected a whole number"),
        (lambda: metrics.NDCG(gain="exp"), ValueError, "gain: unknown word"),
        (lambda: metrics.PAp(k=2, ties="first"), ValueError, "ties: unknown word"),
        (lambda: metrics.AUROC(empty="ignore"), ValueError, "empty: unknown word"),
        (lambda: metrics.AUROC(swallowed=1), ValueError, "swallowed"),
        (lambda: metrics.RankingMetric("ndgc"), ValueError, "did you mean 'ndcg'"),
        (lambda: metrics.AUROC().update(torch.zeros(2, 2), torch.zeros(2, 2)), ValueError, "query_ids: expected ids"),
        (lambda: metrics.AUROC().update([1.0], [1, 0]), ValueError, "labels: expected the shape of scores"),
        (lambda: metrics.AUROC().update([1.0], [1], [0.5]), TypeError, "query_ids: expected integers"),
        (lambda: metrics.AUROC().update([1.0], [1], [0], [0, 1]), ValueError, "sample_ids: expected the shape"),
        (lambda: metrics.AUROC().update([1.0], [1], mask=[1]), TypeError, "mask: expected booleans"),
        (lambda: metrics.AUROC().update([float("nan")], [1]), ValueError, "scores: expected finite"),
    ],
)
def test_bad_argument_is_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_torchmetrics_is_asked_for_by_classes_only_and_named_when_missing():
    code = """
import sys

asked = []

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "torchmetrics":
            asked.append(name)
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
import rankwise.metrics as metrics
assert metrics.average_precision([1.0, 0.0], [1, 0]).item() == 1
print(asked)
try:
    metrics.NDCG
except ImportError as error:
    print(asked, error)
"""
    source = str(Path(metrics.__file__).parents[2])
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": source}
    )
    before, after = run.stdout.splitlines()
    assert before == "[]"
    assert after.startswith("['torchmetrics'] ")
    assert 'pip install "rankwise[metrics]"' in after


@pytest.mark.parametrize("name", CASES)
def test_a_plot_shows_all_values_there_can_be(name):
    metric = getattr(metrics, name)(**CASES[name][0])
    assert (metric.plot_lower_bound, metric.plot_upper_bound, metric.higher_is_better) == (0.0, 1.0, True)
