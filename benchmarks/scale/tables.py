"""Memory per rank and time of a step when the tables of users and items are sharded by rows.

    python -m benchmarks.scale.tables --items 10000000 --ranks 4

Trains matrix factorisation with SONG on random pairs through `fit` and evaluates a few users among all items; with
`--save` it writes checkpoints, too. Peak of anonymous memory of each rank, from its smaps_rollup every 50 ms. One
thread per rank.
"""

from __future__ import annotations

import argparse
import os
import socket
import tempfile
import threading
import time
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.multiprocessing import get_context, start_processes

from rankwise.data import Interactions, InteractionSchema, Split
from rankwise.problems import Recommendation
from rankwise.training import Checkpoints, Step, fit, make_fabric

PAIRS = 10  # of each user


def make_problem(ranks: int, dimensions: int, steps: int, optimiser: str) -> Recommendation:
    """Return a problem whose tables are sharded over the ranks."""
    return Recommendation.model_validate(
        {
            "data": {"leave_one_out": "random", "save_histories": False},
            "model": {"name": "matrix-factorisation", "dimensions": dimensions},
            "batches": {"users": 128, "relevant": 5, "irrelevant": 300},
            "optimiser": {"name": optimiser, "weight_decay": 0.0},
            "budget": {"steps": steps},
            "evaluation": {"every": steps, "at_start": False, "rows": 8, "weights": "last"},
            "refit": False,
            "device": {"accelerator": "cpu", "devices": ranks, "tables": "sharded"},
        }
    )


def make_pairs(users: int, items: int) -> Interactions:
    """Return random pairs. Their names are not used: one word for all takes little memory."""
    random = torch.Generator().manual_seed(0)
    chosen = torch.randint(items, (users * PAIRS,), generator=random)
    return Interactions(torch.arange(len(chosen)) % users, chosen, None, None, ("user",) * users, ("item",) * items)


def anonymous_memory() -> float:
    """Return the anonymous memory of this process in GiB."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) / 2**20


class Peak:
    """The largest anonymous memory since this was made."""

    def __init__(self) -> None:
        self.highest = 0.0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self.highest = max(self.highest, anonymous_memory())
            time.sleep(0.05)


def measure(rank: int, given: argparse.Namespace, port: int, folder: str, out: Any) -> None:
    """Train as one rank; put what was measured into the queue."""
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": given.ranks, "RANK": rank}
    variables |= {"LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": given.ranks, "GROUP_RANK": 0, "TORCHELASTIC_RUN_ID": "tables"}
    os.environ.update({name: str(value) for name, value in variables.items() if given.ranks > 1})
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    problem = make_problem(given.ranks, given.dimensions, given.steps, given.optimiser)
    fabric = make_fabric(problem.device)
    pairs = make_pairs(given.users, given.items)
    schema = InteractionSchema(pairs.user_names, pairs.item_names)
    parts = problem.cut(Split(pairs), 0)
    before, peak = anonymous_memory(), Peak()
    times: list[float] = []
    busy: list[float] = []
    began = time.perf_counter()

    def on_step(step: Step) -> None:
        times.append(time.perf_counter())
        busy.append(time.process_time())

    store = Checkpoints(Path(folder)) if given.save else None
    fitted = fit(problem, schema, parts, fabric=fabric, checkpoints=store, on_step=on_step)
    state = fitted.model.state_dict()
    own = sum(_bytes(_local(value)) for value in state.values())
    whole = sum(_bytes(value) for value in state.values())
    gaps = sorted(after - first for first, after in pairwise(times))
    cpu = sorted(after - first for first, after in pairwise(busy))
    seconds = (gaps[len(gaps) // 2], cpu[len(cpu) // 2], times[0] - began)
    out.put((rank, own / 2**20, whole / 2**20, before, peak.highest, *seconds, fitted.history.metrics[-1]["ndcg@20"]))
    fabric.barrier()


def _local(value: Tensor) -> Tensor:
    return value.to_local() if isinstance(value, DTensor) else value


def _bytes(value: Tensor) -> int:
    return value.numel() * value.element_size()


def main() -> None:
    """Print a table, one line for each rank."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--dimensions", type=int, default=64)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--optimiser", choices=("adamw", "sgd"), default="adamw")
    parser.add_argument("--steps", type=int, default=6)
    given = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    queue = get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        start_processes(measure, (given, port, folder, queue), nprocs=given.ranks, start_method="spawn")
        saved = sum(path.stat().st_size for path in Path(folder).glob("step-*/*") if path.is_file()) / 2**30
    print("| rank | tables, MiB | of MiB in all | GiB before | peak GiB | s a step | CPU s a step | s to the first |")
    print("| --: | --: | --: | --: | --: | --: | --: | --: |")
    metrics = []
    rows = sorted(queue.get() for _ in range(given.ranks))
    for rank, own, whole, before, peak, step, cpu, first, metric in rows:
        print(
            f"| {rank} | {own:.0f} | {whole:.0f} | {before:.2f} | {peak:.2f} | {step:.1f} | {cpu:.1f} | {first:.0f} |"
        )
        metrics.append(metric)
    print(f"checkpoint: {saved:.2f} GiB; the same ndcg@20 in all ranks: {len(set(metrics)) == 1}")


if __name__ == "__main__":
    main()
