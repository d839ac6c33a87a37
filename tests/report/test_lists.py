"""Curves and lists of a report: they say what the metrics say."""

from __future__ import annotations

import pytest
import torch

from rankwise.data import Part, TableSchema
from rankwise.metrics import evaluate, evaluate_grades, evaluate_retrieval
from rankwise.problems import Tabular
from rankwise.problems.inspection import Box, Drawing, Inspection, SeenLists, inspect_items, some_classes, spread_over
from rankwise.problems.neighbours import neighbours
from rankwise.report import Report, render_report
from rankwise.report.examples import example_sections
from rankwise.report.lists import figures_of, lists_by_value, top_of, worst_of


def make(lists=40, length=15, grades=3, seed=0, curve="position"):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(lists * length, generator=generator).round(decimals=1)  # some ties
    labels = torch.randint(0, grades, (lists * length,), generator=generator)
    ids = torch.randperm(lists * 3, generator=generator)[:lists].repeat_interleave(length)
    mixed = torch.randperm(len(ids), generator=generator)
    scores, labels, ids = scores[mixed], labels[mixed], ids[mixed]
    metric = "ndcg@10" if curve == "position" else "ap"
    found = evaluate_grades(scores, labels, [metric], query_ids=ids, bootstrap=0)
    return inspect_items(found, scores, labels, ids, list_word="query", item_word="item", curve=curve)


def test_the_curve_by_position_is_the_metric():
    inspection = make()
    figures = figures_of(inspection)
    at = dict(zip(figures.along.tolist(), figures.height.tolist(), strict=True))
    assert list(at) == [*range(1, 11), 12, 15]  # as far as lists are long
    assert at[10] == pytest.approx(inspection.evaluation.means["ndcg@10"], abs=1e-9)


def test_the_mean_of_the_precision_curve_of_one_list_is_its_average_precision():
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        scores, labels = torch.randn(150, generator=generator).round(decimals=1), torch.arange(150) % 3 == 0
        found = evaluate(scores, labels.long(), ["ap"], bootstrap=0)
        inspection = inspect_items(
            found, scores, labels.long(), None, list_word="list", item_word="item", curve="precision"
        )
        figures = figures_of(inspection)
        assert figures.along[0] == 0
        assert figures.along[-1] == 1
        assert figures.height[1:].mean().item() == pytest.approx(found.means["ap"], abs=1e-9)


def test_the_precision_curve_of_many_lists_is_the_mean_over_them():
    inspection = make(lists=3, length=10, grades=2, curve="precision")
    figures = figures_of(inspection)
    expected = torch.zeros(50)
    for number in range(3):
        seen = inspection.look(torch.tensor([number]))
        order = seen.scores[0].argsort(descending=True)
        labels, scores = seen.labels[0][order], seen.scores[0][order]
        for level in range(1, 51):
            wanted = -(-level * int(labels.sum()) // 50)
            threshold = scores[labels > 0][wanted - 1]
            expected[level - 1] += labels[scores >= threshold].float().mean() / 3
    assert torch.allclose(figures.height[1:].float(), expected, atol=1e-6)


def test_a_query_is_not_among_its_own_neighbours():
    generator = torch.Generator().manual_seed(0)
    vectors, labels = torch.randn(40, 4, generator=generator), torch.arange(40) % 4
    found = evaluate_retrieval(vectors, labels, ["map"], bootstrap=0)
    inspection = Inspection(
        found, "query", "row", "precision", neighbours(vectors, labels), str, lambda _, row: str(row)
    )
    seen = inspection.look(torch.arange(40))
    again = evaluate(seen.scores, seen.labels, ["ap"], mask=seen.mask, bootstrap=0)
    assert torch.allclose(again.per_query["ap"], found.per_query["map"])
    figures = figures_of(inspection)
    assert len(figures.relevant) == 40 * 9
    assert float(figures.height.max()) <= 1
    assert float(figures.height[1:].mean()) == pytest.approx(found.means["map"], abs=0.02)  # 50 levels for 9 items
    assert top_of(inspection, 0, 3).items == 39


def test_relevant_items_that_were_never_scored_count_as_not_found():
    labels = torch.tensor([[1, 0, 1]])
    found = evaluate([[0.9, 0.5, 0.1]], labels, ["ap"], bootstrap=0)
    inspection = Inspection(
        found,
        "class",
        "object",
        "precision",
        lambda _: SeenLists(torch.tensor([[0.9, 0.5, 0.1]]), labels),
        list_name=str,
        item_name=lambda _, column: str(column),
        relevant=torch.tensor([4]),
    )
    figures = figures_of(inspection)
    assert figures.along.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert figures.height.tolist() == pytest.approx([1, 1, 2 / 3, 0, 0])
    assert top_of(inspection, 0, 2).relevant == 4


def test_lists_are_found_under_their_own_number():
    inspection = make()
    evaluation = inspection.evaluation
    for number in (0, 7, 39):
        seen = inspection.look(torch.tensor([number]))
        again = evaluate_grades(seen.scores[0], seen.labels[0], ["ndcg@10"], bootstrap=0).means["ndcg@10"]
        assert again == pytest.approx(float(evaluation.per_query["ndcg@10"][number]))
        assert inspection.list_name(number) == f"query {int(evaluation.query_ids[number])}"
    order = lists_by_value(inspection, "ndcg@10")
    values = evaluation.per_query["ndcg@10"][order]
    assert torch.equal(values, values.sort().values)
    top = top_of(inspection, int(order[0]), 5)
    assert top.scores == sorted(top.scores, reverse=True)
    assert top.items == 15


def test_of_equally_bad_lists_those_with_the_lowest_first_hit_come_first():
    scores = torch.arange(20.0).flip(0).repeat(30, 1)
    labels = torch.zeros(30, 20, dtype=torch.int64)
    first = torch.tensor([(7 * number) % 15 + 5 for number in range(30)])
    labels[torch.arange(30), first - 1] = 1
    found = evaluate(scores, labels, ["ndcg@3"], bootstrap=0)

    def look(numbers):
        return SeenLists(scores[numbers], labels[numbers])

    inspection = Inspection(found, "user", "item", "position", look, str, lambda *_: "")
    worst = worst_of(inspection, "ndcg@3", 10)
    assert first[worst].tolist() == sorted(first.tolist(), reverse=True)[:10]
    assert [top_of(inspection, number, 0).first for number in worst] == first[worst].tolist()


def test_some_classes_are_complete():
    labels = torch.arange(10_000) // 20
    chosen, counts = labels[some_classes(labels, 320)].unique(return_counts=True)
    assert len(chosen) == 16
    assert set(counts.tolist()) == {20}


def test_spread_numbers_are_distinct_and_hold_both_ends():
    for count, wanted in ((10, 3), (7, 7), (1000, 999), (5, 50)):
        chosen = spread_over(count, wanted)
        assert len(chosen.unique()) == min(count, wanted)
        assert (int(chosen[0]), int(chosen[-1])) == (0, count - 1)


def test_evaluating_and_inspecting_agree():
    generator = torch.Generator().manual_seed(0)
    part = Part(torch.rand(200, 4, generator=generator), torch.arange(200) % 2)
    problem = Tabular()
    model = problem.build_model(TableSchema.of(part))
    assert problem.inspect(model, part, bootstrap=50).evaluation.means == problem.evaluate(model, part).means


def test_drawings_are_shown_with_their_boxes():
    labels = torch.tensor([[1, 0], [0, 1]])
    scores = torch.tensor([[0.9, 0.5], [0.9, 0.5]])
    boxes = (Box(0.1, 0.2, 0.5, 0.6, "cell <0.9>", True), Box(0.5, 0.5, 1.0, 1.0, "cell 0.4", False))
    drawing = Drawing(torch.zeros(3, 40, 60, dtype=torch.uint8), "slide '7'", boxes)
    inspection = Inspection(
        evaluate(scores, labels, ["ap"], bootstrap=0),
        "class",
        "box",
        "precision",
        lambda numbers: SeenLists(scores[numbers], labels[numbers]),
        list_name=str,
        item_name=lambda _, column: str(column),
        drawings=(drawing,),
    )
    sections = example_sections(inspection, "ap")
    assert [section.title for section in sections] == ["In the pictures", "A look at the rankings"]
    page = render_report(Report("t", "h", "", tuple(sections)))
    assert page.count('class="box right" style="left: 10.0%; top: 20.0%; width: 40.0%; height: 40.0%"') == 1
    assert page.count('class="box wrong"') == 1
    assert "cell &lt;0.9&gt; (right); cell 0.4 (wrong)" in page
    assert "<h3><bdi></bdi></h3>" not in page
    assert "The first 10 boxes of some classes" in page
