"""The report of a run of every kind, read in a real browser as its readers do."""

from __future__ import annotations

import csv
import json
import re
import shutil
from itertools import pairwise

import pytest

from rankwise.cli import main
from rankwise.problems.load import KINDS
from workers.browser import Browser, require_browser
from workers.kinds import HOSTILE, write_kinds

pytest.importorskip("PIL")

BY_LISTS = [kind for kind in KINDS if kind != "tabular"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of every kind: the folder that holds their folders."""
    folder = tmp_path_factory.mktemp("kinds")
    write_kinds(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for kind in KINDS:
            assert main(["train", f"{kind}.yaml", "--out", f"runs/{kind}"]) == 0
    return folder / "runs"


@pytest.fixture(scope="module")
def browser():
    require_browser()
    opened = Browser()
    yield opened
    opened.close()


def headings(page):
    return [part.partition("<")[0] for part in page.split('<h2 id="heading-')[1:] for part in [part.partition(">")[2]]]


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_kind_of_task_has_a_report_of_everything(runs, kind):
    page = (runs / kind / "report.html").read_text()
    found = headings(page)
    assert found[:3] == ["Result", "Along the training", "Along the ranking"]
    assert found[-1] == "What was run"
    assert "Scores" in found
    assert ("The worst mistakes" if kind == "tabular" else "A look at the rankings") in found
    means = json.loads((runs / kind / "test.json").read_text())["means"]
    name, value = next(iter(means.items()))
    assert f"<h1>{name} {value:.3f} on data it has not seen" in page
    for value in means.values():
        assert f"{value:.4f}" in page
    assert len(page) < 1_500_000


@pytest.mark.parametrize(
    "kind, memories",
    [("tabular", "V"), ("ltr", "u lambda"), ("retrieval", "mu"), ("image-retrieval", "V"), ("longtail", "V")],
)
def test_what_the_loss_remembers_is_shown(runs, kind, memories):
    page = (runs / kind / "report.html").read_text()
    assert "What the loss remembers" in headings(page)
    for name in memories.split():
        assert f"{name}, along the training" in page


@pytest.mark.parametrize("kind", ["pap", "recsys", "multilabel", "text-search"])
def test_a_loss_without_a_memory_says_nothing_about_it(runs, kind):
    assert "What the loss remembers" not in (runs / kind / "report.html").read_text()


@pytest.mark.parametrize("kind", BY_LISTS)
def test_the_worst_lists_are_those_of_the_results(runs, kind):
    page = (runs / kind / "report.html").read_text()
    with open(runs / kind / "test-queries.csv") as file:
        rows = list(csv.DictReader(file))
    metric = list(rows[0])[1]
    values = sorted(float(row[metric]) for row in rows if row[metric] != "nan")
    section = page.partition("Look at these")[0].rpartition("<tbody>")[2]
    shown = [float(cell.partition("<")[0]) for cell in section.split("<td>")[1::4]]
    assert shown == pytest.approx(values[: len(shown)], abs=5.1e-4)
    assert len(shown) == (10 if len(values) > 20 else len(values))


@pytest.mark.parametrize("kind", ["image-retrieval", "longtail"])
def test_pictures_are_shown_with_their_verdict(runs, kind):
    page = (runs / kind / "report.html").read_text()
    strips = page.count('<div class="strip">')
    assert 3 <= strips <= 6
    queries = strips if kind == "image-retrieval" else 0
    assert page.count("<img") == page.count('src="data:image/png;base64,') == 10 * strips + queries
    right, wrong = (page.count(f'class="picture {verdict}"') for verdict in ("right", "wrong"))
    assert right + wrong == 10 * strips
    assert min(right, wrong) > 0


@pytest.mark.parametrize("kind, chosen", [("multilabel", True), ("image-retrieval", False)])
def test_a_report_says_that_a_step_was_chosen_only_if_one_was(runs, kind, chosen):
    page = (runs / kind / "report.html").read_text()
    assert "Then trained again from the same seed" in page
    assert ("was chosen on the validation data" in page) == chosen


def test_a_report_can_be_made_again_and_is_the_same(runs, capsys, monkeypatch):
    monkeypatch.chdir(runs.parent)
    assert main(["report", "runs/tabular", "--out", "again.html"]) == 0
    assert "Report: again.html" in capsys.readouterr().out
    assert (runs.parent / "again.html").read_text() == (runs / "tabular" / "report.html").read_text()


def test_a_run_that_is_not_over_is_shown_on_the_validation_part(runs, monkeypatch):
    monkeypatch.chdir(runs.parent)
    shutil.copytree(runs / "tabular", runs.parent / "half")
    for path in (runs.parent / "half" / "checkpoints").glob("step-0000001*"):
        path.unlink()
    for path in [*(runs.parent / "half").glob("test*"), runs.parent / "half" / "model.safetensors"]:
        path.unlink()
    record = json.loads((runs.parent / "half" / "run.json").read_text())
    unfinished = {key: value for key, value in record.items() if key not in ("settings", "calibration", "refit")}
    (runs.parent / "half" / "run.json").write_text(json.dumps(unfinished))
    assert main(["report", "half"]) == 0
    page = (runs.parent / "half" / "report.html").read_text()
    assert "The run is not over: 8 of 12 steps are done" in page
    assert "on the validation data" in page.partition("</h1>")[0]


def test_evaluating_on_other_data_can_write_a_report(runs, monkeypatch, capsys):
    monkeypatch.chdir(runs.parent)
    arguments = ["evaluate", "runs/tabular", "--data", "rows.csv", "--report", "other.html"]
    assert main(arguments) == 0
    assert "Report: other.html" in capsys.readouterr().out
    page = (runs.parent / "other.html").read_text()
    assert "rankwise run: runs/tabular on rows.csv" in page
    assert "Of 400 rows" in page


def test_a_run_is_judged_on_data_that_are_fewer_than_a_batch(runs, monkeypatch, capsys):
    monkeypatch.chdir(runs.parent)
    rows = (runs.parent / "rows.csv").read_text().splitlines()
    (runs.parent / "few.csv").write_text("\n".join(rows[:25]) + "\n")  # batches are of 32
    assert main(["evaluate", "runs/tabular", "--data", "few.csv"]) == 0
    assert "runs/tabular on few.csv" in capsys.readouterr().out


def test_what_has_no_report_is_refused(runs, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(tmp_path)]) == 2
    assert "expected the folder of a run, got no run.json" in capsys.readouterr().err
    (tmp_path / "scores.csv").write_text("score,label\n0.5,1\n0.4,0\n")
    assert main(["evaluate", "scores.csv", "--report", "x.html"]) == 2
    assert "expected the folder of a run" in capsys.readouterr().err


def test_without_the_extra_a_run_ends_well_and_says_what_is_missing(runs, monkeypatch, capsys):
    monkeypatch.chdir(runs.parent)
    monkeypatch.setattr("rankwise.runs.training.find_spec", lambda name: None)
    assert main(["train", "tabular.yaml", "--out", "plain"]) == 0
    assert "no report.html, which needs jinja2: pip install 'rankwise[report]'" in capsys.readouterr().err
    assert (runs.parent / "plain" / "test.json").is_file()
    assert not (runs.parent / "plain" / "report.html").exists()


def test_each_seed_has_its_report_and_one_is_of_all(runs, monkeypatch):
    monkeypatch.chdir(runs.parent)
    assert main(["train", "tabular.yaml", "seeds=[0, 1]", "--out", "seeds"]) == 0
    for seed in (0, 1):
        (runs.parent / "seeds" / f"seed-{seed}" / "report.html").unlink()
    assert main(["report", "seeds"]) == 0
    assert all((runs.parent / "seeds" / f"seed-{seed}" / "report.html").is_file() for seed in (0, 1))
    assert main(["report", "seeds", "--out", "one.html"]) == 0
    assert (runs.parent / "one.html").is_file()


@pytest.fixture(scope="module")
def compared(runs):
    """The page of two runs compared, one of them with a name that is a tag."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(runs.parent)
        assert main(["train", "ltr.yaml", "optimiser.learning_rate=0.1", "--out", "runs/<b>faster"]) == 0
        arguments = ["compare", "runs/ltr", "runs/<b>faster", "--metric", "ndcg@5", "--report", "both.html"]
        assert main(arguments) == 0
    return runs.parent / "both.html"


def test_two_runs_are_compared_on_a_page(runs, compared):
    page = compared.read_text()
    assert headings(page) == ["Difference in ndcg@5", "Query by query: ndcg@5", "Along the training", "What was run"]
    means = {}
    for name in ("ltr", "<b>faster"):
        with open(runs / name / "test-queries.csv") as file:
            values = [float(row["ndcg@5"]) for row in csv.DictReader(file)]
        means[name] = sum(value for value in values if value == value) / sum(value == value for value in values)
        assert f"<td>{means[name]:.4f}</td>" in page
    assert f"<td>{means['<b>faster'] - means['ltr']:+.4f}</td>" in page
    assert "<b>" not in page
    assert "&lt;b&gt;faster" in page


def test_runs_with_a_single_list_are_compared_without_queries(runs, monkeypatch):
    monkeypatch.chdir(runs.parent)
    assert main(["compare", "runs/tabular", "runs/tabular", "--metric", "ap", "--report", "same.html"]) == 0
    page = (runs.parent / "same.html").read_text()
    assert headings(page) == ["Difference in ap", "Along the training", "What was run"]
    assert "cannot be told apart" in page.partition("</h1>")[0]


def test_a_comparison_has_no_error_on_any_screen(compared, browser):
    for width in (1280, 390):
        browser.open(compared, width=width)
        assert browser.problems() == []
        assert browser.run("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("kind", list(KINDS))
def test_no_error_and_no_request_on_any_screen(runs, browser, kind):
    for width, dark in ((1280, False), (390, False), (390, True)):
        browser.open(runs / kind / "report.html", width=width, dark=dark)
        assert browser.problems() == []
        assert browser.run("document.documentElement.scrollWidth") <= width
        images = browser.run("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
        assert images is True


@pytest.mark.parametrize("kind", ["recsys", "text-search", "image-retrieval", "longtail"])
def test_hostile_names_are_shown_as_text(runs, browser, kind):
    browser.open(runs / kind / "report.html")
    assert browser.run("document.querySelectorAll('script, [onerror], [onclick], style ~ style').length") == 0
    text = browser.run("document.body.textContent + [...document.images].map(image => image.alt).join()")
    shown = [name for name in HOSTILE if name.replace('"', "'") in text.replace('"', "'")]
    assert len(shown) >= 5
    links = browser.run("[...document.links].map(link => link.getAttribute('href'))")
    assert all(link.startswith("#") for link in links)
    assert browser.run("getComputedStyle(document.body).display") == "block"


@pytest.mark.parametrize("kind", ["ltr", "image-retrieval"])
def test_every_link_and_everything_that_scrolls_is_reached_by_keyboard_and_seen(runs, browser, kind):
    browser.open(runs / kind / "report.html", width=390, height=844)
    browser.run("document.querySelectorAll('details').forEach(each => each.open = true)")
    scrolls = """[...document.querySelectorAll('*')].filter(each => ['auto', 'scroll'].includes(
        getComputedStyle(each).overflowX) && each.scrollWidth > each.clientWidth)"""
    wanted = f"new Set([...document.querySelectorAll('a, summary'), ...{scrolls}])"
    browser.run(f"window.wanted = {wanted}; window.seen = new Set(); window.count = window.wanted.size")
    count = browser.run("window.count")
    assert count > 15
    outlined = []
    for press in range(count + 60):
        browser.press("Tab")
        here = "document.activeElement"
        outlined.append(browser.run(f"window.seen.add({here}); getComputedStyle({here}).outlineStyle"))
        if press == 0:
            assert browser.run(f"{here}.textContent") == "Skip to the results"
            assert browser.run(f"{here}.getBoundingClientRect().top") >= 0
        if browser.run(f"{here} === document.body"):
            break
    missed = browser.run("[...window.wanted].filter(each => !window.seen.has(each)).map(each => each.outerHTML)")
    assert missed == []
    assert set(outlined[:-1]) == {"solid"}


def test_the_skip_link_goes_to_the_results(runs, browser):
    browser.open(runs / "ltr" / "report.html")
    browser.press("Tab")
    browser.call(
        "Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r"
    )
    assert browser.run("location.hash") == "#content"
    assert browser.run("Math.abs(document.getElementById('content').getBoundingClientRect().top)") < 40


def test_light_and_dark_are_legible(runs, browser):
    """Contrast of at least 4.5 between text and what is behind it (WCAG AA)."""
    contrast = """(() => {
      const light = (colour) => {
        const [r, g, b] = colour.match(/[0-9.]+/g).map(Number).slice(0, 3).map(c => c / 255)
          .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const behind = (node) => {
        for (; node; node = node.parentElement) {
          const colour = getComputedStyle(node).backgroundColor;
          if (!/, 0\\)$/.test(colour) && colour !== 'transparent') return colour;
        }
        return 'rgb(255, 255, 255)';
      };
      const texts = [...document.body.querySelectorAll('*')].filter(node => node.tagName !== 'svg' &&
        [...node.childNodes].some(child => child.nodeType === 3 && child.textContent.trim()) && !node.closest('svg'));
      return Math.min(...texts.map(node => {
        const [a, b] = [light(getComputedStyle(node).color), light(behind(node))];
        return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      }));
    })()"""
    for dark in (False, True):
        browser.open(runs / "image-retrieval" / "report.html", dark=dark)
        assert browser.run(contrast) >= 4.5


def test_figures_and_pictures_are_told_in_words_too(runs, browser):
    browser.open(runs / "image-retrieval" / "report.html")
    assert browser.run("[...document.images].every(image => image.alt.length > 5)")
    assert browser.run("[...document.querySelectorAll('[role=img]')].every(each => each.ariaLabel.length > 20)")
    assert browser.run("[...document.querySelectorAll('[role=region]')].every(each => each.ariaLabel)")
    assert browser.run("document.documentElement.lang") == "en"
    levels = browser.run("[...document.querySelectorAll('h1, h2, h3')].map(each => +each.tagName[1])")
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_it_can_be_printed(runs, browser):
    browser.open(runs / "image-retrieval" / "report.html", dark=True)
    assert browser.paper().startswith(b"%PDF")
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.run("getComputedStyle(document.querySelector('nav')).display") == "none"
    browser.call("Emulation.setEmulatedMedia", media="")


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_result_says_how_exact_it_is_at_this_size(runs, kind):
    page = (runs / kind / "report.html").read_text()
    result = json.loads((runs / kind / "test.json").read_text())
    low, high = result["intervals"][next(iter(result["means"]))]
    assert f"at this size the interval is {high - low:.3f} wide" in page


def test_the_report_says_what_the_model_is_made_of(runs):
    page = (runs / "tabular" / "report.html").read_text()
    settings = json.loads((runs / "tabular" / "run.json").read_text())["settings"]
    alone, shares = settings["alone"], settings["shares"]
    assert "What the model is made of" in headings(page)
    cells = re.sub(r"(\s*<[^>]*>)+\s*", "|", page)
    for learner, value in alone.items():
        assert f"|{learner}|{value:.4f}|{shares[learner]:.2f}|" in cells
    won = "did better" if alone["network"] > alone["network, cross entropy"] else "did not do better"
    assert f"{won} by itself than the one trained with cross entropy" in page
