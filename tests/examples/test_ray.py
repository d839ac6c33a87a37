"""The example of Ray Train on a local cluster of two workers trains the weights of one process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from rankwise.cli import main
from workers.patience import PATIENCE
from workers.rows import write_all

ROOT = Path(__file__).parents[2]


@pytest.mark.filterwarnings("ignore")
def test_two_workers_of_ray_train_the_weights_of_one_process(tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="ray is not installed")
    monkeypatch.chdir(tmp_path)
    write_all(tmp_path)
    recipe = tmp_path / "queries.yaml"
    recipe.write_text(recipe.read_text() + "device: {precision: '64'}\n")
    assert main(["train", str(recipe), "--out", "one"]) == 0
    command = [sys.executable, str(ROOT / "examples" / "ray_train.py"), str(recipe), "two", "2"]
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=4 * PATIENCE, env={**os.environ, **quiet}, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    one, two = (load_file(tmp_path / run / "model.safetensors") for run in ("one", "two"))
    assert all(torch.allclose(two[name], value, atol=1e-6) for name, value in one.items())
