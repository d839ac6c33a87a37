"""Per-query values of random lists equal those of libraries that are not among the tools of development.

python -m pip install ranx ir-measures
"""

from __future__ import annotations

import os

import numpy as np
import pytest

from rankwise.metrics import evaluate

FEW, MANY = 150, int(os.environ.get("RANKWISE_CASES", "10000"))
cases = pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=["few", "many"])
# By our name that of ranx; ir_measures has the same after a change of spelling.
NAMES = {
    "ap": "map",
    "rr": "mrr",
    "r-precision": "r-precision",
    "precision@5": "precision@5",
    "recall@5": "recall@5",
    "hit@5": "hit_rate@5",
}


def make_lists(count, most, seed):
    """Scores without ties and grades of 2 to 30 items; something is relevant in every list."""
    random = np.random.default_rng(seed)
    lengths = random.integers(2, 31, count)
    ids = np.repeat(np.arange(count), lengths)
    grades = (random.random(len(ids)) < 0.3) * random.integers(1, most + 1, len(ids))
    grades[np.cumsum(lengths) - 1] = most
    return random.permutation(len(ids)) / 8, grades, ids


def by_query(scores, grades, ids):
    judged, run = {}, {}
    for place, query in enumerate(ids.tolist()):
        judged.setdefault(f"q{query:06d}", {})[f"d{place:08d}"] = int(grades[place])
        run.setdefault(f"q{query:06d}", {})[f"d{place:08d}"] = float(scores[place])
    return judged, run


def check(ours, theirs):
    np.testing.assert_allclose(ours.numpy(), np.asarray(theirs), rtol=0, atol=1e-12)


@cases
@pytest.mark.filterwarnings("ignore")
def test_ranx(count):
    ranx = pytest.importorskip("ranx")
    binary, graded = make_lists(count, 1, 0), make_lists(count, 4, 1)
    found = evaluate(binary[0], binary[1], list(NAMES), query_ids=binary[2], bootstrap=0).per_query
    judged, run = by_query(*binary)
    # ranx expects relevant documents only.
    relevant = {query: {name: grade for name, grade in own.items() if grade} for query, own in judged.items()}
    theirs = ranx.evaluate(ranx.Qrels(relevant), ranx.Run(run), list(NAMES.values()), return_mean=False)
    for name, their_name in NAMES.items():
        check(found[name], theirs[their_name])
    judged, run = by_query(*graded)
    relevant = {query: {name: grade for name, grade in own.items() if grade} for query, own in judged.items()}
    names = {"linear": ["ndcg", "ndcg@3", "ndcg@10"], "exp2": ["ndcg_burges", "ndcg_burges@3", "ndcg_burges@10"]}
    for gain, their_names in names.items():
        found = evaluate(
            graded[0], graded[1], ["ndcg", "ndcg@3", "ndcg@10"], query_ids=graded[2], gain=gain, bootstrap=0
        ).per_query
        theirs = ranx.evaluate(ranx.Qrels(relevant), ranx.Run(run), their_names, return_mean=False)
        for name, their_name in zip(found, their_names, strict=True):
            check(found[name], theirs[their_name])


@cases
@pytest.mark.filterwarnings("ignore")
def test_ir_measures(count):
    ir_measures = pytest.importorskip("ir_measures")
    scores, grades, ids = make_lists(count, 1, 2)
    judged, run = by_query(scores, grades, ids)
    measures = {
        "ap": ir_measures.AP,
        "rr": ir_measures.RR,
        "r-precision": ir_measures.Rprec,
        "precision@5": ir_measures.P @ 5,
        "recall@5": ir_measures.R @ 5,
        "hit@5": ir_measures.Success @ 5,
        "ndcg": ir_measures.nDCG,
        "ndcg@10": ir_measures.nDCG @ 10,
    }
    ours = evaluate(scores, grades, list(measures), query_ids=ids, bootstrap=0).per_query
    theirs = {
        (each.measure, each.query_id): each.value for each in ir_measures.iter_calc(measures.values(), judged, run)
    }
    for name, measure in measures.items():
        check(ours[name], [theirs[measure, query] for query in sorted(judged)])
