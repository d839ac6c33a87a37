"""A comparison on images: choices on validation, seeds in turn, going on where it was, what the page says."""

from __future__ import annotations

import sys

import pytest
import torch

from benchmarks.quality.images.command import run_plans
from benchmarks.quality.images.plan import Outcome, Plan, Row

OURS = {
    variant: Row("ours", variant, "soprc", {"a": {"x": 1}, "b": {"x": 2}}, ours=True) for variant in ("plain", "more")
}
RIVAL = Row("rival", "plain", "smooth-ap", {"c": {"x": 1}, "d": {"x": 3}})


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Figures by a formula: a larger x is better for ours, a smaller one for the rival; another seed adds a little."""
    calls = []

    def run(row, options, trial):
        calls.append(trial)
        value = 0.5 + 0.1 * options["x"] * (1 if row.ours else -1) + 0.01 * trial.seed * (1 + row.ours)
        value += 0.05 * (row.variant == "more")
        if trial.part == "validation":
            return Outcome({"validation": value})
        lists = torch.linspace(value - 0.1, value + 0.1, 50)
        return Outcome({"validation": value, "map": lists.mean().item()}, lists, ((0, 0.1), (10, value)))

    plan = Plan(
        "About.",
        rows=(OURS["plain"], OURS["more"], RIVAL),
        run=run,
        metrics=("map",),
        steps=10,
        choice_steps=5,
        seeds=(0, 1),
        variant="plain",
        unit="characters",
    )

    def begin(*arguments):
        calls.clear()
        monkeypatch.setattr(sys, "argv", ["images", "--lists", str(tmp_path / "lists"), *arguments])
        run_plans({"table": plan, "parts": plan}, plan, tmp_path)
        page = "PARTS.md" if "parts" in arguments else "RESULTS.md"
        return list(calls), (tmp_path / page).read_text()

    begin.folder = tmp_path
    return begin


def test_settings_are_chosen_on_validation_by_one_variant_and_seeds_come_in_turn(start):
    calls, page = start()
    assert [(t.name, t.setting, t.steps, t.seed) for t in calls[:4]] == [
        ("ours", "a", 5, 0),
        ("rival", "c", 5, 0),
        ("ours", "b", 5, 0),
        ("rival", "d", 5, 0),
    ]
    final = [("ours", "plain", "b"), ("ours", "more", "b"), ("rival", "plain", "c")]
    assert [(t.name, t.variant, t.setting, t.seed) for t in calls[4:]] == [(*f, seed) for seed in (0, 1) for f in final]
    assert all((t.part, t.steps) == ("test", 10) for t in calls[4:])
    assert "| ours | more | b | 2 of 2 | 2 | 76.00 ± 1.41 | 76.00 ± 1.41 |" in page
    assert "| rival | plain | c | 2 of 2 | 2 | 40.50 ± 0.71 | 40.50 ± 0.71 |" in page


def test_differences_are_those_of_the_best_of_ours_on_validation_over_seeds_and_lists(start):
    page = start()[1]
    assert "ours, more (of the library's own losses the best on validation) minus each other" in page
    # 35 and 36 points: mean 35.5, Student's half width 12.706 * .7071 / sqrt(2)
    assert "| rival, plain | 2 | +35.50 | +29.15 to +41.85 | +35.50 to +35.50 |" in page
    assert "| ours, plain | 2 | +5.00 | +5.00 to +5.00 |" in page


def test_a_second_command_runs_only_what_is_missing(start):
    first, page = start("--stage", "choices", "--only", "ours")
    assert [t.setting for t in first] == ["a", "b"]
    assert "| ours | plain | b | 2 of 2 | 0 | - | - |" in page
    second, _ = start("--seeds", "1", "--variants", "plain")
    assert [(t.name, t.setting, t.part) for t in second] == [
        ("rival", "c", "validation"),
        ("rival", "d", "validation"),
        ("ours", "b", "test"),
        ("rival", "c", "test"),
    ]
    third, complete = start()
    assert len(third) == 4
    assert start() == ([], complete)


def test_nothing_is_judged_on_the_test_part_before_all_settings_were_tried(start):
    start("--stage", "choices", "--minutes", "-1")
    assert start("--stage", "table")[0] == []


def test_tables_have_files_of_their_own_and_a_picture_of_the_curves(start):
    calls, page = start("parts")
    assert len(calls) == 10
    assert "| ours | plain | b |" in page
    assert sorted(file.name for file in start.folder.glob("*.*")) == ["PARTS.md", "parts.csv", "parts.svg"]
    picture = (start.folder / "parts.svg").read_text()
    # two methods have curves in the variant "plain"; "more" has one only, which is nothing to compare
    assert picture.count("<polyline") == 2
    assert ">rival<" in picture


def test_the_page_shows_what_every_choice_was_made_from(start):
    page = start("--stage", "choices")[1]
    assert "| ours | b: 70.00; a: 60.00 |" in page
    assert "| rival | c: 40.00; d: 20.00 |" in page
