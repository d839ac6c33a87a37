"""One rank of a training whose tables of users and items are sharded by rows."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

import rankwise as rw
from rankwise.data import Interactions, InteractionSchema, Split
from rankwise.models import MatrixFactorisation
from rankwise.problems import Recommendation
from rankwise.training import Checkpoints, fit, make_fabric

USERS, ITEMS, STEPS = 37, 101, 16
SAMPLED = {"users": 9, "relevant": 2, "irrelevant": 5}


def pairs() -> Interactions:
    random = torch.Generator().manual_seed(0)
    users = torch.arange(USERS * 8) % USERS
    items = (ITEMS * torch.rand(len(users), generator=random) ** 2).long()
    names = tuple(f"u{user}" for user in range(USERS)), tuple(f"i{item}" for item in range(ITEMS))
    return Interactions(users, items, None, None, *names)


def problem(world: int, *, tables: str = "sharded", precision: str = "64", **options: Any) -> Any:
    """Factorise with momentum or Adam; items have state, as lists are sampled."""
    given = {
        "data": {"leave_one_out": "random"},
        "model": {"name": "matrix-factorisation", "dimensions": 6},
        "batches": SAMPLED,
        "optimiser": {"learning_rate": 0.02, "weight_decay": 0.1},
        "budget": {"steps": STEPS},
        "evaluation": {"every": 4},
        "refit": False,
        "metrics": ("ndcg@10", "map"),
        "device": {"accelerator": "cpu", "devices": world, "tables": tables, "precision": precision},
        **options,
    }
    return Recommendation(**given)


def parts(chosen: Recommendation) -> tuple[InteractionSchema, Split[Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        schema, split = chosen.read({"train": pairs()})
        return schema, chosen.cut(split, 0)


def fit_tables(folder: Path, world: int, until: int, options: dict[str, Any]) -> None:
    """Go on from the newest checkpoint until a step; the first rank saves weights, metrics and shares of memory."""
    chosen = problem(world, **options)
    schema, split = parts(chosen)
    store = Checkpoints(folder, keep=100)
    start, damaged = store.newest()
    assert not damaged
    fitted = fit(
        chosen, schema, split, fabric=make_fabric(chosen.device), checkpoints=store, start=start,
        stop_after=until / STEPS,
    )  # fmt: skip
    state = fitted.model.state_dict()
    rows = {name: len(value.to_local()) for name, value in state.items() if isinstance(value, DTensor)}
    weights = {name: value.full_tensor() if isinstance(value, DTensor) else value for name, value in state.items()}
    if not dist.is_initialized() or dist.get_rank() == 0:
        torch.save({"weights": weights, "metrics": fitted.history.metrics, "rows": rows}, folder / "end.pt")
    if dist.is_initialized():
        dist.barrier()


def go_on_with_tables(
    rank: int, world: int, environments: list[dict[str, str]], folder: str, until: int, options: dict[str, Any]
) -> None:
    _begin(rank, environments)
    fit_tables(Path(folder), world, until, options)


def train_tables(rank: int, world: int, environments: list[dict[str, str]], folder: str) -> None:
    """Train a run that is refitted, in a folder."""
    _begin(rank, environments)
    rw.train(problem(world, refit=True), train=pairs(), out=folder)
    dist.barrier()


def score_with_tables(rank: int, world: int, environments: list[dict[str, str]]) -> None:
    """Compare start, scores and gradients with those of whole tables; the last rank has no user of the batch."""
    _begin(rank, environments)
    dist.init_process_group("gloo")
    random = torch.Generator().manual_seed(1)
    users, items = (torch.randint(n, shape, generator=random) for n, shape in ((70, (30,)), (1009, (30, 5))))
    given, given_all = (torch.randn(30, n, generator=random).double() for n in (5, 1009))
    torch.manual_seed(0)
    whole = MatrixFactorisation(70, 1009, dimensions=7)
    after = torch.get_rng_state()
    torch.manual_seed(0)
    sharded = MatrixFactorisation(70, 1009, dimensions=7, sharded=True)
    assert torch.equal(torch.get_rng_state(), after)
    for name, value in whole.state_dict().items():
        assert torch.equal(sharded.state_dict()[name].full_tensor(), value)
    whole.double(), sharded.double()
    own = torch.arange(30) % max(1, world - 1) == rank
    some, every = sharded(users[own], items[own]), sharded(users[own])
    torch.testing.assert_close(some, whole(users, items)[own], rtol=0, atol=1e-12)
    torch.testing.assert_close(every, whole(users)[own], rtol=0, atol=1e-12)
    # The mean over ranks is the gradient, as DDP takes it.
    (world * ((some * given[own]).sum() + (every * given_all[own]).sum())).backward()
    ((whole(users, items) * given).sum() + (whole(users) * given_all).sum()).backward()
    for name, parameter in whole.named_parameters():
        gradient = sharded.get_parameter(name).grad
        assert len(gradient.to_local()) <= -(-len(parameter) // world)
        torch.testing.assert_close(gradient.full_tensor(), parameter.grad, rtol=0, atol=1e-12)
    dist.barrier()


def _begin(rank: int, environments: list[dict[str, str]]) -> None:
    os.environ.update(environments[rank])
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
