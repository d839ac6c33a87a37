"""The pages of audits: every figure told in words, nothing loaded from elsewhere, one legend entry per name."""

from __future__ import annotations

import pytest
import torch

from rankwise.audit import bias, bounds, generalisation, list_stability, simulate, stability
from rankwise.report import Figure, render_report
from rankwise.report.audit import audit_report, describe
from rankwise.report.drawing import draw
from rankwise.report.simulation import simulation_report

LABELS = (torch.arange(200) < 40).long()
SCORES = torch.randn(200, generator=torch.Generator().manual_seed(0)) + LABELS


@pytest.fixture(scope="module")
def found():
    return [
        bias(SCORES, LABELS, repeats=2),
        stability(SCORES, LABELS, sizes=[32, 64], repeats=1),
        list_stability(sizes=[24, 48], models=2, steps=2),
        bounds(SCORES, LABELS),
        generalisation(SCORES, LABELS),
    ]


@pytest.fixture(scope="module")
def reports(found):
    return [
        audit_report([describe(each) for each in found], source="<b>x</b>.csv", facts=[("Rows", "200")]),
        simulation_report(simulate(repeats=2)),
    ]


def test_pages_are_self_contained_and_escape_names(reports):
    for report in reports:
        page = render_report(report)
        assert "http://" not in page
        assert "https://" not in page
    page = render_report(reports[0])
    assert "<b>x</b>.csv" not in page
    assert "&lt;b&gt;x&lt;/b&gt;.csv" in page


def test_every_figure_is_described_and_every_name_is_once_in_the_legend(reports):
    figures = [block for report in reports for section in report.sections for block in section.blocks]
    figures = [figure for figure in figures if isinstance(figure, Figure)]
    assert len(figures) == 7
    for figure in figures:
        assert figure.alt
        assert figure.caption
        panels, keys = draw(figure)
        assert len(keys) == len({key.name for key in keys}) >= 2
        assert all(panel.marks for panel in panels)


def test_everything_lies_within_its_axes(reports):
    for report in reports:
        for section in report.sections:
            for figure in section.blocks:
                for panel in figure.panels if isinstance(figure, Figure) else ():
                    for series in panel.series:
                        for axis, values in ((panel.x, series.x), (panel.y, (*series.y, *series.low, *series.high))):
                            low, high = sorted((axis.low, axis.high))
                            assert all(low <= value <= high for value in values if value or not axis.log), axis.title


def test_tables_say_what_was_found(found):
    told = [describe(each) for each in found]
    rows = [[table.rows for table in each.tables] for each in told]
    assert rows[0][0][0] == (
        "AP of the batch",
        *(f"{value:.3f}" for value in (found[0].estimates[0].full, found[0].estimates[0].mean)),
        f"{found[0].estimates[0].bias:+.3f}",
        f"{found[0].estimates[0].std:.3f}",
    )
    best = told[0].tables[1].strong
    assert rows[0][1][best][0] == f"{found[0].best.positives} + {found[0].best.negatives}"
    assert [row[1] for row in rows[1][0]] == [f"{change.worst[0]:.4f}" for change in found[1].changes]
    assert [row[1] for row in rows[2][1]] == [f"{each.negatives[0]:.2%}" for each in found[2].distances]
    assert [row[1] for row in rows[2][2]] == [
        f"{found[2].estimation_errors(each.name)[0]:.3g}" for each in found[2].distances
    ]
    assert [row[2] for row in rows[3][0]] == [f"{bound.soprc:.4f}" for bound in found[3].bounds]
    assert [row[4] for row in rows[4][0]] == [f"{bound.total:.3g}" for bound in found[4].bounds]
    assert all(each.sentence == source.sentence for each, source in zip(told, found, strict=True))
