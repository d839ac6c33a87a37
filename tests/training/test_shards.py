"""Checkpoints whose state is sharded: written by any number of ranks, taken up by any other, nothing lost."""

from __future__ import annotations

import pytest
import torch
from lightning_fabric import Fabric

from rankwise.training import Checkpoints, read_checkpoint
from workers.processes import rank_environments, run_ranks
from workers.resharded_fit import PRECISION, STEPS, fit_on, go_on


def train_over(folder, worlds, way):
    """Train a part of the steps on each number of ranks, one after the other; return the end."""
    for number, world in enumerate(worlds, start=1):
        until = STEPS * number // len(worlds)
        if world == 1:
            fitted = fit_on(Fabric(accelerator="cpu", devices=1, precision=PRECISION[way]), folder, until)
            end = {"model": fitted.model.state_dict(), "loss": fitted.loss.state_dict()}
        else:
            run_ranks(go_on, world, rank_environments(world), str(folder), until, way)
            end = torch.load(folder / "end.pt", weights_only=True)
    return end


def rows_by_id(state, ids):
    rows = state[ids.removesuffix("ids") + "rows"]
    return {tuple(key): row for key, row in zip(state[ids].view(len(rows), -1).tolist(), rows, strict=True)}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("worlds, way, close", [((4, 2, 1, 3), "ddp", 1e-6), ((3, 1, 2), "fsdp", 1e-5)])
def test_ranks_go_on_from_the_checkpoint_of_other_ranks(tmp_path, worlds, way, close):
    alone = train_over(tmp_path / "one", (1,), way)
    end = train_over(tmp_path / "many", worlds, way)
    for name, value in alone["model"].items():
        # No ranking depends on the last bias: its gradient in float32 is rounding, which AdamW scales to whole steps.
        if way == "ddp" or value.shape != (1,):
            torch.testing.assert_close(end["model"][name], value, rtol=close, atol=close)
    tables = [
        name for name in alone["loss"] if name.endswith("ids") and name.removesuffix("ids") + "rows" in end["loss"]
    ]
    if way == "fsdp":  # thresholds are scores, which follow that bias
        tables = [name for name in tables if not name.startswith("thresholds")]
    assert tables
    for name in tables:
        expected, found = rows_by_id(alone["loss"], name), rows_by_id(end["loss"], name)
        assert expected.keys() == found.keys()
        for key, row in expected.items():
            torch.testing.assert_close(found[key].double(), row.double(), rtol=10 * close, atol=10 * close)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", ["ddp", "fsdp"])
def test_the_same_ranks_go_on_bit_for_bit_from_shares_of_each(tmp_path, way):
    straight = train_over(tmp_path / "straight", (2,), way)
    again = train_over(tmp_path / "again", (2, 2), way)
    for part in ("model", "loss"):
        assert straight[part].keys() == again[part].keys()
    for name, value in straight["model"].items():
        assert torch.equal(again["model"][name], value), name
    for name, value in straight["loss"].items():
        assert torch.equal(again["loss"][name], value), name
    folder = tmp_path / "again"
    state = read_checkpoint(max(folder.glob("step-*.pt")))
    assert len(state["shards"]["files"]) == 2
    # Each file holds a share: what is sharded is nowhere whole.
    sizes = [size for size, _ in state["shards"]["files"].values()]
    assert max(sizes) < 0.8 * sum(sizes)
    assert not [name for name in state["loss"] if name.endswith("rows")]


@pytest.mark.filterwarnings("ignore")
def test_damaged_shares_are_named_and_the_checkpoint_before_is_taken(tmp_path):
    train_over(tmp_path, (2,), "ddp")
    store = Checkpoints(tmp_path, keep=100)
    newest, before = store.paths()[:2]
    share = next((tmp_path / f"{newest.stem}.shards").iterdir())
    content = bytearray(share.read_bytes())
    content[-3] ^= 1
    share.write_bytes(content)
    state, damaged = store.newest()
    assert [each.path for each in damaged] == [newest]
    assert f"{share}: the checksum does not match" in damaged[0].reason
    assert state["step"] == int(before.stem.removeprefix("step-"))
    share.unlink()
    with pytest.raises(ValueError, match="expected the share of a process in a checkpoint, got no file"):
        read_checkpoint(newest)


def test_folders_of_dropped_checkpoints_are_removed(tmp_path):
    store = Checkpoints(tmp_path, keep=2)
    for step in (1, 2, 3, 4):
        folder = tmp_path / f"step-{step:08d}.shards"
        folder.mkdir()
        (folder / "a.safetensors").write_bytes(b"x")
        shards = {"folder": folder.name, "files": {}}
        store.save({"step": step, "shards": shards}, step, best=step in (1, 3))
    names = ["best-00000003.shards", "step-00000003.shards", "step-00000004.shards"]
    assert sorted(path.name for path in tmp_path.glob("*.shards")) == names
    assert read_checkpoint(store.best)["shards"]["folder"] == str(tmp_path / "best-00000003.shards")
