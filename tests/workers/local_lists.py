"""One rank of a training whose lists live on one rank each; writes gradients, values, state and collectives."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from rankwise.distributed import list_owners
from rankwise.losses import ListStatistics, ListwiseCELoss, NDCGLoss, SumLoss, SwitchLoss, TopKNDCGLoss, create_loss
from rankwise.losses.local_lists import join_list_state, own_list_state

STEPS, LISTS, LENGTH = 4, 14, 8


def build(kind: str) -> torch.nn.Module:
    grades = torch.arange(LISTS * 40) % 4 * (torch.arange(LISTS * 40) % 2)
    statistics = ListStatistics(grades, torch.arange(LISTS * 40) // 40)
    builders = {
        "song": lambda: NDCGLoss(statistics, update_rate=0.3),
        "k-song": lambda: TopKNDCGLoss(5, statistics),
        "solc": lambda: ListwiseCELoss(statistics),
        "switch": lambda: SwitchLoss(ListwiseCELoss(), NDCGLoss(statistics), after=2),
        "sum": lambda: SumLoss(NDCGLoss(), ListwiseCELoss()),
        "lambdarank": lambda: create_loss("lambdarank"),
    }
    return builders[kind]()


def batch_of(step: int) -> tuple[torch.Tensor, ...]:
    """Some items of some lists; the last batch holds one list, so that all ranks but one have nothing."""
    random = torch.Generator().manual_seed(step)
    lists = torch.randperm(LISTS, generator=random)[: 9 if step < STEPS - 1 else 1]
    items = torch.stack([torch.randperm(40, generator=random)[:LENGTH] for _ in lists])
    queries = lists[:, None].expand_as(items).flatten()
    labels = (items % 4 * (items % 2)).flatten()
    return torch.randn(len(labels), 6, generator=random), labels, queries, items.flatten() + 40 * queries


def train_local(rank: int, world: int, folder: str, kinds: list[str]) -> None:
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    for number, kind in enumerate(kinds):
        dist.init_process_group("gloo", init_method=f"file://{folder}/meet-{number}", rank=rank, world_size=world)
        loss = build(kind)
        assert loss.keep_lists_local()
        torch.manual_seed(0)
        model = DistributedDataParallel(torch.nn.Linear(6, 1))
        optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
        record = []
        for step in range(STEPS):
            features, labels, queries, items = batch_of(step)
            own = torch.from_numpy(list_owners(queries.numpy(), world) == rank)
            value = loss(model(features[own])[:, 0], labels[own], query_ids=queries[own], sample_ids=items[own])
            optimiser.zero_grad()
            value.backward()
            optimiser.step()
            gradients = {name: p.grad.clone() for name, p in model.module.named_parameters()}
            record.append({**gradients, "value": value.detach()})
        state = join_list_state(loss)
        kept = own_list_state(loss, state)
        rows = {name: len(kept[name]) for name in kept if name.endswith("rows")}
        again = build(kind)
        again.load_state_dict(kept)
        same = all(torch.equal(a, b) for a, b in zip(_tables(again), _tables(loss), strict=True))
        torch.save({"steps": record, "state": state, "rows": rows, "same": same}, f"{folder}/{kind}-{rank}.pt")
        dist.destroy_process_group()


def _tables(loss: torch.nn.Module) -> list[torch.Tensor]:
    """Return the rows of all tables, in the order of their ids."""
    state = loss.state_dict()
    names = [name for name in state if name.endswith("ids") and name.removesuffix("ids") + "rows" in state]
    found = []
    for name in names:
        keys = state[name].view(len(state[name]), -1)
        order = sorted(range(len(keys)), key=lambda row, keys=keys: keys[row].tolist())
        found.append(state[name.removesuffix("ids") + "rows"][order])
    return found


def fail_on_one_rank(rank: int, world: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    loss = NDCGLoss()
    loss.keep_lists_local()
    labels = torch.tensor([[1, 0]]) if rank == 0 else torch.tensor([[-1, 0]])
    try:
        loss(torch.zeros(1, 2), labels)
        said = ""
    except ValueError as problem:
        said = str(problem)
    torch.save(said, f"{folder}/said-{rank}.pt")
    dist.destroy_process_group()
