"""`rankwise plan`: the costs of a step on many ranks follow from bytes, and from work measured on a share."""

from __future__ import annotations

import json
import math

import pytest
import torch

from rankwise.cli import main
from rankwise.problems import load_problem
from rankwise.rehearsal import plan
from workers.rows import write_all


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_all(tmp_path)
    return tmp_path


def parameters_of(recipe):
    problem = load_problem(recipe)
    schema, _ = problem.read({})
    return sum(p.numel() for p in problem.build_model(schema).parameters())


def test_lists_that_live_on_one_rank_send_gradients_and_one_sum(folder):
    made = plan("queries.yaml", ranks=4, gigabits=10, latency=1e-5)
    parameters = parameters_of("queries.yaml")
    assert made.lists_local
    assert made.many.network_bytes == pytest.approx(2 * 3 / 4 * 4 * parameters)
    assert made.many.collectives == 2
    assert made.many.network_seconds == pytest.approx(made.many.network_bytes * 8 / 1e10 + 2 * 1e-5 * 2)
    assert (made.alone.network_bytes, made.alone.collectives, made.alone.network_seconds) == (0, 0, 0)
    assert made.many.state_bytes == pytest.approx(made.alone.state_bytes / 4)
    assert made.many.rows == pytest.approx(made.alone.rows / 4)
    # AdamW keeps two numbers and a count of steps for each; weights and gradients are two more.
    assert made.alone.weights_bytes == pytest.approx(16 * parameters, rel=0.05)
    assert made.steps == load_problem("queries.yaml").budget.steps


def test_rows_that_are_compared_across_ranks_are_gathered(folder):
    made = plan("rows.yaml", ranks=8, gigabits=1)
    gradients = 2 * 7 / 8 * 4 * parameters_of("rows.yaml")
    assert not made.lists_local
    assert made.many.network_bytes == pytest.approx(gradients + 7 / 8 * made.alone.rows * (4 + 8 + 8))
    assert made.many.state_bytes == made.alone.state_bytes
    assert made.speed_up == pytest.approx(made.alone.step_seconds / made.many.step_seconds)


def test_the_command_prints_both_and_the_file_has_the_numbers(folder, capsys):
    assert main(["plan", "queries.yaml", "--ranks", "64", "--network", "100Gb", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["plan"]
    assert told["many"]["ranks"] == 64
    assert math.isfinite(told["many"]["compute_seconds"])
    assert main(["plan", "queries.yaml", "--ranks", "64", "--network", "100Gb"]) == 0
    out = capsys.readouterr().out
    assert "64 ranks" in out
    assert "Lists live on one rank" in " ".join(out.split())


@pytest.mark.parametrize("network", ["fast", "0Gb", "100GB", "-1Gb"])
def test_a_wrong_network_is_refused(folder, capsys, network):
    assert main(["plan", "queries.yaml", "--network", network]) == 2
    assert f"expected gigabits per second, such as 100Gb, got '{network}'" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    "options", [{"ranks": 0, "gigabits": 1}, {"ranks": 2, "gigabits": 0}, {"ranks": 2, "gigabits": torch.inf}]
)
def test_wrong_numbers_are_refused(folder, options):
    with pytest.raises(ValueError, match=r"^(ranks|gigabits): expected"):
        plan("queries.yaml", **options)
