"""CPU time and collectives of a step when lists live on one rank, beside gathering the whole batch.

    python -m benchmarks.scale.lists --ranks 1 2 4 --lists 256 4096

A fixed global batch of lists of 310 items, sampled; one thread per rank. CPU time of the loss, forward and backward to
the scores, in the thread that calls it: it depends little on how many cores there are. A step has a fixed cost, the
calls of about a thousand small operations, so that the share of a rank tends to 1 / W only as lists become many.
"""

from __future__ import annotations

import argparse
import socket
import time
from collections import Counter
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.multiprocessing import start_processes
from torch.nn.parallel import DistributedDataParallel

from rankwise.distributed import list_owners
from rankwise.losses import ListStatistics, NDCGLoss, TopKNDCGLoss

DRAWN, RELEVANT, ITEMS, WIDTH = 310, 10, 1000, 16
COLLECTIVES = ("all_gather", "all_reduce", "broadcast", "all_gather_object", "all_gather_into_tensor")


def measure(rank: int, world: int, port: int, steps: int, lists: int, out: Any) -> None:
    """Train some steps with each loss and way; rank 0 puts the results into the queue."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    statistics = ListStatistics.of_counts(torch.full((4 * lists,), RELEVANT), size=ITEMS)
    for name, build in (("SONG", NDCGLoss), ("K-SONG", lambda s: TopKNDCGLoss(10, s))):
        for way in ("local", "gathered"):
            loss = build(statistics)
            if way == "local":
                loss.keep_lists_local()
            seconds, calls, rows = _train(loss, rank, world, steps, lists, local=way == "local")
            report = torch.tensor([seconds, rows], dtype=torch.float64)
            reports = [torch.empty_like(report) for _ in range(world)]
            dist.all_gather(reports, report)
            if rank == 0:
                (busiest, most_rows), (mean, _) = torch.stack(reports).amax(0).tolist(), torch.stack(reports).mean(0)
                out.put((name, way, 1000 * busiest, 1000 * float(mean), calls, int(most_rows)))
    dist.destroy_process_group()


def _train(
    loss: torch.nn.Module, rank: int, world: int, steps: int, lists: int, *, local: bool
) -> tuple[float, float, int]:
    """Return CPU seconds of the loss, collectives per step, and rows of the largest table of the loss."""
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(WIDTH, 1, bias=False))
    calls: Counter[str] = Counter()
    originals = {name: getattr(dist, name) for name in COLLECTIVES}
    for name, original in originals.items():
        setattr(dist, name, _counted(original, name, calls))
    seconds = []
    try:
        for step in range(steps + 2):  # the first two are not measured
            if step == 2:
                calls.clear()
            features, labels, queries, items = _batch(step, lists)
            ranks = list_owners(queries.numpy(), world) if local else np.arange(len(labels)) % world
            own = torch.from_numpy(ranks == rank)
            scores = model(features[own])[:, 0]
            leaf = scores.detach().requires_grad_()
            begin = time.thread_time()
            value = loss(leaf, labels[own], query_ids=queries[own], sample_ids=items[own])
            value.backward()
            seconds.append(time.thread_time() - begin)
            assert leaf.grad is not None
            scores.backward(leaf.grad)
    finally:
        for name, original in originals.items():
            setattr(dist, name, original)
    rows = max(len(value) for name, value in loss.state_dict().items() if name.endswith("rows"))
    # Gradients are averaged by one more collective, inside DDP.
    return sorted(seconds[2:])[steps // 2], sum(calls.values()) / steps + (world > 1), rows


def _batch(step: int, lists: int) -> tuple[torch.Tensor, ...]:
    random = torch.Generator().manual_seed(step)
    chosen = torch.randperm(4 * lists, generator=random)[:lists]
    drawn = [torch.randperm(ITEMS - RELEVANT, generator=random)[: DRAWN - RELEVANT] for _ in chosen]
    others = torch.stack(drawn) + RELEVANT
    items = torch.cat([torch.arange(RELEVANT).expand(lists, -1), others], 1)
    labels = (items < RELEVANT).long().flatten()
    queries = chosen.repeat_interleave(DRAWN)
    return torch.randn(len(labels), WIDTH, generator=random), labels, queries, items.flatten() + ITEMS * queries


def _counted(original: Any, name: str, calls: Counter[str]) -> Any:
    def call(*arguments: Any, **options: Any) -> Any:
        calls[name] += 1
        return original(*arguments, **options)

    return call


def main() -> None:
    """Print a table, one line for each number of ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--lists", type=int, nargs="+", default=[256])
    parser.add_argument("--steps", type=int, default=10)
    given = parser.parse_args()
    print(
        "| lists of a batch | ranks | loss | way | CPU ms, mean | busiest rank | mean x ranks / one |",
        end="",
    )
    print(" collectives | rows of state on the fullest rank |")
    print("| --: | --: | --- | --- | --: | --: | --: | --: | --: |")
    for lists in given.lists:
        alone: dict[tuple[str, str], float] = {}
        for world in given.ranks:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            queue = torch.multiprocessing.get_context("spawn").SimpleQueue()
            start_processes(measure, (world, port, given.steps, lists, queue), nprocs=world, start_method="spawn")
            while not queue.empty():
                name, way, busiest, mean, calls, rows = queue.get()
                share = mean * world / alone.setdefault((name, way), mean * world)
                times = f"{mean:.1f} | {busiest:.1f} | {share:.2f}"
                print(f"| {lists} | {world} | {name} | {way} | {times} | {calls:.0f} | {rows:,} |", flush=True)


if __name__ == "__main__":
    main()
