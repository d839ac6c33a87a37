"""The program as a user meets it: exit codes, one line on stderr, plain text when piped."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time

import pytest

import rankwise
from rankwise.cli import main
from rankwise.cli.listing import KINDS, REGISTRIES
from rankwise.losses import LOSSES
from workers.patience import PATIENCE
from workers.processes import Program


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"rankwise {rankwise.__version__}\n"


def test_without_arguments_the_help_is_shown(capsys):
    assert main([]) == 0
    text = capsys.readouterr().out
    assert "demo" in text
    assert "list" in text


@pytest.mark.parametrize("kind", [None, *KINDS])
def test_list_shows_every_registered_name_with_its_summary(capsys, kind):
    assert main(["list"] if kind is None else ["list", kind]) == 0
    text = capsys.readouterr().out
    words = " ".join(text.split())
    for name, registry in REGISTRIES.items():
        for record in registry:
            named = re.search(rf"^{re.escape(record.name)}(\[@k\])? ", text, re.MULTILINE)
            shown = named and record.summary in words and all(alias in words for alias in record.aliases)
            assert bool(shown) == (kind in (None, name)), record.name


def test_list_shows_the_role_of_each_loss(capsys):
    assert main(["list", "losses"]) == 0
    text = capsys.readouterr().out
    assert main(["--json", "list", "losses"]) == 0
    facts = json.loads(capsys.readouterr().out)["losses"]
    assert [each["name"] for each in facts] == [record.name for record in LOSSES]
    for record, each in zip(LOSSES, facts, strict=True):
        assert re.search(rf"^{re.escape(record.name)} +{record.role} ", text, re.MULTILINE)
        assert each["role"] == record.role


def test_list_fits_a_terminal_of_80_columns(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["list"]) == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert max(map(len, plain.splitlines())) <= 80


def test_piped_output_has_no_control_codes_and_no_trailing_blanks():
    program = Program(main, ["list"], environment={"TERM": "xterm-256color"})
    out, err = program.communicate(timeout=PATIENCE)
    assert program.returncode == 0
    assert err == ""
    assert "\x1b" not in out
    assert all(line == line.rstrip() for line in out.splitlines())


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["nothing"], "No such command 'nothing'"),
        (["list", "lossez"], "did you mean 'losses'"),
        (["list", "losses", "more"], "more"),
        (["demo", "--seeds", "0"], "--seeds"),
        (["demo", "--seeds", "many"], "--seeds"),
        (["demo", "--bad"], "--bad"),
        (["demo", "--out", "no/such/folder/r.html"], "does not exist"),
        (["demo", "--out", "."], "is a folder"),
    ],
)
def test_wrong_arguments_give_exit_code_2_and_one_line(capsys, arguments, message):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("rankwise: ")
    assert err.count("\n") == 1
    assert message in err


def test_debug_shows_the_traceback():
    program = Program(main, ["--debug", "nothing"])
    _, said = program.communicate(timeout=PATIENCE)
    assert program.returncode != 0
    assert "Traceback" in said
    assert "No such command" in said


def test_a_failure_is_one_line(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("rankwise.cli.demo.show_demo", _fail)
    assert main(["demo", "--out", str(tmp_path / "r.html")]) == 1
    assert capsys.readouterr().err == "rankwise: no space left on the device (rankwise --debug ... shows where)\n"


@pytest.mark.parametrize(
    "arguments, module, command",
    [
        (["list"], "typer", "rankwise[train]"),
        (["demo"], "sklearn", "rankwise[demo]"),
        (["demo"], "jinja2", "rankwise[demo]"),
    ],
)
def test_a_missing_extra_is_named(capsys, monkeypatch, tmp_path, arguments, module, command):
    from rankwise import extras

    found = extras.find_spec
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == module else found(name))
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert f"needs {module}: pip install '{command}'" in err


def test_the_demo_prints_its_tables_and_writes_its_report(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--quick", "--seeds", "1"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80
    names = [line.split("  ")[0] for line in out.splitlines() if re.search(r" \d\.\d{3} ", line)]
    assert names == [
        "cross entropy",
        "balanced cross entropy",
        "SOPRC",
        "raw pixels",
        "cross entropy features",
        "SOPRC",
    ]
    assert os.listdir(tmp_path) == ["report.html"]
    assert "</html>" in (tmp_path / "report.html").read_text(encoding="utf-8")


def demo_that_tells():
    from rankwise.problems import trials

    fit = trials.fit

    def telling(*arguments, **options):
        print("training", file=sys.stderr, flush=True)
        return fit(*arguments, **options)

    trials.fit = telling
    return main(["demo"])


def test_ctrl_c_ends_with_one_line_and_nothing_half_written(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    program = Program(demo_that_tells)
    while "training\n" not in program.written()[1]:
        assert program.poll() is None, program.written()
        time.sleep(0.05)
    program.send_signal(signal.SIGINT)
    out, err = program.communicate(timeout=PATIENCE)
    assert program.returncode == 130
    assert out == ""
    assert err.replace("training\n", "") == "rankwise: stopped by Ctrl-C; nothing was written\n"
    assert os.listdir(tmp_path) == []


def _fail(*_, **__):
    raise OSError("no space left\non the device")
