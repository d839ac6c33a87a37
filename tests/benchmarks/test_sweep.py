"""The sweep over sizes: exponents, the page and the picture made of them."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree

import pytest
import torch

from benchmarks.speed.picture import draw_log_log
from benchmarks.speed.sweep import SWEEPS, Point, exponent, main, measure, page
from benchmarks.speed.timing import Effort


@pytest.mark.parametrize("power", [0.0, 1.0, 1.5])
def test_the_exponent_of_a_power_is_that_power(power):
    assert exponent([(size, 3 * size**power) for size in (10, 100, 1000)]) == pytest.approx(power)


def test_one_size_has_no_exponent():
    assert math.isnan(exponent([(10, 1.0)]))


def test_the_page_judges_ours_by_the_sizes_that_count():
    ours = next(iter(SWEEPS[0].contenders))
    slow = [Point("one-list", ours, size, ms, "a day") for size, ms in ((1_000, 9.0), (10_000, 1.0), (100_000, 100.0))]
    shown = page([*slow, Point("one-list", "torch.sort", 10_000, 1.0, "a day")])
    assert f"| **{ours}** | 9 | 1 | 100 | 2.00 | <= 1.15: missed |" in shown
    assert "| torch.sort | - | 1 | - | - |  |" in shown
    assert "Measured: a day." in shown


@pytest.mark.parametrize("sweep", SWEEPS, ids=lambda sweep: sweep.key)
def test_every_contender_runs_at_the_smallest_size(sweep):
    smallest = type(sweep)(**{**vars(sweep), "sizes": sweep.sizes[:1]})
    points = measure(smallest, Effort(rounds=1, seconds=0.0, at_least=1, turn=0.0), "", False, lambda _: None)
    assert {point.size for point in points} == {sweep.sizes[0]}
    assert {point.contender for point in points} >= set(list(sweep.contenders)[: sweep.ours])
    assert all(point.ms > 0 for point in points)


def test_the_picture_is_well_formed_and_rises_with_the_times():
    picture = draw_log_log("A step", "items", {"ours": [(10, 1.0), (1000, 100.0)], "sort": [(10, 0.5)]})
    circles = [node for node in ElementTree.fromstring(picture).iter() if node.tag.endswith("circle")]
    low, high, sort = [(float(node.attrib["cx"]), float(node.attrib["cy"])) for node in circles]
    assert low[0] < high[0]
    assert high[1] < low[1] < sort[1]
    assert sort[0] == low[0]


def test_the_command_refuses_unknown_sweeps(capsys):
    threads = torch.get_num_threads()
    with pytest.raises(SystemExit):
        main(["--sweeps", "one-lists"])
    torch.set_num_threads(threads)
    assert "one-lists" in capsys.readouterr().err
