"""FSDP2 through `fit(fabric=...)` trains what one process trains; other strategies are refused."""

from __future__ import annotations

import pytest
import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.dp import DataParallelStrategy

from rankwise.training import Checkpoints, read_checkpoint
from workers.fitting import EIGHTS, eights, fit_with
from workers.processes import rank_environments, run_ranks
from workers.sharded_fit import fit_sharded, refuse_sharded

SGD = {"name": "sgd", "learning_rate": 0.05}
CASES = {
    "adamw": ("cross-entropy", {}),
    "all options": (
        "soprc",
        {"optimiser": SGD, "gradient": {"clip": 0.5, "rows_at_once": 10}, "average": {"after": 0.3}},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_two_sharded_ranks_train_the_weights_of_one_process(tmp_path, case):
    loss, options = CASES[case]
    alone = fit_with(eights(loss), EIGHTS, steps=24, every=12, checkpoints=Checkpoints(tmp_path / "one"), **options)
    begin = fit_with(eights(loss), EIGHTS, steps=24, every=12, stop_after=0.0, **options)
    run_ranks(fit_sharded, 2, rank_environments(2), str(tmp_path / "two"), loss, options)
    found = torch.load(tmp_path / "two" / "weights.pt", weights_only=True)
    assert any(not torch.equal(v, begin.model.state_dict()[k]) for k, v in alone.model.state_dict().items())
    for name, value in alone.model.state_dict().items():
        torch.testing.assert_close(found["straight"][name], value, rtol=0, atol=1e-5)
        assert torch.equal(found["again"][name], found["straight"][name]), f"{name} differs after resuming"


def test_the_checkpoint_of_sharded_ranks_is_that_of_one_process(tmp_path):
    loss, options = CASES["adamw"]
    run_ranks(fit_sharded, 2, rank_environments(2), str(tmp_path), loss, options)
    start = read_checkpoint(tmp_path / "step-00000012.pt")
    found = torch.load(tmp_path / "weights.pt", weights_only=True)
    alone = fit_with(eights(loss), EIGHTS, steps=24, every=12, start=start, **options)
    for name, value in alone.model.state_dict().items():
        torch.testing.assert_close(found["straight"][name], value, rtol=0, atol=1e-5)


def test_strategies_that_would_train_something_else_are_refused(tmp_path):
    run_ranks(refuse_sharded, 2, rank_environments(2), str(tmp_path))
    for rank in range(2):
        unsharded, tensors = torch.load(tmp_path / f"said-{rank}.pt", weights_only=True)
        assert unsharded.startswith("fabric: expected parallelize_fn to apply fully_shard to the whole module, got")
        assert tensors.startswith("fabric: expected data_parallel_size=2, one share of the batch per process, got 1")
    fabric = Fabric(accelerator="cpu", devices=1)
    fabric._strategy = DataParallelStrategy(parallel_devices=[torch.device("cpu")])
    with pytest.raises(ValueError, match=r"^fabric: expected one device, DDPStrategy or .*, got DataParallelStrategy"):
        fit_with(eights(), EIGHTS, steps=2, every=None, fabric=fabric)
