"""The examples run as printed, go on where they ended, and train the same on one and on two processes."""

from __future__ import annotations

import ast
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from workers.patience import PATIENCE
from workers.processes import Program, rank_environments
from workers.run_example import run_example

ROOT = Path(__file__).parents[2]
# What each example needs beyond the project's own dependencies.
NEEDS = {
    "plain_torch": "torch",
    "lightning_module": "lightning",
    "accelerate_loop": "accelerate",
    "huggingface_trainer": "transformers",
    "sentence_transformer": "datasets",
    "cross_encoder": "datasets",
}
# Their loss keeps nothing between batches.
WITHOUT_MEMORY = ("cross_encoder",)
# tests/examples/test_ray.py runs the one that needs a cluster.
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py") if path.stem != "ray_train")
LONGEST = 40


def run(name: str, folder: Path, runs: list[tuple[str, int]], *, processes: int = 1) -> list[dict[str, float]]:
    """The metrics that the first process printed, one dict for each (path, epochs)."""
    more = [str(processes)] if name == "lightning_module" else []
    words = [[str(folder / path), str(epochs), *more] for path, epochs in runs]
    quiet = {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    ranks = [
        Program(run_example, str(ROOT / "examples" / f"{name}.py"), words, environment={**quiet, **variables})
        for variables in rank_environments(processes)
    ]
    printed = []
    for rank in ranks:
        out, errors = rank.communicate(timeout=PATIENCE)
        assert rank.returncode == 0, errors
        printed.append(out)
    lines = [line for line in printed[0].splitlines() if line.startswith("{") and "runtime" not in line]
    return [ast.literal_eval(line) for line in lines]


def states(name: str, place: Path) -> dict[str, torch.Tensor]:
    """The weights of the model and the memory of the loss, as the example's own checkpoint holds them."""
    if name == "plain_torch":
        saved = torch.load(place, weights_only=True)
        return {f"{part}.{key}": tensor for part in ("model", "loss") for key, tensor in saved[part].items()}
    if name == "lightning_module":
        return dict(torch.load(place / "last.ckpt", weights_only=True)["state_dict"])
    from safetensors.torch import load_file

    if name in ("huggingface_trainer", "cross_encoder", "sentence_transformer"):
        last = max(place.glob("checkpoint-*"), key=lambda folder: int(folder.name.split("-")[1]))
        weights = load_file(next(last.rglob("model.safetensors")))
        memory = load_file(last / "corpus_loss.safetensors") if name == "sentence_transformer" else {}
        return weights | {f"loss.{key}": tensor for key, tensor in memory.items()}
    memory = torch.load(place / "custom_checkpoint_0.pkl", weights_only=True)
    return load_file(place / "model.safetensors") | {f"loss.{key}": tensor for key, tensor in memory.items()}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What an example did on one process: its folder, and what two epochs, one, and that one gone on with gave."""

    @cache
    def found(name: str) -> tuple[Path, list[dict[str, float]]]:
        if find_spec(NEEDS[name]) is None:
            pytest.skip(f"{name} needs {NEEDS[name]}")
        folder = tmp_path_factory.mktemp(name)
        return folder, run(name, folder, [("whole", 2), ("parts", 1), ("parts", 2)])

    return found


def test_there_is_an_example_for_each_trainer():
    assert set(EXAMPLES) == set(NEEDS)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_short(name):
    assert len((ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8").splitlines()) <= LONGEST


@pytest.mark.parametrize("name", EXAMPLES)
def test_stopping_after_an_epoch_and_going_on_changes_nothing(name, alone):
    folder, (whole, first, second) = alone(name)
    assert first != whole, "the second epoch must matter for this test to mean anything"
    assert second == whole
    expected, found = states(name, folder / "whole"), states(name, folder / "parts")
    assert expected.keys() == found.keys()
    if name not in WITHOUT_MEMORY:
        assert any("loss" in key for key in found), "the checkpoint must hold the memory of the loss"
    for key, tensor in expected.items():
        assert torch.equal(found[key], tensor), key


# Starting two processes takes long; two of the examples are enough for every day.
DAILY = ("accelerate_loop", "lightning_module")


@pytest.mark.parametrize(
    "name", [name if name in DAILY else pytest.param(name, marks=pytest.mark.slow) for name in EXAMPLES]
)
def test_two_processes_train_like_one(name, alone):
    folder, _ = alone(name)
    run(name, folder, [("both", 2)], processes=2)
    expected, found = states(name, folder / "whole"), states(name, folder / "both")
    assert expected.keys() == found.keys()
    for key, tensor in expected.items():
        torch.testing.assert_close(found[key], tensor, rtol=1e-6, atol=1e-7, msg=key)
