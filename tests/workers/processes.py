"""Processes that start at once: each is forked from a server that has imported torch and rankwise already.

A new interpreter takes seconds to import them, far longer than what most tests run in it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import torch
from torch.multiprocessing import start_processes

# Windows has no fork: there every process imports everything again.
METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
CONTEXT = multiprocessing.get_context(METHOD)
if METHOD == "forkserver":
    CONTEXT.set_forkserver_preload(["rankwise.cli.train", "rankwise.runs", "rankwise.metrics.classes"])


class Program:
    """A function that runs in a process of its own and returns its exit code; to be used like `subprocess.Popen`.

    Args:
        run: a function of a module.
        arguments: what it is called with.
        environment: variables in addition to those of this process.
        terminal: the device it writes to, instead of files that `communicate` reads.
    """

    def __init__(
        self,
        run: Callable[..., int],
        *arguments: object,
        environment: Mapping[str, str] | None = None,
        terminal: str | None = None,
    ) -> None:
        _start_server()
        folder = Path(tempfile.mkdtemp())
        weakref.finalize(self, shutil.rmtree, folder)
        self._files = (folder / "out", folder / "err")
        streams = self._files if terminal is None else (terminal, terminal)
        variables = {**os.environ, **(environment or {})}
        self._process = CONTEXT.Process(
            target=_redirected, args=(streams, os.getcwd(), variables, run, arguments), daemon=True
        )
        self._process.start()

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        assert self._process.pid is not None
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended just now
                os.kill(self._process.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def written(self) -> tuple[str, str]:
        """Return what has been written to stdout and stderr so far."""
        out, err = (file.read_text(encoding="utf-8") if file.exists() else "" for file in self._files)
        return out, err

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end and return what was written to stdout and stderr."""
        self._process.join(timeout)
        assert self._process.exitcode is not None, f"still running after {timeout} seconds"
        return self.written()


def run_ranks(work: Callable[..., None], world: int, *arguments: object) -> None:
    """Call `work(rank, world, *arguments)` in as many processes as `world` says, and wait for them."""
    start_processes(work, (world, *arguments), nprocs=world, start_method=METHOD)


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def rank_environments(world: int) -> list[dict[str, str]]:
    """Return the variables that torchrun sets for each rank; nothing for one process alone."""
    if world == 1:
        return [{}]
    port = str(free_port())
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(world), "GROUP_RANK": "0"}
    shared |= {"LOCAL_WORLD_SIZE": str(world), "TORCHELASTIC_RUN_ID": "tests", "GLOO_SOCKET_IFNAME": "lo"}
    return [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(world)]


def srun_environments(world: int) -> list[dict[str, str]]:
    """Return the variables that srun sets for each task of a step on one node."""
    port = str(free_port())
    shared = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NTASKS": str(world), "SLURM_STEP_NUM_TASKS": str(world)}
    shared |= {"SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NODELIST": "127.0.0.1", "SLURM_NODEID": "0"}
    shared |= {"MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}
    return [{**shared, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)} for rank in range(world)]


@cache
def _start_server() -> None:
    """Wait until the server has imported everything, so that the first process starts as quickly as the others."""
    first = CONTEXT.Process()
    first.start()
    first.join()


def _redirected(
    streams: Sequence[str | Path],
    folder: str,
    variables: dict[str, str],
    run: Callable[..., int],
    arguments: tuple[object, ...],
) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    for number, stream in enumerate(streams, start=1):
        os.dup2(os.open(stream, os.O_WRONLY | os.O_CREAT), number)
    torch.set_num_threads(1)
    sys.exit(run(*arguments))
