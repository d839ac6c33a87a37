"""Metrics of retrieved documents equal those of trec_eval, by pytrec_eval and by ir_measures."""

from __future__ import annotations

import random

import pytest

from rankwise.cli import main
from rankwise.data import read_judgements, read_trec_run
from rankwise.metrics import evaluate_run

pytrec_eval = pytest.importorskip("pytrec_eval")

# Our names, those of trec_eval and those of ir_measures.
NAMES = {
    "ndcg@10": ("ndcg_cut_10", "nDCG@10"),
    "ndcg": ("ndcg", "nDCG"),
    "map": ("map", "AP"),
    "recall@5": ("recall_5", "R@5"),
    "mrr": ("recip_rank", "RR"),
    "precision@5": ("P_5", "P@5"),
}


def make(seed, queries=40, documents=60, ties=False):
    """Return runs of 0 to 30 documents and judgements of graded, irrelevant and never retrieved documents."""
    draw = random.Random(seed)
    names = [f"d{number}" for number in range(documents)]
    run, judged = {}, {}
    for number in range(queries):
        found = draw.sample(names, draw.randint(1, 30))
        scores = [draw.randint(0, 5) / 2 if ties else draw.gauss(0, 1) for _ in found]
        run[f"q{number}"] = dict(zip(found, scores, strict=True))
        judged[f"q{number}"] = {name: draw.choice([-1, 0, 1, 2, 3]) for name in draw.sample(names, draw.randint(1, 25))}
    return run, judged


@pytest.mark.parametrize("ties", [False, True])
def test_values_are_those_of_trec_eval(ties):
    run, judged = make(3, ties=ties)
    judged = {query: grades for query, grades in judged.items() if max(grades.values()) > 0}
    found = evaluate_run(run, judged, list(NAMES), bootstrap=0)
    asked = {"ndcg_cut.10", "ndcg", "map", "recall.5", "recip_rank", "P.5"}
    expected = pytrec_eval.RelevanceEvaluator(judged, asked).evaluate(run)
    for name, (trec, _) in NAMES.items():
        for row, query in enumerate(judged):
            assert float(found.per_query[name][row]) == pytest.approx(expected[query][trec], abs=1e-7), (name, query)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of ir_measures, on Python 3.12
def test_means_are_those_of_ir_measures():
    ir_measures = pytest.importorskip("ir_measures")
    run, judged = make(4)
    judged = {query: grades for query, grades in judged.items() if max(grades.values()) > 0}
    del run["q1"]  # nothing was found
    asked = {name: ir_measures.parse_measure(other) for name, (_, other) in NAMES.items()}
    expected = ir_measures.calc_aggregate(asked.values(), judged, run)
    found = evaluate_run(run, judged, list(NAMES), bootstrap=0)
    for name, measure in asked.items():
        assert found.means[name] == pytest.approx(expected[measure], abs=1e-7), name


def test_queries_without_a_relevant_document_are_left_out():
    found = evaluate_run({"a": {"x": 1}, "b": {"x": 1}}, {"a": {"x": 1}, "b": {"x": 0}}, ["map"], bootstrap=0)
    assert (found.means["map"], found.skipped["map"]) == (1, 1)


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(ValueError, match="got 'auroc'"):
        evaluate_run({"a": {"x": 1}}, {"a": {"x": 1}}, ["auroc"])
    with pytest.raises(ValueError, match="got none of them"):
        evaluate_run({"b": {"x": 1}}, {"a": {"x": 1}}, ["map"])


@pytest.fixture
def files(tmp_path):
    run, judged = make(5)
    worse = {query: {name: -score for name, score in scores.items()} for query, scores in run.items()}
    for name, content in (("first.trec", worse), ("second.trec", run)):
        lines = [
            f"{query} Q0 {document} {rank} {score!r} tag\n"
            for query, scores in content.items()
            for rank, (document, score) in enumerate(scores.items(), start=1)
        ]
        (tmp_path / name).write_text("".join(lines))
    lines = [f"{query} 0 {name} {grade}\n" for query, grades in judged.items() for name, grade in grades.items()]
    (tmp_path / "qrels.txt").write_text("".join(lines))
    return tmp_path


def test_two_run_files_are_compared(files, capsys):
    first, second = files / "first.trec", files / "second.trec"
    options = ["--judgements", str(files / "qrels.txt"), "--metric", "map"]
    assert main(["compare", str(first), str(second), *options]) == 0
    shown = capsys.readouterr().out
    judged = read_judgements(files / "qrels.txt").by_query()
    means = [evaluate_run(read_trec_run(path).by_query(), judged, ["map"]).means["map"] for path in (first, second)]
    assert f"{means[0]:.4f}" in shown
    assert f"{means[1] - means[0]:+.4f}" in shown
    assert main(["evaluate", str(second), *options]) == 0
    assert f"{means[1]:.4f}" in capsys.readouterr().out


def test_run_files_need_judgements(files, capsys):
    assert main(["compare", str(files / "first.trec"), str(files / "second.trec")]) == 2
    assert "--judgements" in capsys.readouterr().err


def test_short_and_long_lists_of_documents_are_measured_as_each_alone():
    run = {"a": {"x": 2, "y": 1}, "b": {name: 9 - place for place, name in enumerate("xyzuvw")}, "c": {"z": 1}}
    judged = {query: {"y": 1, "w": 2} for query in run}
    metrics = ["map", "ndcg", "precision", "recall@3", "mrr", "hit@1"]
    together = evaluate_run(run, judged, metrics, bootstrap=0)
    for place, query in enumerate(run):
        alone = evaluate_run({query: run[query]}, {query: judged[query]}, metrics, bootstrap=0)
        for name in metrics:
            assert float(together.per_query[name][place]) == pytest.approx(alone.means[name]), (query, name)
    assert together.per_query["precision"].tolist() == pytest.approx([1 / 2, 2 / 6, 0])
