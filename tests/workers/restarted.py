"""A program for torchrun: rank 1 ends once, after all have joined, and rank 0 is late to join again."""

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from rankwise.training.processes import join

TIMEOUT = timedelta(seconds=120)


def main(how: str) -> None:
    rank, restarts = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    if restarts and rank == 0:
        time.sleep(4)  # the other rank reads the store, and tries to connect, before this one writes to it
    if how == "join":
        join("cpu", TIMEOUT)
    else:
        dist.init_process_group("gloo", timeout=TIMEOUT)
    total = torch.ones(())
    dist.all_reduce(total)
    assert total == dist.get_world_size()
    if not restarts and rank == 1:
        os._exit(1)
    dist.barrier()


if __name__ == "__main__":
    main(sys.argv[1])
