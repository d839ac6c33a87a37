"""What the commands print: 80 columns and plain text when nobody watches, one JSON object for programs."""

from __future__ import annotations

import json
import os
import pty
import re
import select

import numpy as np
import pytest

from rankwise.cli import main
from rankwise.cli.console import sparkline
from workers.processes import Program
from workers.rows import write_all

# Each with the keys of its JSON.
COMMANDS = {
    "list": {"losses", "metrics", "samplers", "tasks", "recipes"},
    "check-data rows.csv --positives 8 --batch-size 64": {"usable", "findings"},
    "train rows.yaml": {"runs"},
    "train rows.yaml seeds=[0,1] --out seeds": {"runs"},
    "evaluate good.csv": {"what", "metrics", "tied", "groups"},
    "compare bad.csv good.csv": {"comparisons"},
    "audit good.csv --quick --ask bounds --ask bias --out audit.html": {"bounds", "bias", "report"},
    "simulate --repeats 2": {"sentence", "cases", "report"},
}
SLOW = {"demo --quick --seeds 1": {"eights", "retrieval", "report"}}
EVERY = [*COMMANDS, *(pytest.param(command, marks=pytest.mark.slow) for command in SLOW)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    write_all(tmp_path)
    random = np.random.default_rng(0)
    labels = (random.random(480) < 0.3).astype(int)
    for name, noise in (("good", 0.5), ("bad", 2.0)):
        scores = labels + noise * random.normal(size=480)
        pairs = enumerate(zip(scores, labels, strict=True))
        rows = [f"{score},{label},q{i // 12},{('web', 'mail')[i // 240]}" for i, (score, label) in pairs]
        (tmp_path / f"{name}.csv").write_text("\n".join(["score,label,query,group", *rows]) + "\n")
    return tmp_path


@pytest.mark.parametrize("command", EVERY)
def test_piped_output_is_plain_and_fits_80_columns(folder, capsys, command):
    assert main(command.split()) == 0
    out = capsys.readouterr().out
    assert out.strip()
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", out), "control codes"
    assert [line for line in out.splitlines() if len(line) > 80 or line != line.rstrip()] == []
    assert "…" not in out, "something was cut off"


@pytest.mark.parametrize("command", EVERY)
def test_json_is_all_that_is_printed_and_holds_the_result(folder, capsys, command):
    assert main([*command.split(), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == (COMMANDS | SLOW)[command]


def test_json_has_the_numbers_that_the_table_shows(folder, capsys):
    assert main(["evaluate", "good.csv", "--metric", "ap"]) == 0
    shown = re.search(r"^ap +(\S+)", capsys.readouterr().out, re.MULTILINE)
    assert main(["evaluate", "good.csv", "--metric", "ap", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["metrics"]["ap"]
    assert f"{found['mean']:.4f}" == shown[1]
    assert found["lists"] == 40
    assert found["interval"][0] < found["mean"] < found["interval"][1]


def seen_on_a_terminal(*arguments, **environment):
    """What the program writes where somebody watches."""
    ours, theirs = pty.openpty()
    program = Program(
        main, list(arguments), environment={"TERM": "xterm-256color", **environment}, terminal=os.ttyname(theirs)
    )
    seen = b""
    while program.poll() is None or select.select([ours], [], [], 0)[0]:
        if select.select([ours], [], [], 0.02)[0]:
            seen += os.read(ours, 65536)
    os.close(ours)
    os.close(theirs)
    assert program.returncode == 0, seen
    return seen.decode()


def test_no_color_leaves_a_terminal_without_colours(folder, monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    colours = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])[0-9;]*m")
    coloured = seen_on_a_terminal("train", "rows.yaml", "--out", "coloured")
    plain = seen_on_a_terminal("train", "rows.yaml", "--out", "plain", NO_COLOR="1")
    assert colours.search(coloured)
    assert not colours.search(plain)
    assert "\x1b[" in plain, "it is a terminal all the same: the bar moves"


def test_what_went_wrong_is_not_json(folder, capsys):
    assert main(["--json", "evaluate", "nothing.csv"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("rankwise: ")


def test_unusable_data_end_with_1_and_say_so_in_json(folder, capsys):
    head, first, *rest = (folder / "rows.csv").read_text().splitlines()
    (folder / "holes.csv").write_text("\n".join([head, "," + first.partition(",")[2], *rest]) + "\n")
    assert main(["check-data", "holes.csv", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["usable"] is False


@pytest.mark.parametrize(
    "values, bars",
    [([], ""), ([0.3, 0.3], "▁▁"), ([0, 1], "▁█"), ([float("nan"), 0, 1], " ▁█"), (range(80), None)],
)
def test_a_sparkline_goes_from_lowest_to_highest(values, bars):
    found = sparkline(list(values))
    assert found == bars if bars is not None else (len(found) == 40 and found[0] == "▁" and found[-1] == "█")
