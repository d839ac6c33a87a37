"""Reports: self-contained, escaped, written whole or not at all."""

from __future__ import annotations

import base64
import io
import os
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, precision_recall_curve

from rankwise.problems.demo import DemoPlan, plan_demo, run_demo
from rankwise.problems.trials import summarise
from rankwise.report import Figure, Listing, Report, Section, Table, render_report, write_report
from rankwise.report.content import Axis, Frame, Gallery, Panel, Picture, Series, Strip
from rankwise.report.demo import demo_report, demo_sentences
from rankwise.report.drawing import draw, numbers_table
from rankwise.report.examples import data_uri, png
from rankwise.report.figures import mean_precision_curve, precision_at_positives
from rankwise.report.plots import axis, log_axis

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
        tuple(replace(each, steps=min(each.steps, 20)) for each in contenders)
        for contenders in (plan.eights, plan.retrieval)
    )
    return run_demo(DemoPlan(*short, seeds=plan.seeds, rates=plan.rates[:1]))


@pytest.fixture(scope="module")
def page(result):
    return render_report(demo_report(result))


def one_figure(*series, x=(0.0, 10.0), y=(0.0, 1.0), log=False):
    return Figure((Panel(Axis("x", *x, (), log), Axis("y", *y, ()), series),), alt="a figure")


def test_nothing_is_loaded_from_elsewhere(page):
    tags = Tags(page).tags
    addresses = {
        attributes[key] for _, attributes in tags for key in ("src", "href", "action", "data") if key in attributes
    }
    assert {each for each in addresses if not each.startswith("#")} == {"data:,"}
    for sign in ("http://", "https://", "@import", "url("):
        assert sign not in page


def test_there_is_no_program_in_a_page_and_none_could_run(page):
    tags = Tags(page).tags
    assert not [tag for tag, _ in tags if tag == "script"]
    assert not [key for _, attributes in tags for key in attributes if key.startswith("on")]
    policy = next(attributes["content"] for _, attributes in tags if attributes.get("http-equiv"))
    assert policy.startswith("default-src 'none';")
    assert "script" not in policy
    assert len(page) < 200_000


def test_hostile_names_are_text():
    axes = Axis(HOSTILE, 0, 1, ((0.5, HOSTILE),)), Axis(HOSTILE, 0, 1, ((0.5, HOSTILE),))
    series = [Series(f"{HOSTILE}{i}", (0.5,), (0.5,), shape="dots", labels=(HOSTILE,)) for i in range(2)]
    picture = Picture("data:,", HOSTILE, HOSTILE, "right", (Frame(0, 0, 1, 1, HOSTILE, "wrong"),))
    blocks = (
        Table((HOSTILE, "b"), ((HOSTILE, HOSTILE),), caption=HOSTILE),
        Figure((Panel(*axes, tuple(series), HOSTILE),), alt=HOSTILE, caption=HOSTILE),
        Gallery((Strip(HOSTILE, HOSTILE, (picture,), picture),), caption=HOSTILE),
        Listing(HOSTILE, HOSTILE),
    )
    report = Report(HOSTILE, HOSTILE, HOSTILE, (Section(HOSTILE, HOSTILE, blocks),), ((HOSTILE, HOSTILE),))
    parsed = Tags(render_report(report))
    assert not [tag for tag, attributes in parsed.tags if tag == "script" or "onerror" in attributes]
    assert [attributes["src"] for tag, attributes in parsed.tags if tag == "img"] == ["data:,"] * 2
    told = sum(HOSTILE in str(value) for _, attributes in parsed.tags for value in attributes.values())
    assert told == 5  # the labels of two tables and of the figure, two pictures
    # Title, brand, headline, summary 4; heading, text 2; table 4; figure: title, axes, ticks, two labels, two tooltips,
    # two keys, caption 12, and its numbers 2 + 2; strip: title, text, two pictures of two texts, caption 7; listing 2;
    # a fact 2.
    assert parsed.text.count(HOSTILE) == 37


def test_points_stand_where_the_axes_say():
    line = Series("a", (0.0, 5.0, 10.0), (0.0, 0.5, 1.0), shape="line and dots")
    (panel,), keys = draw(one_figure(line))
    assert keys == []  # one name needs no legend
    assert [mark.path for mark in panel.marks] == ["M0.0 1000.0L500.0 500.0L1000.0 0.0"] + [
        f"M{across:.1f} {down:.1f}h0" for across, down in ((0, 1000), (500, 500), (1000, 0))
    ]
    (panel,), _ = draw(one_figure(Series("a", (1.0, 10.0, 100.0), (0.0, 0.5, 1.0)), x=(1.0, 100.0), log=True))
    assert panel.marks[0].path == "M0.0 1000.0L500.0 500.0L1000.0 0.0"


def test_a_missing_number_breaks_a_line():
    (panel,), _ = draw(one_figure(Series("a", (0.0, 5.0, 10.0), (0.0, float("nan"), 1.0))))
    assert panel.marks[0].path == "M0.0 1000.0M1000.0 0.0"


def test_bars_stand_on_the_axis():
    (panel,), _ = draw(one_figure(Series("a", (0.0, 5.0, 10.0), (0.5, 1.0), shape="steps")))
    outline = "M0.0 1000.0L0.0 500.0L500.0 500.0L500.0 0.0L1000.0 0.0L1000.0 1000.0"
    assert [(mark.kind, mark.path) for mark in panel.marks] == [("fill", outline + "Z"), ("line", outline)]


def test_the_numbers_of_a_figure_are_its_numbers():
    line = Series("a", tuple(map(float, range(1000))), tuple(map(float, range(1000))))
    rows = numbers_table(one_figure(line)).rows
    assert len(rows) == 30
    assert rows[0] == ("a", "0", "0")
    assert rows[-1] == ("a", "999", "999")
    assert all(across == up for _, across, up in rows)


@pytest.mark.parametrize("low", [-1e6, -3.2, 0, 1e-5])
@pytest.mark.parametrize("width", [1e-6, 0.3, 1, 17, 4e7])
def test_axes_hold_their_values_and_have_some_ticks(low, width):
    found = axis("x", [low, low + width])
    assert found.low <= low
    assert found.high >= low + width
    assert 3 <= len(found.ticks) <= 8
    assert all(found.low <= place <= found.high for place, _ in found.ticks)
    assert len({text for _, text in found.ticks}) == len(found.ticks)


def test_axes_without_width_or_values_can_be_drawn():
    for values in ([], [2.0], [2.0, 2.0], [float("nan")]):
        found = axis("x", values)
        assert found.low < found.high
    assert log_axis("x", [1, 10]).low < 1


def test_a_png_holds_the_pixels():
    pil = pytest.importorskip("PIL.Image")
    for channels in (1, 3):
        image = torch.randint(0, 256, (channels, 5, 7), dtype=torch.uint8)
        read = np.array(pil.open(io.BytesIO(png(image))))
        assert read.tolist() == (image[0] if channels == 1 else image.permute(1, 2, 0)).tolist()
    with pytest.raises(ValueError, match="image: expected uint8"):
        png(torch.zeros(2, 4, 4, dtype=torch.uint8))


def test_large_pictures_are_made_small():
    pil = pytest.importorskip("PIL.Image")
    uri = data_uri(torch.randint(0, 256, (3, 600, 300), dtype=torch.uint8), 64)
    assert uri.startswith("data:image/png;base64,")
    assert pil.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))).size == (32, 64)
    assert data_uri(torch.zeros(3, 600, 300, dtype=torch.uint8), 200).startswith("data:image/jpeg;base64,")


def test_every_figure_is_described_in_words(page):
    plots = [attributes for _, attributes in Tags(page).tags if (attributes.get("class") or "").startswith("panels")]
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
    section = Section("s", "t", (one_figure(Series("a", (object() if place == "render" else 1.0,), (1.0,))),))
    if place == "rename":
        monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises((TypeError, OSError)):
        write_report(path, Report("t", "h", "s", (section,)))
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.html"]
