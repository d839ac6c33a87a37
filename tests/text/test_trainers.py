"""Both trainers of sentence-transformers run with the losses: resumed, in two processes, and in bf16."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from workers.patience import PATIENCE
from workers.processes import Program, rank_environments

pytest.importorskip("sentence_transformers")
pytest.importorskip("datasets")

QUIET = {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "TOKENIZERS_PARALLELISM": "false"}


def train(kind, folder, runs, *, batch=4, processes=1, precision="double"):
    from workers.text_training import train as run

    ranks = [
        Program(run, kind, str(folder), runs, batch // processes, precision, environment={**QUIET, **variables})
        for variables in rank_environments(processes)
    ]
    for rank in ranks:
        _, errors = rank.communicate(timeout=PATIENCE)
        assert rank.returncode == 0, errors[-3000:]


def weights(folder: Path, name: str):
    return load_file(folder / f"{name}.safetensors")


@pytest.mark.parametrize("kind", ["bi", "cross"])
def test_a_resumed_training_ends_where_it_would_have(tmp_path, kind):
    train(kind, tmp_path, [("whole", 6, ""), ("first", 3, ""), ("second", 6, "first")])
    whole, second = weights(tmp_path, "whole"), weights(tmp_path, "second")
    for name, value in weights(tmp_path, "first").items():
        assert value.isfinite().all(), name
    assert any(not torch.equal(whole[name], value) for name, value in weights(tmp_path, "first").items())
    for name, value in whole.items():
        assert torch.equal(second[name], value), name


@pytest.mark.parametrize("kind", ["bi", "cross"])
def test_two_processes_train_like_one(tmp_path, kind):
    train(kind, tmp_path, [("alone", 3, "")])
    train(kind, tmp_path, [("both", 3, "")], processes=2)
    both = weights(tmp_path, "both")
    for name, value in weights(tmp_path, "alone").items():
        torch.testing.assert_close(both[name], value, rtol=1e-6, atol=1e-8, msg=name)


@pytest.mark.parametrize("kind", ["bi", "cross"])
def test_bf16_trains(tmp_path, kind):
    train(kind, tmp_path, [("half", 3, ""), ("start", 1, "")], precision="bf16")
    half, start = weights(tmp_path, "half"), weights(tmp_path, "start")
    assert all(value.isfinite().all() for value in half.values())
    assert any(not torch.equal(half[name], value) for name, value in start.items())
