"""Everything that can go wrong in a training, done to it: what happened, what was lost, what it said.

python -m benchmarks.trust.faults --kills 100 --damages 20 --out faults.jsonl

Every trial is a real training (`benchmarks.trust.jobs`) that is disturbed, resumed and compared with an undisturbed
one: weights, loss state, losses of all steps, scores and logs must be equal bit for bit. Results are kept in the file
as they come, so a stopped script goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric

from benchmarks.trust.jobs import TASKS, copied, run, same_run, start, write_data
from rankwise.training import Checkpoints, Step
from rankwise.training.history import CSVLog


@dataclass(frozen=True)
class Outcome:
    """One trial: which, whether all is as promised, how it ended, how many steps were lost, what it said."""

    fault: str
    trial: str
    good: bool
    code: int
    lost: int
    said: str


class Counted:
    """Counts the steps that a job has done, where this process can see it."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, 8)

    def __call__(self) -> None:
        """In the job: begin to count."""
        original = CSVLog.step

        def step(log: CSVLog, step: Step) -> None:
            self._shared[:8] = struct.pack("q", step.number)
            original(log, step)

        CSVLog.step = step  # type: ignore[method-assign]

    @property
    def steps(self) -> int:
        return int(struct.unpack("q", self._shared[:8])[0])


class Faults:
    """The trials, in a folder of their own.

    Args:
        folder: with the data of the tasks.
        seed: decides the moments and the damage.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random = folder, random.Random(seed)
        self.log = folder / "log.txt"
        self.seconds: dict[str, float] = {}

    def straight(self, task: str) -> Path:
        """The folder of the undisturbed run, made when first asked for."""
        where = self.folder / f"straight-{task}"
        if not where.exists():
            assert run(f"{task}.yaml", "--out", where.name, log=self.log).code == 0
        return where

    def recovers(self, task: str, name: str) -> bool:
        """Whether the run can be resumed and ends like the undisturbed one."""
        ended = run(f"{task}.yaml", "--out", name, "--resume", log=self.log)
        return ended.code == 0 and same_run(self.straight(task), self.folder / name)

    def newest(self, name: str) -> int:
        state, _ = Checkpoints(self.folder / name / "checkpoints").newest()
        return 0 if state is None else int(state["step"])

    def killed(self, task: str, name: str, number: signal.Signals) -> Outcome:
        """At a random moment: within a random step, or while the run is set up."""
        self.straight(task)
        counted, at = Counted(), self.random.randrange(-5, self.newest(f"straight-{task}"))
        job = start(f"{task}.yaml", "--out", name, log=self.log, before=counted)
        while counted.steps < at and job.running():
            time.sleep(0.0005)
        time.sleep(self.random.uniform(0, 0.01 if at > 0 else 0.5))
        job.kill(number)
        ended, done = job.wait(), counted.steps
        lost = done - self.newest(name)
        clean = ended.code in ((0, -9) if number == signal.SIGKILL else (0, 130)) and "UNHANDLED" not in ended.said
        good = clean and lost <= (1 if number == signal.SIGKILL else 0) and self.recovers(task, name)
        return Outcome(f"{number.name} at a random moment", name, good, ended.code, max(lost, 0), ended.said)

    def damaged(self, task: str, name: str, damage: Callable[[bytes], bytes], what: str) -> Outcome:
        """The newest checkpoint of a run that was stopped."""
        with copied(self.straight(task), name) as copy:
            newest = Checkpoints(copy / "checkpoints").paths()[0]
            newest.write_bytes(damage(newest.read_bytes()))
            ended = run(f"{task}.yaml", "--out", name, "--resume", log=self.log)
            said = next((line for line in self.log.read_text().splitlines() if newest.name in line), "")
            good = ended.code == 0 and "damaged checkpoint" in said and same_run(self.straight(task), copy)
            return Outcome(f"newest checkpoint {what}", name, good, ended.code, 1, said)

    def disturbed(
        self, fault: str, task: str, before: Callable[[], None], *, says: str, code: int, lost: int = 0
    ) -> Outcome:
        """A job that something happens to; it must end with a code and words, and resume."""
        name = f"{fault}-{task}".replace(" ", "-")
        self.straight(task)
        counted = Counted()

        def both() -> None:
            counted()
            before()

        ended = run(f"{task}.yaml", "--out", name, log=self.log, before=both)
        left = counted.steps - self.newest(name)
        good = ended.code == code and says in ended.said and left <= lost and self.recovers(task, name)
        return Outcome(fault, task, good, ended.code, left, ended.said)

    def on_own_disk(self, fault: str, task: str, options: str, *, says: str) -> Outcome:
        """On a file system mounted with these options, which is put right before the run is resumed."""
        name = f"{fault}-{task}".replace(" ", "-")
        where = self.folder / name
        where.mkdir()
        self.straight(task)
        mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(where)]
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            where.rmdir()
            return Outcome(fault, task, True, 0, 0, "not tried: no file system can be mounted here")
        try:
            ended = run(f"{task}.yaml", "--out", name, log=self.log)
            halves = list(where.rglob("*.tmp"))
            subprocess.run(["mount", "-o", "remount,rw,size=64m", str(where)], check=True)
            good = ended.code == 1 and says in ended.said and not halves and self.recovers(task, name)
            return Outcome(fault, task, good, ended.code, 0, ended.said)
        finally:
            subprocess.run(["umount", str(where)], check=True)

    def continued(self, name: str) -> Outcome:
        """`train --from` killed at a random moment and resumed; it must end as the undisturbed one."""
        begin, straight = self.straight("ap"), self.folder / "straight-from"
        options = ("--from", begin.name, "budget.steps=40")
        if not straight.exists():
            assert run(*options, "--out", straight.name, log=self.log).code == 0
        counted = Counted()
        job = start(*options, "--out", name, log=self.log, before=counted)
        at = self.random.randrange(-5, 40)
        while counted.steps < at and job.running():
            time.sleep(0.0005)
        time.sleep(self.random.uniform(0, 0.01 if at > 0 else 0.5))
        job.kill()
        ended = job.wait()
        if (self.folder / name / "run.json").is_file():
            again = run(f"{name}/recipe.yaml", "--out", name, "--resume", log=self.log)
        else:  # killed before it began: there is nothing to resume
            again = run(*options, "--out", name, log=self.log)
        good = again.code == 0 and same_run(straight, self.folder / name)
        return Outcome("SIGKILL in train --from", name, good, ended.code, 0, again.said)

    def used(self, name: str, verb: str) -> Outcome:
        """`predict` or `export` killed at a random moment: the file is whole, or what was there before stays."""
        where, suffix = self.straight("ap"), ".csv" if verb == "predict" else ".pt2"
        out, whole = self.folder / f"{name}{suffix}", self.folder / f"whole-{verb}{suffix}"
        target = ("--data", "rows.csv", "--out") if verb == "predict" else ()
        if not whole.exists():
            began = time.monotonic()
            assert run(where.name, *target, whole.name, log=self.log, verb=verb).code == 0
            self.seconds[verb] = time.monotonic() - began
        out.write_bytes(b"before")
        job = start(where.name, *target, out.name, log=self.log, verb=verb)
        time.sleep(self.random.uniform(0, self.seconds[verb]))
        job.kill()
        ended = job.wait()
        content, size = out.read_bytes(), whole.stat().st_size
        # A model of torch.export holds the time it was made at; its size is the same.
        good = content == b"before" or (content == whole.read_bytes() if verb == "predict" else len(content) == size)
        return Outcome(f"SIGKILL in {verb}", name, good, ended.code, 0, ended.said)

    def half_copied(self, name: str) -> Outcome:
        """A run of which files are missing or cut short: the same scores, or one line that says what is missing."""
        whole, out = self.folder / "whole-half.csv", self.folder / f"{name}.csv"
        if not whole.exists():
            where = self.straight("refit").name
            assert run(where, "--data", "rows.csv", "--out", whole.name, log=self.log, verb="predict").code == 0
        with copied(self.straight("refit"), name) as copy:
            files = sorted(path for path in copy.rglob("*") if path.is_file())
            for path in self.random.sample(files, self.random.randint(1, len(files) // 2)):
                if self.random.random() < 0.5:
                    path.unlink()
                else:
                    path.write_bytes(path.read_bytes()[: self.random.randrange(1 + path.stat().st_size)])
            ended = run(name, "--data", "rows.csv", "--out", out.name, log=self.log, verb="predict")
        same = out.is_file() and out.read_bytes() == whole.read_bytes()
        good = same if ended.code == 0 else ended.code == 2 and not out.is_file() and "UNHANDLED" not in ended.said
        return Outcome("half-copied run", name, good, ended.code, 0, ended.said)

    def two_writers(self) -> Outcome:
        """Two trainings into one folder at the same time: one is refused, the other ends as if alone."""
        self.straight("ap")
        first = start("ap.yaml", "--out", "both", log=self.folder / "first.txt")
        while first.running() and not (self.folder / "both" / "run.json").is_file():
            time.sleep(0.001)
        second = run("ap.yaml", "--out", "both", "--resume", log=self.log)
        ended = first.wait()
        alone = ended.code == 0 and same_run(self.straight("ap"), self.folder / "both")
        good = alone and second.code in (1, 2) and "another training writes to this folder" in second.said
        return Outcome("two writers", "both", good, second.code, 0, second.said)

    def torchrun(self, task: str, number: signal.Signals, timeout: int) -> Outcome:
        """Two processes of which one is killed or stops answering."""
        name = f"two-{number.name}"
        options = [f"{task}.yaml", "budget.steps=20000", f"device.timeout={timeout}", "--out", name]
        began = _two_processes(self.folder, *options)
        _wait(lambda: Checkpoints(self.folder / name / "checkpoints").paths()[1:], began)
        ranks = _children(began.pid)
        os.kill(ranks[1], number)
        struck = time.monotonic()
        err = began.communicate(timeout=300)[1]
        seconds = time.monotonic() - struck
        said = next((line for line in err.splitlines() if line.startswith("rankwise: ") and "go on with" in line), "")
        done = self.newest(name)
        again = _two_processes(self.folder, *options, "--resume")
        _wait(lambda: self.newest(name) > done, again)
        again.send_signal(signal.SIGTERM)
        resumed = f"going on after step {done} of 20000" in again.communicate(timeout=300)[1]
        # torchrun gives the other process 30 seconds to end by itself; the rest is for a machine with much to do.
        good = began.returncode != 0 and bool(said) and seconds < timeout + 120 and resumed
        fault = "one of two processes killed" if number == signal.SIGKILL else "one of two processes hangs"
        return Outcome(fault, f"ended after {seconds:.0f} s", good, began.returncode, 0, said)


def _two_processes(folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "-m", "rankwise", "train"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*command, *options], cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def _wait(condition: Callable[[], Any], process: subprocess.Popen[str], seconds: float = 900) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"the job did not get there: {process.communicate()[1][-2000:]}")
        time.sleep(0.05)


def _children(pid: int) -> list[int]:
    return sorted(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def damages(random: random.Random) -> dict[str, Callable[[bytes], bytes]]:
    """Ways to spoil a file."""

    def flipped(content: bytes) -> bytes:
        place = random.randrange(len(content))
        return content[:place] + bytes([content[place] ^ 1 << random.randrange(8)]) + content[place + 1 :]

    def zeroed(content: bytes) -> bytes:
        place = random.randrange(len(content) - 512)
        return content[:place] + bytes(512) + content[place + 512 :]

    return {
        "cut short": lambda content: content[: random.randrange(len(content))],
        "with one bit flipped": flipped,
        "with 512 bytes zeroed": zeroed,
        "empty": lambda _: b"",
    }


def small_files() -> None:
    """Files may not grow beyond 2 kB: the checkpoint does not fit."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, resource.RLIM_INFINITY))


def clock_jumps() -> None:
    """The clock on the wall goes back and forth by years."""
    years = random.Random(0)
    time.time = lambda: years.uniform(0, 4e9)  # type: ignore[assignment]


def nan_gradient(at: int) -> Callable[[], None]:
    """The gradient of one step is spoilt."""

    def before() -> None:
        backward, calls = Fabric.backward, [0]

        def spoilt(fabric: Fabric, value: torch.Tensor, *rest: Any, **options: Any) -> None:
            backward(fabric, value * float("nan") if calls[0] == at else value, *rest, **options)
            calls[0] += 1

        Fabric.backward = spoilt  # type: ignore[method-assign, assignment]

    return before


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--kills", type=int, default=100)
    options.add_argument("--damages", type=int, default=20)
    options.add_argument("--out", type=Path, default=Path("faults.jsonl"))
    options.add_argument("--only", default="", help="trials whose key begins with this")
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    out = given.out.resolve()
    kept = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    done = {entry["key"]: Outcome(**entry["outcome"]) for entry in kept}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_data(Path(folder))
        faults = Faults(Path(folder), given.seed)
        for key, trial in _plan(faults, given.kills, given.damages):
            if key in done or not key.startswith(given.only):
                continue
            done[key] = outcome = trial()
            with out.open("a") as file:
                file.write(json.dumps({"key": key, "outcome": asdict(outcome)}) + "\n")
            print(f"{'good' if outcome.good else 'BAD ':5}{outcome.fault}, {outcome.trial}: {outcome.said}", flush=True)
    print(table(list(done.values())))
    return int(not all(outcome.good for outcome in done.values()))


def _plan(faults: Faults, kills: int, damaged: int) -> list[tuple[str, Callable[[], Outcome]]]:
    tasks = list(TASKS)
    plan: list[tuple[str, Callable[[], Outcome]]] = []

    def add(key: str, trial: Callable[..., Outcome], *arguments: Any, **options: Any) -> None:
        plan.append((key, lambda: trial(*arguments, **options)))

    for number in range(kills):
        name = f"kill-{number}"
        add(name, faults.killed, tasks[number % len(tasks)], name, signal.SIGKILL)
    for number in range(6):
        name = f"term-{number}"
        add(name, faults.killed, tasks[number % len(tasks)], name, signal.SIGTERM)
    ways = list(damages(faults.random).items())
    for number in range(damaged):
        what, damage = ways[number % len(ways)]
        name = f"damage-{number}"
        add(name, faults.damaged, tasks[number % len(tasks)], name, damage, what)
    for task in tasks:
        full = "the disk is full; the checkpoints saved before are intact"
        add(f"disk-{task}", faults.on_own_disk, "full disk", task, "size=48k", says=full)
        add(f"read-only-{task}", faults.on_own_disk, "read-only disk", task, "ro,size=64m", says="read-only")
        add(f"size-{task}", faults.disturbed, "files limited to 2 kB", task, small_files, says=full, code=1, lost=1)
        spoilt = "gradient: expected finite numbers"
        add(f"nan-{task}", faults.disturbed, "NaN gradient in step 25", task, nan_gradient(24), says=spoilt, code=2)
        add(f"clock-{task}", faults.disturbed, "clock jumps by years", task, clock_jumps, says="", code=0)
    for number in range(kills // 5):
        add(f"from-{number}", faults.continued, f"from-{number}")
        add(f"used-{number}", faults.used, f"used-{number}", ("predict", "export")[number % 2])
    for number in range(damaged):
        add(f"half-{number}", faults.half_copied, f"half-{number}")
    add("writers", faults.two_writers)
    for number in (signal.SIGKILL, signal.SIGSTOP):
        add(f"two-{number.name}", faults.torchrun, "ap", number, 20)
    return plan


def table(outcomes: list[Outcome]) -> str:
    """One line for each kind of fault, as Markdown."""
    lines = ["| fault | trials | as promised | steps lost, at most | what it said |", "|---|---|---|---|---|"]
    for fault in dict.fromkeys(outcome.fault for outcome in outcomes):
        of_kind = [outcome for outcome in outcomes if outcome.fault == fault]
        said = max((outcome.said for outcome in of_kind), key=len).replace("|", "\\|")
        good, lost = sum(outcome.good for outcome in of_kind), max(outcome.lost for outcome in of_kind)
        lines.append(f"| {fault} | {len(of_kind)} | {good} | {lost} | {said} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
