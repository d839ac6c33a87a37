"""Small trainings to be disturbed, each of a second or two: a table (AP, and with a refit), queries, users (pAp@k).

Jobs run in processes forked from this one, in which everything is imported already: a training of one second is then
not preceded by ten of importing. They are ordinary processes; signals kill them like any other.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rankwise.cli import main
from rankwise.training import Checkpoints

__all__ = ["TASKS", "Ended", "Job", "run", "same_run", "start", "write_data"]

TASKS = {
    "ap": """
task: tabular
data: {train: rows.csv}
model: {hidden: [16]}
loss: {name: soprc, add: [{name: semi-variance}]}
batches: {size: 32, positives: 4}
optimiser: {learning_rate: 0.01, weight_decay: 0.01}
budget: {steps: 120}
evaluation: {every: 40}
checkpoints: {every: 1}
""",
    "ndcg": """
task: ltr
data: {train: queries.txt}
model: {hidden: [8]}
loss: {name: song}
warm_up: {steps: 30, reset_last_layer: true}
batches: {queries: 8, relevant: 3, irrelevant: 5}
optimiser: {learning_rate: 0.01}
budget: {steps: 90}
evaluation: {every: 30}
checkpoints: {every: 1}
""",
    "pap": """
task: pap
k: 3
data: {train: users.csv, label: liked, query: user}
batches: {users: 10}
optimiser: {name: sgd, learning_rate: 0.1}
budget: {steps: 90}
evaluation: {every: 30}
checkpoints: {every: 1}
""",
    "refit": """
task: tabular
data: {train: rows.csv}
model: {hidden: [16]}
batches: {size: 32, positives: 4}
optimiser: {learning_rate: 0.01}
budget: {steps: 40}
evaluation: {every: 20}
checkpoints: {every: 1}
refit: true
""",
}


def write_data(folder: Path) -> None:
    """The files of the three tasks."""
    random = np.random.default_rng(0)
    labels = (random.random(400) < 0.12).astype(int)
    features = random.normal(size=(400, 5)) + labels[:, None] * np.array([1.5, 0.8, 0, 0, 0.4])
    rows = [",".join(f"{x:.6f}" for x in row) + f",{label}" for row, label in zip(features, labels, strict=True)]
    (folder / "rows.csv").write_text("\n".join(["a,b,c,d,e,ill", *rows]) + "\n")
    lines, users = [], ["user,x,y,z,liked"]
    for query in range(50):
        features = random.normal(size=(14, 4))
        grades = np.clip(np.round(features[:, 0] + 0.5 * random.normal(size=14)), 0, 3).astype(int)
        for grade, row in zip(grades, features, strict=True):
            lines.append(f"{grade} qid:{query + 100} " + " ".join(f"{i}:{x:.5f}" for i, x in enumerate(row, 1)))
            users.append(f"u{query}," + ",".join(f"{x:.5f}" for x in row[:3]) + f",{int(grade > 1)}")
    (folder / "queries.txt").write_text("\n".join(lines) + "\n")
    (folder / "users.csv").write_text("\n".join(users) + "\n")
    for name, text in TASKS.items():
        (folder / f"{name}.yaml").write_text(text)


@dataclass(frozen=True)
class Ended:
    """How a job ended: its exit code (minus the signal that killed it), the last line it said, and the seconds."""

    code: int
    said: str
    seconds: float


class Job:
    """A training in a process of its own."""

    def __init__(self, pid: int, log: Path) -> None:
        self.pid, self._log, self._began = pid, log, time.monotonic()

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def running(self) -> bool:
        """Whether it has not ended."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def wait(self) -> Ended:
        """Until it ends."""
        _, status = os.waitpid(self.pid, 0)
        lines = self._log.read_text(errors="replace").splitlines()
        said = next((line for line in reversed(lines) if line.startswith("rankwise: ")), "")
        return Ended(os.waitstatus_to_exitcode(status), said, time.monotonic() - self._began)


def start(*arguments: str, log: Path, before: Callable[[], Any] | None = None, verb: str = "train") -> Job:
    """Begin `rankwise VERB ARGUMENTS` in a forked process; `before` is called there first, to bring about a fault."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return Job(pid, log)
    # Here the child: whatever happens, it must not go on with the parent's work.
    try:
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "w"), write_through=True)
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "w"), write_through=True)
        torch.set_num_threads(1)
        if before is not None:
            before()
        code = main([verb, *arguments])
    except BaseException as problem:
        print(f"rankwise: UNHANDLED {type(problem).__name__}: {problem}", file=sys.stderr)
        code = 99
    os._exit(code)


def run(*arguments: str, log: Path, before: Callable[[], Any] | None = None, verb: str = "train") -> Ended:
    """A whole job."""
    return start(*arguments, log=log, before=before, verb=verb).wait()


def same_run(first: Path, second: Path) -> bool:
    """Whether two runs ended alike, bit for bit: weights, loss state, losses of all steps, scores and metrics."""
    states = []
    for folder in (first, second):
        state, damaged = Checkpoints(folder / "checkpoints").newest()
        if state is None or damaged:
            return False
        states.append(state)
    left, right = states
    alike = all(
        left[part].keys() == right[part].keys()
        and all(torch.equal(left[part][name], right[part][name]) for name in left[part])
        for part in ("model", "loss")
    )
    files = ("test-scores.csv", "test-queries.csv", "log.csv", "model.safetensors", "schema.json", "recipe.yaml")
    return (
        alike
        and torch.equal(left["history"]["losses"], right["history"]["losses"])
        and all((first / name).read_bytes() == (second / name).read_bytes() for name in files)
    )


@contextmanager
def copied(folder: Path, name: str) -> Iterator[Path]:
    """A run to be damaged: a copy of a folder, removed in the end."""
    copy = folder.with_name(name)
    shutil.copytree(folder, copy)
    try:
        yield copy
    finally:
        shutil.rmtree(copy)
