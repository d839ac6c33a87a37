"""Processes of torchrun find each other, not those that have ended."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
import torch.distributed as dist
from torch.distributed.run import main as torchrun

from rankwise.training.processes import agree
from workers.patience import PATIENCE
from workers.processes import Program

TIMEOUT = timedelta(seconds=60)


def agree_in_threads(server, world):
    def one(rank):
        # A client has one connection, which a waiting thread would block for the others.
        store = dist.TCPStore("127.0.0.1", server.port, is_master=False, timeout=TIMEOUT)
        return agree(store, rank, world, TIMEOUT)

    with ThreadPoolExecutor(world) as threads:
        return list(threads.map(one, range(world)))


def test_each_start_agrees_on_a_new_name():
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=TIMEOUT)
    starts = [agree_in_threads(server, 3) for _ in range(3)]
    assert all(len(set(names)) == 1 for names in starts)
    assert len({names[0] for names in starts}) == 3


def test_a_process_that_ended_before_the_others_came_is_not_counted():
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=TIMEOUT)
    server.set("rankwise/token/1", "of a process that has ended")
    names = agree_in_threads(server, 2)
    assert names[0] == names[1]


def test_a_rank_that_never_starts_is_named():
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=TIMEOUT)
    with pytest.raises(dist.DistStoreError, match=r"expected 3 processes, but ranks \[1, 2\] did not start"):
        agree(server, 0, 3, timedelta(seconds=0.1))


def test_a_rank_that_is_late_after_a_restart_is_waited_for():
    program = Path(__file__).parents[1] / "workers" / "restarted.py"
    command = ["--max-restarts=1", "--nproc-per-node=2", str(program), "join"]
    process = Program(torchrun, command, environment={"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"})
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
