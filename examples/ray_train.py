"""Ray Train: a recipe on the workers of a Ray cluster; a worker that is lost is replaced, and the run goes on.

python examples/ray_train.py cells.yaml /shared/runs/cells 2     # recipe, folder that all machines see, workers"""

import json
import os
import sys
from pathlib import Path

import ray
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

import rankwise as rw
from rankwise.runs import train_seeds


def train_here(config):
    os.chdir(config["here"])  # the files of a recipe are found from where it was started
    # Ray has set the variables of torchrun: the processes find each other, and each takes its share of every batch.
    problem = rw.load_problem(config["recipe"])
    train_seeds(problem, out=config["folder"], resume=Path(config["folder"]).exists())


if __name__ == "__main__":
    recipe, folder, workers = sys.argv[1:] if len(sys.argv) == 4 else sys.exit(__doc__)
    ray.init(ignore_reinit_error=True)
    config = {"recipe": str(Path(recipe).resolve()), "folder": str(Path(folder).resolve()), "here": os.getcwd()}
    TorchTrainer(
        train_here,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=int(workers)),
        run_config=RunConfig(storage_path=config["folder"] + ".ray", failure_config=FailureConfig(max_failures=3)),
    ).fit()
    print(json.loads(Path(folder, "test.json").read_text())["means"])
