"""`import rankwise` needs torch and numpy only, and costs little more than `import torch`."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CORE = ("torch", "numpy")

BLOCKED_IMPORTS = """
import json, sys

blocked, at_start = set(json.loads(sys.argv[1])), set(sys.modules)

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r} (blocked)", name=name)

sys.meta_path.insert(0, Blocker())
"""

USE = """
import torch
import rankwise as rw

scores = torch.tensor([0.9, 0.2, 0.4, -0.3], requires_grad=True)
labels = torch.tensor([1, 0, 1, 0])
assert abs(rw.evaluate(scores.detach(), labels, ["ap"]).means["ap"] - 1.0) < 1e-12
loss = rw.losses.AUPRCLoss(prior=0.5)
loss(scores, labels).backward()
assert torch.isfinite(scores.grad).all()
print(json.dumps(sorted(sys.modules.keys() - at_start)))
"""


@pytest.fixture(scope="module")
def loaded():
    """Return the modules that are loaded after a metric and a loss have been used."""
    script = BLOCKED_IMPORTS + USE
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(sorted(_modules_outside_core()))], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def test_core_needs_torch_and_numpy_only(loaded):
    assert not _modules_outside_core() & {name.partition(".")[0] for name in loaded}


def test_the_core_loads_none_of_the_upper_layers(loaded):
    above = ("data", "models", "training", "problems", "tasks", "report", "runs", "cli")
    assert not loaded & {f"rankwise.{name}" for name in above}


def test_plain_use_does_not_load_the_compiler(loaded):
    assert "rankwise.checks" in loaded
    assert "torch._dynamo" not in loaded


def test_the_block_itself_works():
    script = BLOCKED_IMPORTS + "import pytest"
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(sorted(_modules_outside_core()))], capture_output=True, text=True
    )
    assert "No module named 'pytest' (blocked)" in done.stderr


@pytest.mark.slow
def test_import_costs_little_more_than_torch():
    seconds: dict[str, list[float]] = {"import torch": [], "import rankwise": []}
    for _ in range(6):
        for statement, times in seconds.items():
            start = _seconds_of_children()
            subprocess.run([sys.executable, "-c", statement], check=True)
            times.append(_seconds_of_children() - start)
    # The first of each reads the files from the disk.
    torch_only, with_rankwise = (statistics.median(times[1:]) for times in seconds.values())
    assert with_rankwise - torch_only <= 0.3


def _seconds_of_children() -> float:
    """Return the processor seconds of the processes that have ended; other work on the machine does not add to them."""
    times = os.times()
    return times.children_user + times.children_system


def _modules_outside_core() -> set[str]:
    """Top-level modules of every installed distribution that torch and numpy can do without."""
    allowed = _with_requirements(CORE) | {"rankwise"}
    return {
        module
        for module, owners in metadata.packages_distributions().items()
        if not {canonicalize_name(owner) for owner in owners} & allowed and module not in sys.stdlib_module_names
    }


def _with_requirements(names: tuple[str, ...]) -> set[str]:
    found: set[str] = set()
    waiting = [canonicalize_name(name) for name in names]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        try:
            requirements = [Requirement(line) for line in metadata.requires(name) or ()]
        except metadata.PackageNotFoundError:
            continue
        waiting += [
            canonicalize_name(requirement.name)
            for requirement in requirements
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        ]
    return found
