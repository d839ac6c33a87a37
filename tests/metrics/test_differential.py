"""Per-query values of random lists equal those of libraries that nobody here wrote."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch

pytest.importorskip("pytorch_metric_learning")
pytest.importorskip("pytrec_eval")
pytest.importorskip("sklearn")
pytest.importorskip("torchmetrics")

import pytrec_eval
import torchmetrics.functional.classification as by_torchmetrics
import torchmetrics.functional.retrieval as torchmetrics_retrieval
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from pytorch_metric_learning.utils.inference import CustomKNN
from sklearn.metrics import average_precision_score, ndcg_score, roc_auc_score

from rankwise.metrics import evaluate, evaluate_retrieval, partial_auroc

# So many lists: a few in `make test`, many in `make test-all` (RANKWISE_CASES says how many).
FEW, MANY = 150, int(os.environ.get("RANKWISE_CASES", "10000"))
cases = pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=["few", "many"])


class Case:
    """Ragged lists of 2 to 40 items, flat, with their ids; lists may lack relevant items, or irrelevant ones."""

    def __init__(self, count, *, ties, most=1, weights=False, seed=0):
        random = np.random.default_rng(seed)
        lengths = random.integers(2, 41, count)
        self.ids = np.repeat(random.permutation(count), lengths)
        size = int(lengths.sum())
        spread = np.repeat(10.0 ** random.integers(-6, 7, count), lengths)
        share = np.repeat(random.choice([0.0, 0.05, 0.3, 0.7, 1.0], count, p=[0.02, 0.3, 0.4, 0.26, 0.02]), lengths)
        self.labels = (random.random(size) < share) * random.integers(1, most + 1, size)
        normal = random.normal(size=size) + 0.5 * self.labels
        # Distinct in float32 too, in which some of the libraries keep scores.
        self.scores = (normal * 2).round() / 2 if ties else random.permutation(size).astype(np.float64) * 1e-6 + 1
        self.scores = self.scores * (spread if ties else 1)
        self.weights = random.choice([0.25, 1.0, 3.0], size) if weights else None

    def values(self, metrics, **options):
        """By metric, what we give for each list, NaN where it is left out."""
        found = evaluate(
            self.scores, self.labels, metrics, query_ids=self.ids, weights=self.weights, bootstrap=0, **options
        )
        return {name: values.numpy() for name, values in found.per_query.items()}

    def lists(self):
        """Scores, labels and weights of each list, in the order of the values."""
        order = np.argsort(self.ids, kind="stable")
        cuts = np.flatnonzero(np.diff(self.ids[order])) + 1
        weights = np.ones_like(self.scores) if self.weights is None else self.weights
        return zip(*(np.split(each[order], cuts) for each in (self.scores, self.labels, weights)), strict=True)


def check(ours, theirs, tolerance=1e-12):
    """Lists that either side leaves out are left out by both."""
    theirs = np.array(theirs, dtype=np.float64)
    assert ours.shape == theirs.shape
    np.testing.assert_array_equal(np.isnan(ours), np.isnan(theirs))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance)


def on_lists(case, function, *, both_classes=False, everywhere=False):
    """A function of the scores, labels and weights of a list, NaN where it has no relevant item."""
    values = []
    for scores, labels, weights in case.lists():
        defined = everywhere or ((labels > 0).any() and (not both_classes or (labels == 0).any()))
        values.append(float(function(scores, labels, weights)) if defined else np.nan)
    return values


@cases
@pytest.mark.parametrize("weights", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("ties", [False, True], ids=["distinct", "tied"])
def test_sklearn_for_binary_labels(count, ties, weights):
    case = Case(count, ties=ties, weights=weights)
    ours = case.values(["ap", "auroc"])
    check(ours["ap"], on_lists(case, lambda s, y, w: average_precision_score(y, s, sample_weight=w)))
    auroc = on_lists(case, lambda s, y, w: roc_auc_score(y, s, sample_weight=w), both_classes=True)
    check(ours["auroc"], auroc)


@cases
@pytest.mark.parametrize("most", [0.05, 0.3, 0.9])
def test_sklearn_for_a_part_of_the_curve(count, most):
    case = Case(count, ties=True, seed=1)
    ours = partial_auroc(case.scores, case.labels, query_ids=case.ids, fpr_range=(0.0, most), reduction="none").numpy()

    def area(scores, labels, _):
        """From McClish's correction back to the mean true positive rate."""
        corrected = roc_auc_score(labels, scores, max_fpr=most)
        least = most**2 / 2
        return ((2 * corrected - 1) * (most - least) + least) / most

    check(ours, on_lists(case, area, both_classes=True))


@cases
@pytest.mark.parametrize("k", [None, 1, 5, 100])
@pytest.mark.parametrize("ties", [False, True], ids=["distinct", "tied"])
def test_sklearn_for_grades(count, ties, k):
    case = Case(count, ties=ties, most=4, seed=2)
    name = "ndcg" if k is None else f"ndcg@{k}"
    for gain, of_grades in (("linear", lambda y: y), ("exp2", lambda y: 2.0**y - 1)):
        theirs = on_lists(case, lambda s, y, _, g=of_grades: ndcg_score([g(y)], [s], k=k))
        check(case.values([name], gain=gain)[name], theirs)


TREC = {
    "ap": "map",
    "rr": "recip_rank",
    "r-precision": "Rprec",
    **{f"precision@{k}": f"P_{k}" for k in (1, 5, 10)},
    **{f"recall@{k}": f"recall_{k}" for k in (1, 5, 10)},
    **{f"hit@{k}": f"success_{k}" for k in (1, 5, 10)},
}


def by_trec_eval(case, labels, names):
    """By name, the values of trec_eval; NaN for lists without a relevant item, which it gives 0, but for precision."""
    judged, run = {}, {}
    for place, query in enumerate(case.ids):
        judged.setdefault(f"{query:09d}", {})[f"{place:09d}"] = int(labels[place])
        run.setdefault(f"{query:09d}", {})[f"{place:09d}"] = float(case.scores[place])
    found = pytrec_eval.RelevanceEvaluator(judged, set(names)).evaluate(run)
    return {
        name: [
            found[query][name] if name.startswith("P_") or max(judged[query].values()) else np.nan
            for query in sorted(judged)
        ]
        for name in names
    }


@cases
def test_trec_eval_for_binary_labels(count):
    case = Case(count, ties=False, seed=3)
    theirs = by_trec_eval(case, case.labels, TREC.values())
    ours = case.values(list(TREC))
    for name, measure in TREC.items():
        check(ours[name], theirs[measure])


@cases
def test_trec_eval_for_grades(count):
    case = Case(count, ties=False, most=4, seed=4)
    names = {"ndcg": "ndcg", **{f"ndcg@{k}": f"ndcg_cut_{k}" for k in (1, 3, 10)}}
    for gain, labels in (("linear", case.labels), ("exp2", 2**case.labels - 1)):
        ours, theirs = case.values(list(names), gain=gain), by_trec_eval(case, labels, names.values())
        for name, measure in names.items():
            check(ours[name], theirs[measure])


@cases
def test_torchmetrics_for_lists(count):
    case = Case(max(1, count // 5), ties=False, seed=5)
    names = {
        "ap": (torchmetrics_retrieval.retrieval_average_precision, {}),
        "rr": (torchmetrics_retrieval.retrieval_reciprocal_rank, {}),
        "r-precision": (torchmetrics_retrieval.retrieval_r_precision, {}),
        "precision@5": (torchmetrics_retrieval.retrieval_precision, {"top_k": 5}),
        "recall@5": (torchmetrics_retrieval.retrieval_recall, {"top_k": 5}),
        "hit@5": (torchmetrics_retrieval.retrieval_hit_rate, {"top_k": 5}),
    }
    ours = case.values(list(names))
    for name, (function, options) in names.items():
        theirs = on_lists(
            case,
            lambda s, y, _, f=function, o=options: f(torch.from_numpy(s), torch.from_numpy(y), **o),
            everywhere=name.startswith("precision"),
        )
        check(ours[name], theirs, 1e-6)  # in float32


@cases
def test_torchmetrics_for_classifiers(count):
    case = Case(max(1, count // 5), ties=True, seed=6)
    ours = case.values(["ap", "auroc"])

    def theirs(function, both_classes):
        # Scores as probabilities, in their order and with their ties.
        return on_lists(
            case,
            lambda s, y, _: function(torch.from_numpy(np.unique(s, return_inverse=True)[1] / 64), torch.from_numpy(y)),
            both_classes=both_classes,
        )

    check(ours["ap"], theirs(by_torchmetrics.binary_average_precision, False), 1e-6)
    check(ours["auroc"], theirs(by_torchmetrics.binary_auroc, True), 1e-6)


@cases
@pytest.mark.filterwarnings("ignore")
def test_pytorch_metric_learning_for_retrieval(count):
    names = {
        "map@r": "mean_average_precision_at_r",
        "r-precision": "r_precision",
        "recall@1": "precision_at_1",
        "mrr": "mean_reciprocal_rank",
        "map": "mean_average_precision",
    }
    judge = AccuracyCalculator(
        include=tuple(names.values()), k=None, knn_func=CustomKNN(CosineSimilarity()), device=torch.device("cpu")
    )
    random = torch.Generator().manual_seed(7)
    for _ in range(max(1, count // 20)):
        items = int(torch.randint(12, 60, (1,), generator=random))
        points = torch.randn(items, 6, generator=random)
        classes = torch.randint(0, 5, (items,), generator=random)
        kept = torch.bincount(classes)[classes] > 1
        points, classes = points[kept], classes[kept]
        theirs = judge.get_accuracy(points, classes)
        ours = evaluate_retrieval(points, classes, list(names), bootstrap=0).means
        for name, theirs_name in names.items():
            assert ours[name] == pytest.approx(theirs[theirs_name], abs=1e-6), name
