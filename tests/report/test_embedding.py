"""The map of the vectors: principal components, one series per class, neighbours as the model has them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from rankwise.metrics import evaluate_retrieval
from rankwise.problems.inspection import Inspection
from rankwise.problems.neighbours import map_of, neighbours
from rankwise.report.content import Figure, Report, Table
from rankwise.report.drawing import draw
from rankwise.report.embedding import embedding_section, project
from rankwise.report.write import write_report


def make(count=60, classes=3, dimensions=4, gallery=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    centres = 3 * torch.randn(classes, dimensions, generator=generator)
    vectors = centres[labels] + torch.randn(count, dimensions, generator=generator)
    others = None if gallery is None else centres[torch.arange(gallery) % classes]
    other_labels = None if gallery is None else torch.arange(gallery) % classes
    given = {} if others is None else {"reference_embeddings": others, "reference_labels": other_labels}
    return Inspection(
        evaluate_retrieval(vectors, labels, ("map",), bootstrap=0, **given),
        "query",
        "row",
        "precision",
        neighbours(vectors, labels, others, other_labels),
        list_name=lambda row: f"row {row}",
        item_name=lambda _, row: f"item {row}",
        embedding=map_of(vectors, labels, lambda label: f"kind {label}", others),
    )


def blocks(inspection):
    (section,) = embedding_section(inspection, "map")
    figure, table = section.blocks
    assert isinstance(figure, Figure)
    assert isinstance(table, Table)
    return section, figure.panels[0], table


def test_the_plane_holds_the_largest_variance_and_its_signs_are_fixed():
    generator = torch.Generator().manual_seed(1)
    vectors = torch.randn(50, 6, generator=generator, dtype=torch.float64) * torch.arange(1, 7)
    plane = project(vectors)
    variances, axes = torch.linalg.eigh(torch.cov(vectors.T))
    torch.testing.assert_close(plane.of(vectors).var(0), variances[-2:].flip(0))
    torch.testing.assert_close((plane.axes @ axes[:, -2:].flip(1)).abs(), torch.eye(2, dtype=torch.float64))
    torch.testing.assert_close(torch.tensor(plane.shares), (variances[-2:].flip(0) / variances.sum()).float())
    torch.testing.assert_close(project(vectors.flip(0)).of(vectors), plane.of(vectors))


@pytest.mark.parametrize("vectors", [torch.ones(4, 3), torch.tensor([[1.0], [-1.0]]), torch.ones(1, 2)])
def test_vectors_without_a_plane_have_one_all_the_same(vectors):
    plane = project(vectors)
    assert plane.of(vectors).shape == (len(vectors), 2)
    assert bool(torch.isfinite(plane.of(vectors)).all())


def test_every_class_is_a_series_whose_points_name_their_neighbours():
    inspection = make()
    _, panel, _ = blocks(inspection)
    named = {each.name: each for each in panel.series if each.name.startswith("kind")}
    assert set(named) == {"kind 0", "kind 1", "kind 2"}
    for label, each in enumerate(named.values()):
        assert len(each.x) == len(each.titles) == 20
        first = each.titles[0]
        assert first.startswith(f"row {label}\nnearest: ")
        scores = inspection.embedding.vectors[label] @ inspection.embedding.among.T
        scores[label] = -2
        best = int(scores.argmax())
        assert f"{'✓' if best % 3 == label else '✗'} item {best}," in first


def test_lines_join_the_query_with_its_nearest_and_the_table_lists_them():
    inspection = make()
    _, panel, table = blocks(inspection)
    query = int(table.columns[0].removeprefix("nearest to row "))
    scores = inspection.embedding.vectors[query] @ inspection.embedding.among.T
    scores[query] = -2
    best = scores.topk(5)
    assert [row[0] for row in table.rows] == [f"{n}. item {item}" for n, item in enumerate(best.indices.tolist(), 1)]
    assert [row[1] for row in table.rows] == [f"{value:.3f}" for value in best.values.tolist()]
    links = [each for each in panel.series if each.name.startswith("nearest to the query")]
    assert sum(len(each.x) for each in links) == 2 * 5
    same = sum(item % 3 == query % 3 for item in best.indices.tolist())
    assert sum(len(each.x) for each in links if each.dash == "solid") == 2 * same
    assert sum(row[2] == "✓" for row in table.rows) == same


def test_at_most_ten_classes_are_shown_and_each_looks_different():
    section, panel, _ = blocks(make(count=400, classes=40))
    named = [each for each in panel.series if each.name.startswith("kind")]
    assert len(named) == 10
    assert len({(each.colour, each.shape) for each in named}) == 10
    assert "10 of 40 classes" in section.blocks[0].caption


def test_long_names_are_cut_in_the_figure_and_whole_in_the_legend():
    inspection = make()
    named = replace(inspection.embedding, class_name=lambda label: f"{label} is a very long name")
    _, panel, _ = blocks(replace(inspection, embedding=named))
    assert {each.labels[0] for each in panel.series if each.labels} == {f"{label} is a ve…" for label in range(3)}
    assert "0 is a very long name" in {each.name for each in panel.series}


def test_a_gallery_is_where_neighbours_come_from():
    _, panel, table = blocks(make(count=9, gallery=4))
    assert len(table.rows) == 4
    assert sum(len(each.x) for each in panel.series if each.name.startswith("nearest to the query")) == 8


def test_a_problem_without_vectors_has_no_map():
    assert embedding_section(replace(make(), embedding=None), "map") == []


def test_the_page_holds_a_title_for_every_point(tmp_path):
    (section,) = embedding_section(make(count=12), "map")
    panels, keys = draw(section.blocks[0])
    assert [key.name for key in keys if key.name.startswith("kind")] == ["kind 0", "kind 1", "kind 2"]
    assert sum("nearest:" in mark.text for mark in panels[0].marks) == 12
    write_report(tmp_path / "report.html", Report("a run", "a headline", "", (section,)))
    text = (tmp_path / "report.html").read_text()
    assert text.count("nearest: ") == 12
    assert "Map of the vectors" in text
