"""Detect the launcher of the processes of a run: torchrun, srun, or this program itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from lightning_fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment

__all__ = ["Launch", "SrunEnvironment", "find_launch"]


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
