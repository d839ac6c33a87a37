"""The processes of a run: who starts them, how they join, when they stop, and their random state."""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType, TracebackType
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from torch import Tensor
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from rankwise.distributed import gather_rows

__all__ = ["Interrupted", "Interrupts", "Launch", "RandomState", "SrunEnvironment", "agree", "find_launch", "join"]

PAUSE = timedelta(milliseconds=5)
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Launch:
    """Processes on each node, nodes, and the environment that Fabric asks for the rank of this process."""

    devices: int
    nodes: int
    environment: ClusterEnvironment


def find_launch(devices: int, variables: Mapping[str, str] = os.environ) -> Launch:
    """Return how this process was started.

    Args:
        devices: processes to start on this machine if no launcher did.
        variables: of the environment. torchrun's win over SLURM's, since srun may have started torchrun.
    """
    if "LOCAL_WORLD_SIZE" in variables:
        local, world = int(variables["LOCAL_WORLD_SIZE"]), int(variables["WORLD_SIZE"])
        if world % local:
            raise ValueError(f"torchrun: expected as many processes on every node, got {local} of {world} on this one")
        return Launch(local, world // local, TorchElasticEnvironment())
    if int(variables.get("SLURM_STEP_NUM_TASKS", 1)) > 1:
        return _find_srun(variables)
    tasks = variables.get("SLURM_NTASKS", "1")
    if "SLURM_STEP_NUM_TASKS" not in variables and tasks != "1":
        # The script of sbatch has the variables of the first task, too; and it may have been meant as the only one.
        raise ValueError(
            f"SLURM: expected a program started by srun, as SLURM_NTASKS is {tasks}, got no SLURM_STEP_NUM_TASKS; "
            "write srun before the command, or srun --ntasks 1 for one process"
        )
    others = {"RANK": "WORLD_SIZE", "OMPI_COMM_WORLD_RANK": "OMPI_COMM_WORLD_SIZE", "PMI_RANK": "PMI_SIZE"}
    for rank, size in others.items():
        if rank in variables and int(variables.get(size, 1)) > 1:
            raise ValueError(f"processes: expected torchrun or srun to start several, got {size}={variables[size]}")
    # Not Fabric's own choice, which under SLURM would wait for processes that nobody starts.
    return Launch(devices, 1, LightningEnvironment())


def _find_srun(variables: Mapping[str, str]) -> Launch:
    missing = [name for name in SrunEnvironment.NEEDED if name not in variables]
    if missing:
        raise ValueError(f"SLURM: expected the variables that srun sets, got no {missing[0]}")
    tasks, nodes = int(variables["SLURM_STEP_NUM_TASKS"]), int(variables["SLURM_STEP_NUM_NODES"])
    if tasks % nodes:
        raise ValueError(
            f"SLURM: expected as many tasks on every node, got {tasks} on {nodes} nodes; use srun --ntasks-per-node"
        )
    return Launch(tasks // nodes, nodes, SrunEnvironment(variables))


class SrunEnvironment(ClusterEnvironment):
    """The variables that srun sets for each task of a step.

    Fabric's own class refuses `srun --ntasks`, and takes the whole job for the step.

    Args:
        variables: of the environment. `MASTER_ADDR` and `MASTER_PORT` are used if set; by default the first node of the
            step, and a port made from the numbers of job and step.
    """

    NEEDED = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_NUM_NODES", "SLURM_STEP_NODELIST")

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables

    @staticmethod
    def detect() -> bool:
        """Return whether srun started this process as one of several."""
        return int(os.environ.get("SLURM_STEP_NUM_TASKS", 1)) > 1

    @property
    def creates_processes_externally(self) -> bool:
        """Return True: srun starts all processes."""
        return True

    @property
    def main_address(self) -> str:
        """Return the address of the first node."""
        nodes = self._variables["SLURM_STEP_NODELIST"]
        return self._variables.get("MASTER_ADDR") or SLURMEnvironment.resolve_root_node_address(nodes)

    @property
    def main_port(self) -> int:
        """Return the port on the first node, the same in every task of the step."""
        if "MASTER_PORT" in self._variables:
            return int(self._variables["MASTER_PORT"])
        job, step = (int(self._variables.get(name, 0)) for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
        return 15000 + (101 * job + step) % 15000

    def world_size(self) -> int:
        """Return the number of tasks."""
        return int(self._variables["SLURM_STEP_NUM_TASKS"])

    def global_rank(self) -> int:
        """Return the number of this task."""
        return int(self._variables["SLURM_PROCID"])

    def local_rank(self) -> int:
        """Return the number of this task on its node."""
        return int(self._variables["SLURM_LOCALID"])

    def node_rank(self) -> int:
        """Return the number of this node."""
        return int(self._variables["SLURM_NODEID"])

    def set_world_size(self, size: int) -> None:
        """Do nothing: srun decides."""

    def set_global_rank(self, rank: int) -> None:
        """Do nothing: srun decides."""

    def validate_settings(self, num_devices: int, num_nodes: int) -> None:
        """Do nothing: `find_launch` has made the settings from the same variables."""


def join(device_type: str, timeout: timedelta) -> None:
    """Initialise the default process group of a process that torchrun has started, at first or after a restart.

    torchrun keeps its key-value store over a restart. A process that joins by `init_process_group` alone may read the
    address of a process that has ended, and then fails to connect. Here the processes first agree on a name that no
    earlier start has used, and write all keys below it.
    """
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    on_cuda = device_type == "cuda"
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(address, port, world, is_master=False, timeout=timeout)
    dist.init_process_group(
        "nccl" if on_cuda else "gloo",
        store=PrefixStore(agree(store, rank, world, timeout), store),
        rank=rank,
        world_size=world,
        timeout=timeout,
        device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_cuda else None,
    )
    if on_cuda:
        atexit.register(_leave)


def agree(store: Store, rank: int, world: int, timeout: timedelta) -> str:
    """Return a name that all `world` running processes share, and that no process before them has used.

    Each process writes a token of its own and waits for the answer to that token, which cannot be an old one. The
    process of rank 0 answers tokens until every rank has confirmed: some tokens may be of processes that have ended.
    """
    token = uuid.uuid4().hex
    if rank:
        store.set(f"rankwise/token/{rank}", token)
        answer = f"rankwise/answer/{token}"
        store.wait([answer], timeout)
        name = store.get(answer).decode()
        store.set(f"rankwise/confirmed/{name}/{rank}", "")
        return name
    waiting = set(range(1, world))
    end = time.monotonic() + timeout.total_seconds()
    while waiting:
        for other in tuple(waiting):
            if store.check([f"rankwise/confirmed/{token}/{other}"]):
                waiting.remove(other)
            elif store.check([f"rankwise/token/{other}"]):
                store.set(f"rankwise/answer/{store.get(f'rankwise/token/{other}').decode()}", token)
        if time.monotonic() > end:
            raise dist.DistStoreError(f"expected {world} processes, but ranks {sorted(waiting)} did not start")
        time.sleep(PAUSE.total_seconds())
    return token


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


class Interrupted(Exception):
    """A run was asked to end; `step` is the last one done, and it is saved."""

    def __init__(self, step: int) -> None:
        super().__init__(f"stopped after step {step}, which is saved")
        self.step = step


class Interrupts:
    """While entered, the first Ctrl-C (or SIGTERM) is only noted; a second one ends the program at once.

    Args:
        watch: False leaves signals alone; so does a thread other than the main one.
    """

    def __init__(self, *, watch: bool) -> None:
        self._watch = watch and threading.current_thread() is threading.main_thread()
        self._before: dict[signal.Signals, Any] = {}
        self._noted = False

    def __enter__(self) -> Interrupts:
        if self._watch:
            self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, where: TracebackType | None
    ) -> None:
        self._restore()

    def seen(self, fabric: Fabric) -> bool:
        """Return whether any process was asked to end; all processes must call it at the same step."""
        if fabric.world_size == 1 or not self._watch:
            return self._noted
        noted = torch.tensor(int(self._noted), device=fabric.device)
        dist.all_reduce(noted, dist.ReduceOp.MAX)
        return bool(noted)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._noted = True
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}


class RandomState:
    """Random state of this process during a run.

    The first process continues with the state that built the model; the others get their own, so that dropout differs
    between them.
    """

    def __init__(self, fabric: Fabric, seed: int) -> None:
        self._fabric, self._seed = fabric, seed
        if fabric.global_rank > 0:
            self._reseed(step=0)

    @staticmethod
    @contextmanager
    def kept(device: torch.device) -> Iterator[None]:
        """Leave the random state of the caller as it was."""
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield

    def save(self) -> list[Tensor]:
        """Return the states of all processes, in the order of their ranks."""
        own = torch.get_rng_state()
        if self._fabric.device.type == "cuda":
            own = torch.cat([own, torch.cuda.get_rng_state(self._fabric.device)])
        return [state.clone() for state in gather_rows(own[None].to(self._fabric.device)).cpu()]

    def load(self, states: Sequence[Tensor], step: int) -> None:
        """Take up a saved state; with more processes than were saved, the new ones start from the step's number."""
        if self._fabric.global_rank >= len(states):
            self._reseed(step)
            return
        own = states[self._fabric.global_rank]
        size = len(torch.get_rng_state())
        # Copies: torch takes the start of the storage for the start of the state.
        torch.set_rng_state(own[:size].clone())
        if self._fabric.device.type == "cuda" and len(own) > size:
            torch.cuda.set_rng_state(own[size:].clone(), self._fabric.device)

    def _reseed(self, step: int) -> None:
        mixed = np.random.SeedSequence([self._seed, self._fabric.global_rank, step]).generate_state(1, np.uint64)
        torch.manual_seed(int(mixed[0]))
