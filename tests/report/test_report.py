"""Reports: self-contained, escaped, written whole or not at all."""

from __future__ import annotations

import json
import os
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from plotly.offline import get_plotlyjs
from sklearn.metrics import average_precision_score, precision_recall_curve

from rankwise.report import Figure, Report, Section, Table, render_report, write_report
from rankwise.report.curves import mean_precision_curve, precision_at_positives
from rankwise.report.demo import demo_report, demo_sentences
from rankwise.report.figures import compare_figure
from rankwise.training import summarise
from rankwise.training.demo import DemoPlan, plan_demo, run_demo

HOSTILE = "</script><script>alert('x')</script><img src=x onerror=alert(1)>"


class Tags(HTMLParser):
    """All tags with their attributes, and the text of the page without scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._open.append(tag)

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self._open.pop()

    def handle_data(self, data):
        if not self._open:
            self.text += data


@pytest.fixture(scope="module")
def result():
    plan = plan_demo(seeds=2, quick=True)
    short = tuple(
        tuple(type(each)(each.name, each.task, min(each.steps, 20)) for each in contenders)
        for contenders in (plan.eights, plan.retrieval)
    )
    return run_demo(DemoPlan(*short, seeds=plan.seeds, rates=plan.rates[:1]))


@pytest.fixture(scope="module")
def page(result):
    return render_report(demo_report(result))


def hostile_report():
    table = Table((HOSTILE, "b"), ((HOSTILE, HOSTILE),), caption=HOSTILE)
    figure = Figure(({"x": [1], "y": [1], "name": HOSTILE},), {}, alt=HOSTILE, caption=HOSTILE)
    section = Section(HOSTILE, HOSTILE, (table, figure))
    return Report(HOSTILE, HOSTILE, HOSTILE, (section,), ((HOSTILE, HOSTILE),))


def test_nothing_is_loaded_from_elsewhere(page):
    tags = Tags(page).tags
    addresses = [
        attributes[key] for _, attributes in tags for key in ("src", "href", "action", "data") if key in attributes
    ]
    assert addresses == ["data:,"]
    own = page.replace(get_plotlyjs(), "")
    assert "http://" not in own
    assert "https://" not in own
    assert "@import" not in own
    assert "url(" not in own


def test_plotly_is_there_exactly_once(page):
    assert page.count(get_plotlyjs()) == 1


def test_hostile_names_are_text():
    page = render_report(hostile_report())
    parsed = Tags(page)
    assert not [attributes for tag, attributes in parsed.tags if tag == "img" or "onerror" in attributes]
    # Plotly, the data of one figure, and the code that draws it.
    assert len([tag for tag, _ in parsed.tags if tag == "script"]) == 3
    # Title, brand, headline, summary; heading, text; a head, two cells, two captions; a fact of two.
    assert parsed.text.count(HOSTILE) == 13
    data = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.S)
    assert data is not None
    assert json.loads(data.group(1))["traces"][0]["name"] == HOSTILE


def test_hostile_names_are_text_within_plots(result):
    first = result.eights[0]
    contender = type(first.contender)("<a href='x'>n</a>", first.contender.task, 1)
    figure = compare_figure([type(first)(contender, first.trials)], [("red", "solid")], "ap", "AP")
    assert figure.layout["yaxis"]["ticktext"] == ["&lt;a href='x'&gt;n&lt;/a&gt;"]


def test_every_figure_is_described_in_words(page):
    plots = [attributes for _, attributes in Tags(page).tags if attributes.get("class") == "plot"]
    assert len(plots) == 3
    assert all(attributes["role"] == "img" and attributes["aria-label"] for attributes in plots)


def test_the_page_holds_every_contender_and_its_figure(result, page):
    text = Tags(page).text
    for outcome in result.eights:
        assert outcome.contender.name in text
        assert f"{outcome.summary('ap').mean:.3f}" in text
    for outcome in result.retrieval:
        assert f"{outcome.summary('map').mean:.3f}" in text
        assert f"{outcome.summary('recall@1').mean:.3f}" in text


def test_sentences_say_what_the_numbers_say(result):
    eights, fuller, retrieval = demo_sentences(result)
    plain, balanced, direct = (outcome.summary("ap").mean for outcome in result.eights)
    assert f"{direct:.2f}, cross entropy with {plain:.2f}" in eights
    assert f"gets {balanced:.2f}" in fuller
    wins = sum(a > b for a, b in zip(result.eights[2].values("ap"), result.eights[0].values("ap"), strict=True))
    assert f"{wins} of 2 seeds" in fuller
    gaps = [a - b for a, b in zip(result.eights[2].values("ap"), result.eights[0].values("ap"), strict=True)]
    gap = summarise(gaps)
    assert f"{gap.mean:+.2f}, 95 % interval {gap.low:+.2f} to {gap.high:+.2f}" in fuller
    assert ("not ruled out" in fuller) == (gap.low <= 0 <= gap.high)
    best = max(result.retrieval, key=lambda outcome: outcome.summary("recall@1").mean)
    assert retrieval.endswith(f"right with {best.contender.name}.")


def test_the_mean_of_the_curve_is_the_mean_average_precision(result):
    for outcome in result.eights:
        recall, precision = mean_precision_curve(outcome)
        assert recall[-1] == 1
        assert precision.mean() == pytest.approx(outcome.summary("ap").mean, abs=1e-9)


def test_precision_with_ties_agrees_with_scikit_learn():
    random = np.random.default_rng(0)
    for _ in range(50):
        scores, labels = random.integers(0, 6, 40).astype(float), random.integers(0, 2, 40)
        mine = precision_at_positives(scores, labels)
        assert mine.mean() == pytest.approx(average_precision_score(labels, scores), abs=1e-9)
        assert set(mine.round(9)) <= set(precision_recall_curve(labels, scores)[0].round(9))


def test_a_report_is_written_as_rendered(tmp_path):
    report = Report("t", "h", "s", ())
    path = write_report(tmp_path / "a.html", report)
    assert path.read_text(encoding="utf-8") == render_report(report)
    assert os.listdir(tmp_path) == ["a.html"]


@pytest.mark.parametrize("place", ["render", "rename"])
def test_a_failure_leaves_the_old_report_and_nothing_else(tmp_path, monkeypatch, place):
    path = tmp_path / "a.html"
    path.write_text("old")
    section = Section("s", "t", (Figure(({"x": object() if place == "render" else 1},), {}, alt="a"),))
    if place == "rename":
        monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises((TypeError, OSError)):
        write_report(path, Report("t", "h", "s", (section,)))
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.html"]
