"""1 = 2 = 3 processes: the same gradients, and the same state on all ranks."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch

from workers.processes import run_ranks
from workers.train_steps import train_all

CORE = [
    *("one list", "ragged", "embedding", "columns", "stable one list", "stable ragged", "stable embedding"),
    *("song", "k-song", "k-song full", "solc", "noise", "soap", "memory embedding", "mixed embedding"),
]
# Kinds that need more than the core, by the library they need.
MORE = {
    "pytorch_metric_learning": ["memory"],
    "lightning_fabric": ["detector", "joint detector", "balanced detector", "alrp detector", "proposals"],
}
MISSING = {kind: library for library, kinds in MORE.items() if find_spec(library) is None for kind in kinds}
KINDS = [kind for kinds in (CORE, *MORE.values()) for kind in kinds]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder for each number of processes, with what every rank found for every kind of loss."""
    found = {}
    for world in (1, 2, 3):
        folder = found[world] = tmp_path_factory.mktemp(f"{world}-processes")
        run_ranks(train_all, world, str(folder), [kind for kind in KINDS if kind not in MISSING])
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_one_two_and_three_processes_train_alike(kind, folders):
    if kind in MISSING:
        pytest.skip(f"needs {MISSING[kind]}")
    runs = {
        world: [torch.load(folder / f"{kind}-{rank}.pt", weights_only=True) for rank in range(world)]
        for world, folder in folders.items()
    }
    (single,) = runs[1]
    for world in (2, 3):
        for rank in runs[world]:
            assert rank["state"].keys() == single["state"].keys()
            for name, tensor in rank["state"].items():
                assert torch.equal(tensor, runs[world][0]["state"][name]), f"{name} differs between ranks"
                torch.testing.assert_close(tensor, single["state"][name], rtol=1e-5, atol=1e-6)
            for step, alone in zip(rank["steps"], single["steps"], strict=True):
                for name, gradient in alone.items():
                    torch.testing.assert_close(step[name], gradient, rtol=0, atol=1e-6, msg=f"{world} {name}")
