"""Which launcher started a process, from its variables."""

from __future__ import annotations

import pytest
from lightning_fabric.plugins.environments import LightningEnvironment, TorchElasticEnvironment

from rankwise.training.processes import SrunEnvironment, find_launch

STEP = {
    "SLURM_NTASKS": "8",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NODELIST": "node[03-04],other1",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_JOB_ID": "1234567",
    "SLURM_STEP_ID": "2",
}


def test_the_variables_of_srun_are_those_of_its_step():
    launch = find_launch(1, STEP)
    assert (launch.devices, launch.nodes) == (2, 2)
    environment = launch.environment
    assert isinstance(environment, SrunEnvironment)
    assert (environment.world_size(), environment.global_rank()) == (4, 3)
    assert (environment.local_rank(), environment.node_rank()) == (1, 1)
    assert environment.main_address == "node03"
    assert 15000 <= environment.main_port < 30000
    assert find_launch(1, {**STEP, "SLURM_STEP_ID": "3"}).environment.main_port != environment.main_port
    given = find_launch(1, {**STEP, "MASTER_ADDR": "here", "MASTER_PORT": "7"}).environment
    assert (given.main_address, given.main_port) == ("here", 7)


def test_torchrun_started_by_srun_decides():
    launch = find_launch(1, {**STEP, "LOCAL_WORLD_SIZE": "8", "WORLD_SIZE": "16", "RANK": "3"})
    assert (launch.devices, launch.nodes) == (8, 2)
    assert isinstance(launch.environment, TorchElasticEnvironment)


@pytest.mark.parametrize("variables", [{}, {"SLURM_NTASKS": "1"}, {"SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "1"}])
def test_one_task_starts_its_processes_itself(variables):
    launch = find_launch(3, variables)
    assert (launch.devices, launch.nodes) == (3, 1)
    assert isinstance(launch.environment, LightningEnvironment)


@pytest.mark.parametrize(
    "variables, message",
    [
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, "SLURM: expected a program started by srun, as SLURM_NTASKS is 4"),
        ({**STEP, "SLURM_STEP_NUM_TASKS": "5"}, "SLURM: expected as many tasks on every node, got 5 on 2 nodes"),
        ({**STEP, "SLURM_PROCID": None}, "SLURM: expected the variables that srun sets, got no SLURM_PROCID"),
        ({"LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "3"}, "torchrun: expected as many processes on every node, got 2 of"),
        ({"RANK": "1", "WORLD_SIZE": "2"}, "processes: expected torchrun or srun to start several, got WORLD_SIZE=2"),
        (
            {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"},
            "processes: expected torchrun or srun to start several, got OMPI_COMM_WORLD_SIZE=2",
        ),
    ],
)
def test_processes_that_would_each_train_alone_are_refused(variables, message):
    with pytest.raises(ValueError, match="^" + message.replace("(", r"\(")):
        find_launch(1, {name: value for name, value in variables.items() if value is not None})
