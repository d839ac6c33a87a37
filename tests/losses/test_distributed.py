"""1 = 2 = 3 processes: the same gradients, and the same state on all ranks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

WORKER = Path(__file__).parents[1] / "workers" / "train_steps.py"


def train(kind, world, folder):
    folder.mkdir()
    outs = [folder / f"{rank}.pt" for rank in range(world)]
    ranks = [
        subprocess.Popen(
            [sys.executable, str(WORKER), kind, str(rank), str(world), str(folder / "rendezvous"), str(out)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, out in enumerate(outs)
    ]
    for process in ranks:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    return [torch.load(out, weights_only=True) for out in outs]


@pytest.mark.parametrize(
    "kind",
    [
        *("one list", "ragged", "embedding", "columns", "stable one list", "stable ragged", "stable embedding"),
        *("song", "k-song", "k-song full", "solc", "noise", "soap", "memory", "memory embedding"),
    ],
)
def test_one_two_and_three_processes_train_alike(kind, tmp_path):
    (single,) = train(kind, 1, tmp_path / "1")
    for world in (2, 3):
        ranks = train(kind, world, tmp_path / str(world))
        for rank in ranks:
            assert rank["state"].keys() == single["state"].keys()
            for name, tensor in rank["state"].items():
                assert torch.equal(tensor, ranks[0]["state"][name]), f"{name} differs between ranks"
                torch.testing.assert_close(tensor, single["state"][name], rtol=1e-5, atol=1e-6)
            for step, alone in zip(rank["steps"], single["steps"], strict=True):
                for name, gradient in alone.items():
                    torch.testing.assert_close(step[name], gradient, rtol=0, atol=1e-6, msg=f"{world} {name}")
