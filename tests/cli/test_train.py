"""`rankwise train` as a user meets it: it trains, it can be killed at any moment, it says what is wrong."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import random
import re
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch
from torch.distributed.run import main as torchrun

from rankwise.cli import main
from rankwise.training import Checkpoints
from workers.patience import PATIENCE
from workers.processes import Program, free_port, rank_environments, srun_environments
from workers.rows import write_all, write_table


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_all(tmp_path)
    return tmp_path


def start(*arguments, environment=None):
    return Program(main, ["train", *arguments], environment=environment)


def start_with_torchrun(*arguments, processes=2, launcher=()):
    command = [*launcher, f"--nproc-per-node={processes}", "-m", "rankwise", "train", *arguments]
    return Program(torchrun, command, environment={"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"})


def last_state(run):
    state, damaged = Checkpoints(run / "checkpoints").newest()
    assert damaged == []
    return state


def page(run):
    """The report without what differs between two runs alike: the name, and the time it took."""
    text = (run / "report.html").read_text().replace(f"rankwise run: {run.name}", "rankwise run")
    return re.sub(r"[0-9.]+ (s|min)\b", "TIME", text)


def assert_same_run(first, second):
    left, right = last_state(first), last_state(second)
    for name in ("model", "loss"):
        assert left[name].keys() == right[name].keys()
        assert all(torch.equal(left[name][key], right[name][key]) for key in left[name]), name
    assert torch.equal(left["history"]["losses"], right["history"]["losses"])
    assert repr(left["history"]["estimates"]) == repr(right["history"]["estimates"])  # nan == nan in text
    assert page(first) == page(second)
    for name in ("test-scores.csv", "test-queries.csv", "log.csv"):
        assert (first / name).read_text() == (second / name).read_text(), name
    results = [json.loads((run / "test.json").read_text()) for run in (first, second)]
    assert results[0]["means"] == results[1]["means"]


def test_a_run_leaves_everything_in_its_folder(folder, capsys):
    assert main(["train", "rows.yaml"]) == 0
    out, err = capsys.readouterr()
    assert "Run: runs/rows" in out
    assert "95 % interval" in out
    assert "step 60: loss" in err
    run = folder / "runs" / "rows"
    names = {path.name for path in run.iterdir()}
    assert names == {
        ".lock", "recipe.yaml", "run.json", "schema.json", "model.safetensors", "log.csv", "checkpoints", "test.json",
        "test-queries.csv", "test-scores.csv", "report.html", "importance.csv",
    }  # fmt: skip
    assert [path.name for path in Checkpoints(run / "checkpoints").paths()] == [
        "step-00000060.pt", "step-00000056.pt", "step-00000049.pt"
    ]  # fmt: skip
    result = json.loads((run / "test.json").read_text())
    assert result["steps"] == 60
    assert result["means"]["ap"] > 0.3
    with open(run / "log.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows if row["ap"]] == ["0", "20", "40", "60"]
    record = json.loads((run / "run.json").read_text())
    assert torch.__version__.startswith(record["versions"]["torch"])
    assert len(record["data"]["rows.csv"]) == 64


def test_several_seeds_get_a_folder_each(folder, capsys):
    assert main(["train", "rows.yaml", "seeds=[0, 1]", "budget.steps=10"]) == 0
    assert "mean over 2 seeds" in capsys.readouterr().out
    losses = [last_state(folder / "runs" / "rows" / f"seed-{seed}")["history"]["losses"] for seed in (0, 1)]
    assert not torch.equal(*losses)


def test_a_folder_with_a_run_is_not_overwritten(folder, capsys):
    assert main(["train", "rows.yaml", "budget.steps=5"]) == 0
    assert main(["train", "rows.yaml", "budget.steps=5"]) == 2
    assert "runs/rows holds a run; go on with --resume, or write elsewhere with --out" in capsys.readouterr().err


def test_resuming_a_finished_run_changes_nothing(folder, capsys):
    assert main(["train", "rows.yaml"]) == 0
    before = (folder / "runs/rows/test.json").read_text()
    assert main(["train", "rows.yaml", "--resume"]) == 0
    assert json.loads((folder / "runs/rows/test.json").read_text())["means"] == json.loads(before)["means"]
    assert "going on after step 60 of 60" in capsys.readouterr().err


def test_resuming_with_another_recipe_or_other_data_is_refused(folder, capsys):
    assert main(["train", "rows.yaml", "budget.steps=5"]) == 0
    assert main(["train", "rows.yaml", "budget.steps=6", "loss.prior=0.2", "--resume"]) == 2
    assert "cannot go on with another recipe; loss, budget changed since the run began" in capsys.readouterr().err
    write_table(folder / "rows.csv", seed=1)
    assert main(["train", "rows.yaml", "budget.steps=5", "--resume"]) == 2
    assert "cannot go on with other data; rows.csv changed since the run began" in capsys.readouterr().err


def test_a_damaged_checkpoint_is_named_and_the_one_before_taken(folder, capsys):
    assert main(["train", "rows.yaml", "--out", "straight"]) == 0
    assert main(["train", "rows.yaml", "--out", "broken"]) == 0
    newest = Checkpoints(folder / "broken" / "checkpoints").paths()[0]
    newest.write_bytes(newest.read_bytes()[:-1000])
    assert main(["train", "rows.yaml", "--out", "broken", "--resume"]) == 0
    err = capsys.readouterr().err
    assert "skipped a damaged checkpoint: broken/checkpoints/step-00000060.pt: not a complete checkpoint" in err
    assert "going on after step 56 of 60" in err
    assert_same_run(folder / "straight", folder / "broken")


def kill_and_resume(folder, kills, seed):
    assert main(["train", "rows.yaml", "--out", "straight"]) == 0
    moments = random.Random(seed)
    began = time.monotonic()
    process = start("rows.yaml", "--out", "whole")
    process.communicate(timeout=PATIENCE)
    length = time.monotonic() - began
    stopped = 0
    for number in range(kills):
        process = start("rows.yaml", "--out", f"killed-{number}")
        time.sleep(moments.uniform(0.3, 1.0) * length)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        stopped += process.returncode != 0
        assert main(["train", "rows.yaml", "--out", f"killed-{number}", "--resume"]) == 0
        assert_same_run(folder / "straight", folder / f"killed-{number}")
    return stopped


def test_killed_at_a_random_moment_and_resumed_equals_uninterrupted(folder):
    kill_and_resume(folder, kills=2, seed=1)


@pytest.mark.slow
def test_killed_at_twenty_random_moments_and_resumed_equals_uninterrupted(folder):
    stopped = kill_and_resume(folder, kills=20, seed=2)
    assert stopped > 0  # how many of the moments fall within the run depends on the load of the machine


def test_killed_again_and_again_it_still_gets_there(folder):
    assert main(["train", "rows.yaml", "--out", "straight"]) == 0
    for after in (1, 2, 4):
        process = start("rows.yaml", "--out", "killed", "--resume")
        _wait_for(
            lambda after=after: len(Checkpoints(folder / "killed" / "checkpoints").paths()) >= min(after, 3), process
        )
        process.kill()
        process.communicate()
    assert main(["train", "rows.yaml", "--out", "killed", "--resume"]) == 0
    assert_same_run(folder / "straight", folder / "killed")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_saves_and_says_how_to_go_on(folder, number):
    long = ["rows.yaml", "budget.steps=100000", "--out", "my run"]
    process = start(*long)
    _wait_for(lambda: Checkpoints(folder / "my run" / "checkpoints").paths()[1:], process)
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    last = err.splitlines()[-1]
    assert "Traceback" not in err
    step = last_state(folder / "my run")["step"]
    how = "go on with: rankwise train rows.yaml budget.steps=100000 --out 'my run' --resume"
    assert last == f"rankwise: stopped after step {step}, which is saved; {how}"


def test_a_full_disk_leaves_the_last_checkpoint_and_says_how_to_go_on(folder, capsys, monkeypatch):
    assert main(["train", "rows.yaml", "--out", "straight"]) == 0
    capsys.readouterr()
    with monkeypatch.context() as patched:
        patched.setattr("rankwise.files.os.fsync", _full_after(12))
        assert main(["train", "rows.yaml", "--out", "full"]) == 1
    err = capsys.readouterr().err.splitlines()[-1]
    assert err.startswith("rankwise: the disk is full; the checkpoints saved before are intact; make room and go on")
    assert not list((folder / "full").rglob("*.tmp"))
    assert main(["train", "rows.yaml", "--out", "full", "--resume"]) == 0
    assert_same_run(folder / "straight", folder / "full")


MEMBERS = "warm_up=null batches.relevant=null batches.irrelevant=null"  # search by folds of queries


@pytest.mark.parametrize(
    "recipe, environments",
    [
        ("rows.yaml", rank_environments),
        ("queries.yaml", rank_environments),
        (f"queries.yaml {MEMBERS}", rank_environments),
        ("users.yaml", rank_environments),
        ("rows.yaml", srun_environments),
    ],
)
def test_two_processes_give_the_metrics_of_one(folder, recipe, environments):
    # In float64: in float32 rounding in another order grows from step to step, as it does on any other machine.
    options = [*recipe.split(), "device.precision='64'"]
    assert main(["train", *options, "--out", "one"]) == 0
    ranks = [start(*options, "--out", "two", environment=each) for each in environments(2)]
    written = [rank.communicate(timeout=PATIENCE) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], written
    assert "".join(out for out, _ in written).count("Test part") == 1
    one, two = (json.loads((folder / run / "test.json").read_text())["means"] for run in ("one", "two"))
    assert one.keys() == two.keys()
    assert all(abs(one[name] - two[name]) < 1e-5 for name in one)
    first, second = (last_state(folder / run) for run in ("one", "two"))
    assert all(torch.allclose(first["model"][key], second["model"][key], atol=1e-9) for key in first["model"])


@pytest.mark.parametrize("recipe", ["queries", "users"])
def test_every_kind_of_task_resumes_bit_for_bit(folder, recipe):
    assert main(["train", f"{recipe}.yaml", "checkpoints.keep=100", "--out", "straight"]) == 0
    for step in (8, 12, 20):
        shutil.copytree(folder / "straight", folder / f"cut-{step}")
        for path in Checkpoints(folder / f"cut-{step}" / "checkpoints").paths():
            if _number(path) > step:
                path.unlink()
        assert main(["train", f"{recipe}.yaml", "checkpoints.keep=100", "--out", f"cut-{step}", "--resume"]) == 0
        assert_same_run(folder / "straight", folder / f"cut-{step}")


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the processes in /proc")
def test_a_killed_process_ends_the_job_with_a_clear_message_and_it_resumes(folder):
    options = [
        "rows.yaml",
        "device.precision='64'",
        "budget.steps=4000",
        "checkpoints.every=5",
        "evaluation.every=1000",
    ]
    process = start_with_torchrun(*options, "--out", "two")
    _wait_for(lambda: Checkpoints(folder / "two" / "checkpoints").paths()[1:], process)
    children = _children(process.pid)
    assert len(children) == 2
    os.kill(children[1], signal.SIGKILL)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode != 0
    said = [line for line in err.splitlines() if line.startswith("rankwise: ") and "go on with: rankwise train" in line]
    assert said, err
    done = last_state(folder / "two")["step"]
    assert 5 <= done < 4000
    again = [start(*options, "--out", "two", "--resume", environment=each) for each in rank_environments(2)]
    _wait_for(lambda: _newest(folder / "two") > done, again[0])
    for rank in again:
        rank.send_signal(signal.SIGTERM)
    said = "".join(rank.communicate(timeout=PATIENCE)[1] for rank in again)
    assert f"seed 0: going on after step {done} of 4000" in said


def test_two_nodes_of_torchrun_give_the_weights_of_one_process(folder):
    options = ["queries.yaml", "device.precision='64'"]
    assert main(["train", *options, "--out", "one"]) == 0
    meet = ["--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--local-addr=127.0.0.1"]
    nodes = [start_with_torchrun(*options, "--out", "two", processes=1, launcher=meet) for _ in range(2)]
    written = [node.communicate(timeout=PATIENCE) for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], written
    first, second = (last_state(folder / run) for run in ("one", "two"))
    assert all(torch.allclose(first["model"][key], second["model"][key], atol=1e-9) for key in first["model"])


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the processes in /proc")
def test_a_killed_process_is_restarted_by_torchrun_and_ends_with_the_same_weights(folder):
    options = ["queries.yaml", "device.precision='64'", "budget.steps=120", "checkpoints.every=5"]
    assert main(["train", *options, "--out", "one"]) == 0
    process = start_with_torchrun(*options, "--out", "two", "--resume", launcher=["--max-restarts=2"])
    _wait_for(lambda: Checkpoints(folder / "two" / "checkpoints").paths()[1:], process)
    os.kill(_children(process.pid)[1], signal.SIGKILL)
    _, err = process.communicate(timeout=2 * PATIENCE)
    assert process.returncode == 0, err
    assert "seed 0: going on after step" in err
    first, second = (last_state(folder / run) for run in ("one", "two"))
    assert second["step"] == 120
    assert all(torch.allclose(first["model"][key], second["model"][key], atol=1e-9) for key in first["model"])


def _newest(run):
    paths = Checkpoints(run / "checkpoints").paths()
    return _number(paths[0]) if paths else -1


def _number(path):
    return int(path.stem.removeprefix("step-"))


def _full_after(writes):
    done = 0

    def fsync(descriptor):
        nonlocal done
        done += 1
        if done > writes:
            raise OSError(28, "No space left on device")

    return fsync


def _wait_for(condition, process):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)


def _children(pid):
    """The processes started by another, as Linux lists them."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it may have ended meanwhile
            after_name = stat.read_text().rpartition(")")[2].split()
            if int(after_name[1]) == pid:
                found.append(int(stat.parent.name))
    return sorted(found)


@pytest.mark.parametrize("every", ["null", "2"])
def test_a_run_that_takes_the_last_weights_says_so(folder, capsys, every):
    evaluation = f"evaluation={{every: {every}, weights: last}}"
    assert main(["train", "rows.yaml", "budget.steps=7", evaluation, "refit=false"]) == 0
    out, _ = capsys.readouterr()
    assert "Weights of the last step, 7." in out
    assert "best" not in out
    text = (folder / "runs" / "rows" / "report.html").read_text()
    assert "The weights of the last step are judged here" in text
    assert "best on the validation data" not in text


def test_a_validation_part_without_a_relevant_row_cannot_choose_weights(folder, capsys):
    """NaN is no value of a metric: the weights before the first step would be kept as the best."""
    lines = (folder / "queries.txt").read_text().splitlines()
    (folder / "irrelevant.txt").write_text("\n".join(f"0{line[1:]}" for line in lines) + "\n")
    arguments = ["train", "queries.yaml", "data.validation=irrelevant.txt", "data.test=queries.txt"]
    assert main(arguments) == 2
    assert "expected a validation part to choose the weights by" in capsys.readouterr().err
    assert main([*arguments, "evaluation={every: 15, weights: last}", "--out", "runs/last"]) == 0
