"""Lists that live on one rank: 1 = 2 = 4 ranks, the state shared out, one collective."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rankwise.distributed import list_owners
from rankwise.losses import AUPRCLoss, NDCGLoss, SumLoss, create_loss
from workers.local_lists import fail_on_one_rank, train_local
from workers.processes import run_ranks

KINDS = ["song", "k-song", "solc", "switch", "sum", "lambdarank"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """By number of ranks and kind of loss, what each rank recorded."""
    found = {}
    for world in (1, 2, 4):
        folder = tmp_path_factory.mktemp(f"{world}-ranks")
        run_ranks(train_local, world, str(folder), KINDS)
        for kind in KINDS:
            records = [torch.load(folder / f"{kind}-{rank}.pt", weights_only=True) for rank in range(world)]
            found[world, kind] = records
    return found


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_ranks_with_their_own_lists_train_as_one_process(runs, world, kind):
    (single,) = runs[1, kind]
    for rank in runs[world, kind]:
        for step, alone in zip(rank["steps"], single["steps"], strict=True):
            for name, expected in alone.items():
                torch.testing.assert_close(step[name], expected, rtol=0, atol=1e-9, msg=name)
        assert rank["state"].keys() == single["state"].keys()
        for name, expected in single["state"].items():
            torch.testing.assert_close(rank["state"][name], expected, rtol=0, atol=1e-9, msg=name)


@pytest.mark.parametrize("kind", ["song", "k-song", "solc"])
def test_the_state_is_shared_out_and_joined_without_loss(runs, kind):
    (single,) = runs[1, kind]
    for world in (2, 4):
        ranks = runs[world, kind]
        assert all(rank["same"] for rank in ranks)
        for name, rows in single["rows"].items():
            assert sum(rank["rows"][name] for rank in ranks) == rows > 0
            assert max(rank["rows"][name] for rank in ranks) < rows


def test_an_error_on_one_rank_is_raised_on_all(tmp_path):
    run_ranks(fail_on_one_rank, 2, str(tmp_path))
    for rank in range(2):
        assert torch.load(tmp_path / f"said-{rank}.pt", weights_only=True).startswith("rank 1: labels: expected")


def test_losses_whose_lists_share_state_stay_gathered():
    for name in ("ndcg", "top-k-ndcg", "listwise-cross-entropy", "lambdarank", "softmax", "pap"):
        assert create_loss(name).keep_lists_local(), name
    for loss in (AUPRCLoss(), NDCGLoss(lists="columns"), NDCGLoss(reduction="sum"), create_loss("gumbel-approx-ndcg")):
        assert not loss.keep_lists_local()
    assert SumLoss(NDCGLoss(), create_loss("softmax")).keep_lists_local()


def test_lists_are_spread_over_ranks_by_id_alone():
    for step in (1, 7, 64, 1000):
        owners = list_owners(np.arange(4000) * step, 4)
        assert np.bincount(owners, minlength=4).max() < 1.15 * 1000
    assert list_owners(np.array([-5, 3]), 1).tolist() == [0, 0]
