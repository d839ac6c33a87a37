"""The benchmark's own machinery: fair turns, values checked first, missing peers named, tables merged by group."""

from __future__ import annotations

import pytest
import torch

from benchmarks.speed.__main__ import main
from benchmarks.speed.agreement import disagreements
from benchmarks.speed.contest import Contender, Group, Mark, Row
from benchmarks.speed.groups import GROUPS
from benchmarks.speed.results import Result, merge, read_results, write_results
from benchmarks.speed.run import Plan, run_row
from benchmarks.speed.table import render_group
from benchmarks.speed.timing import Effort, Times, interleave
from benchmarks.speed.verdict import judge

BRIEF = Plan(Effort(rounds=2, seconds=0.01, at_least=2, turn=0.0), memory=False)


class Clock:
    """Time passes only when a contender says so."""

    def __init__(self):
        self.now, self.log = 0.0, []

    def __call__(self):
        return self.now

    def run(self, name, *seconds):
        durations = iter(seconds)

        def call():
            self.log.append(name)
            self.now += next(durations)

        return call


def test_contenders_take_turns_and_the_first_changes():
    clock = Clock()
    calls = {"a": clock.run("a", 1, 5, 3), "b": clock.run("b", 2, 2, 2)}
    times = interleave(calls, Effort(rounds=3, seconds=100, turn=0.0), clock=clock)
    assert clock.log == ["a", "b", "b", "a", "a", "b"]
    assert times["a"].runs == (1, 5, 3)
    assert times["a"].median_ms == 3000
    assert times["a"].best_ms == 1000


def test_whoever_had_enough_time_sits_out():
    clock = Clock()
    calls = {"slow": clock.run("slow", 4, 4), "quick": clock.run("quick", *[1] * 5)}
    times = interleave(calls, Effort(rounds=5, seconds=6, at_least=1, turn=0.0), clock=clock)
    assert [len(found.runs) for found in times.values()] == [2, 5]


def test_a_very_slow_contender_runs_once_after_its_warm_up():
    clock = Clock()
    effort = Effort(rounds=5, seconds=6, at_least=3, patience=10, turn=0.0)
    assert interleave({"slow": clock.run("slow", 20)}, effort, {"slow": 30}, clock)["slow"].runs == (20,)


def test_short_calls_fill_their_turn_after_a_warm_up():
    clock = Clock()
    times = interleave(
        {"a": clock.run("a", 9, 1, 1, 1, 9, 1, 1, 1)}, Effort(rounds=2, seconds=100, turn=12), clock=clock
    )
    assert times["a"].runs == (1,) * 6


def test_a_call_of_less_than_a_second_runs_twice_and_the_second_counts():
    clock = Clock()
    times = interleave(
        {"a": clock.run("a", 0.75, 0.5, 0.75, 0.5)}, Effort(rounds=2, seconds=100, turn=0.0), clock=clock
    )
    assert times["a"].runs == (0.5, 0.5)


def test_quartiles_of_one_run_are_that_run():
    assert Times((0.002,)).quartiles_ms == (2, 2)


@pytest.mark.parametrize(
    "wrong",
    [{"ap": 0.51}, {"ap": float("nan")}, {"ndcg": 0.5}, {"ap": torch.tensor([0.5, 0.5])}],
    ids=["other value", "nan", "nothing in common", "other shape"],
)
def test_a_wrong_value_is_refused(wrong):
    found = disagreements({"plain": {"ap": 0.5}, "good": {"ap": 0.5 + 1e-9, "more": 1.0}, "bad": wrong}, 1e-5)
    assert list(found) == ["bad"]
    assert found["bad"].startswith("refused")


def _group(*contenders, mark=None):
    row = Row("3", lambda: torch.tensor([3.0, 1.0, 2.0]), lambda: torch.ones(1), contenders, mark, memory=False)
    return Group("tiny", "A tiny group", "n", "Nothing much.", (row,))


def test_missing_wrong_and_failing_contenders_are_named_and_not_timed():
    def broken(_):
        raise RuntimeError("no such thing\nand more")

    group = _group(
        Contender("ours", lambda x: lambda: {"sum": x.sum()}, role="ours", checked=True),
        Contender("plain", lambda x: lambda: {"sum": sum(x.tolist())}, checked=True),
        Contender("wrong", lambda x: lambda: {"sum": x.sum() + 1}, checked=True),
        Contender("missing", broken, needs="a_package_nobody_has"),
        Contender("broken", broken),
        Contender("too large", broken, skip="does not fit"),
        Contender("sort", lambda x: lambda: x.sort(), role="limit"),
    )
    results = {result.contender: result for result in run_row(group, group.rows[0], BRIEF)}
    assert {name for name, result in results.items() if result.runs} == {"ours", "plain", "sort"}
    assert {name: result.note for name, result in results.items() if not result.runs} == {
        "wrong": "refused: sum is 7, 6 by plain",
        "missing": "not installed",
        "broken": "failed: RuntimeError: no such thing",
        "too large": "not run: does not fit",
    }


def test_quick_leaves_slow_contenders_out_and_says_so():
    slow = Contender("slow", lambda x: lambda: None, slow=True)
    assert slow.absent(quick=True) == "not run: --quick"
    assert slow.absent(quick=False) == ""


def test_ours_is_held_to_the_others():
    group = _group(
        Contender("ours", lambda x: lambda: {"sum": 0.0}, role="ours", checked=True),
        Contender("plain", lambda x: lambda: {"sum": x.sum()}, checked=True),
    )
    ours, plain = run_row(group, group.rows[0], BRIEF)
    assert ours.note == "refused: sum is 0, 6 by plain"
    assert plain.runs


ROW = [
    Result("tiny", "3", "ours", "ours", ms=2.0, runs=5, peak_mib=10.4, process_mib=300.0, facts="a day"),
    Result("tiny", "3", "plain", "peer", ms=6.0, runs=4, facts="a day"),
    Result("tiny", "3", "other", "peer", note="not installed", facts="a day"),
    Result("tiny", "3", "sort", "limit", ms=1.0, runs=9, facts="a day"),
]


def test_the_table_shows_ratios_marks_and_notes():
    table = render_group(_group(mark=Mark(ms=2.5, peak_mib=50)), ROW)
    assert table.splitlines()[-4:] == [
        "| 3 | **ours** | 2 | - | 2.00 | 10 | 5 | <= 2.5 ms, <= 50 MiB | met |",
        "|  | plain | 6 | 3 |  | - | 4 |  |  |",
        "|  | other | - | - |  | - | - |  | not installed |",
        "|  | limit: sort | 1 | 0.5 |  | - | 9 |  |  |",
    ]
    assert "Measured: a day." in table


def test_each_of_ours_is_judged_by_itself():
    second = Result("tiny", "3", "ours too", "ours", ms=3.0, runs=5, facts="a day")
    lines = render_group(_group(mark=Mark(ms=2.5)), [ROW[0], second, *ROW[1:]]).splitlines()
    assert "| 3 | **ours** | 2 | - | 2.00 | 10 | 5 | <= 2.5 ms | met |" in lines
    assert "|  | **ours too** | 3 | - | 3.00 | - | 5 | <= 2.5 ms | missed, 3 ms |" in lines


@pytest.mark.parametrize(
    "mark, verdict",
    [
        (Mark(ms=2), "met"),
        (Mark(ms=1, why_missed="it sorts twice"), "missed, 2 ms: it sorts twice"),
        (
            Mark(ms=1, anchor=("plain", 2.0)),
            "missed, 2 ms (plain took 3.00 x its time when the mark was set; by ratio to it met)",
        ),
        (
            Mark(ms=2.5, anchor=("plain", 12.0)),
            "met (plain took 0.50 x its time when the mark was set; by ratio to it missed)",
        ),
        (Mark(times_limit=1.5), "missed, 2.00 x limit"),
        (Mark(over_limit_ms=1), "met"),
        (Mark(times_faster=(("plain", 4),)), "missed, 3 x faster than plain"),
        (Mark(times_faster=(("other", 4), ("plain", 3))), "met (not measured: other)"),
        (Mark(at_most=(("plain", 0.4),)), "met"),
        (Mark(at_most=(("plain", 0.25), ("other", 1))), "missed, 0.33 x plain (not measured: other)"),
        (Mark(process_mib=200), "missed, whole process 300 MiB"),
        (Mark(peak_mib=10), "missed, 10 MiB"),
    ],
)
def test_marks_are_judged(mark, verdict):
    assert judge(mark, ROW) == verdict


def test_groups_measured_again_replace_only_themselves(tmp_path):
    old = [Result("one", "1", "ours", "ours", ms=9.0), Result("two", "1", "ours", "ours", ms=1.5, note="a, b")]
    write_results(tmp_path / "results.csv", old)
    assert read_results(tmp_path / "results.csv") == old
    new = [Result("one", "1", "ours", "ours", ms=3.0)]
    assert merge(old, new) == [old[1], new[0]]


def test_names_in_the_table_are_unique():
    # Results are found again by group, row and contender.
    assert len({group.key for group in GROUPS}) == len(GROUPS)
    for group in GROUPS:
        assert len({row.name for row in group.rows}) == len(group.rows)
        for row in group.rows:
            assert len({contender.name for contender in row.contenders}) == len(row.contenders)
            assert [contender.role for contender in row.contenders].count("ours") >= 1
            mark = row.mark
            named = [] if mark is None else [*mark.times_faster, *mark.at_most, *([mark.anchor] if mark.anchor else [])]
            for name, _ in named:
                assert row.contender(name)


@pytest.mark.parametrize("group", [group for group in GROUPS if group.key != "import"], ids=lambda group: group.key)
@pytest.mark.parametrize("peers", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["plain", "peers"])
def test_contenders_agree_on_small_problems(group, peers):
    row = group.rows[0]
    contenders = tuple(contender for contender in row.contenders if peers or not contender.needs)
    small = Row(row.name, row.small, row.small, contenders, tolerance=row.tolerance, memory=False)
    for result in run_row(group, small, BRIEF):
        assert result.runs or result.note == "not installed", result.note


def test_the_command_refuses_unknown_rows(capsys):
    with pytest.raises(SystemExit):
        main(["--rows", "one-lists"])
    assert "one-lists" in capsys.readouterr().err


def test_the_command_works_without_peers(tmp_path, monkeypatch, capsys):
    row = next(group for group in GROUPS if group.key == "one-list").rows[0]
    peer = Contender("peer", lambda x: None, needs="a_package_nobody_has")
    tiny = Group(
        "one-list", "Tiny", "n", ".", (Row("3", row.small, row.small, (row.contenders[0], peer), memory=False),)
    )
    monkeypatch.setattr("benchmarks.speed.__main__.find_group", lambda key: tiny)
    threads = torch.get_num_threads()
    try:
        assert main(["--quick", "--rows", "one-list", "--out", str(tmp_path), "--threads", "1"]) == 0
    finally:
        torch.set_num_threads(threads)
    assert "| peer | - | - |  | - | - |  | not installed |" in capsys.readouterr().out
    assert "not installed" in (tmp_path / "RESULTS.md").read_text(encoding="utf-8")
    assert [result.contender for result in read_results(tmp_path / "results.csv")] == [row.contenders[0].name, "peer"]


def test_a_busy_machine_is_noticed(monkeypatch, capsys):
    monkeypatch.setattr("benchmarks.speed.__main__.thread_gain", lambda threads: 0.4)
    monkeypatch.setattr("benchmarks.speed.__main__.run_row", lambda *arguments: [])
    main(["--quick", "--rows", "ap"])
    assert "busy" in capsys.readouterr().err
