"""Pair sums by the Triton kernel, in Triton's interpreter, beside sorted and dense ones in float64."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rankwise.lists import ItemMask
from rankwise.pairs.sums import choose_method
from rankwise.surrogates import OneSidedHuber, Slope

WORKER = Path(__file__).parents[1] / "workers" / "kernel_sums.py"


def test_values_and_gradients_are_those_of_the_other_methods():
    """Triton decides when it is imported whether its interpreter runs: hence a process of its own."""
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, str(WORKER)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    errors = {name: tuple(map(float, both)) for name, *both in map(str.split, done.stdout.splitlines())}
    assert len(errors) == 6
    for name, (value, gradient) in errors.items():
        assert value < 1e-5, name
        assert gradient < 1e-5, name


def test_the_kernel_is_for_float32_on_cuda():
    """The choice depends on device, dtype, surrogate and size only, which a fake tensor has."""
    pytest.importorskip("triton")

    class OnCuda:
        def __init__(self, *shape, dtype=torch.float32, device="cuda"):
            self.shape, self.dtype, self.device = shape, dtype, torch.device(device)

        def numel(self):
            return self.shape[0] * self.shape[1]

        def __len__(self):
            return self.shape[0]

    def chosen(surrogate, size, **options):
        others = OnCuda(1, size, **options)
        return choose_method(others, None, others, surrogate, None, ItemMask(None))

    assert chosen(OneSidedHuber(0.1), 1000) == "kernel"
    assert chosen(OneSidedHuber(0.1), 100_000) == "sorted"
    assert chosen(OneSidedHuber(0.1), 1000, dtype=torch.float64) == "dense"
    assert chosen(OneSidedHuber(0.1), 1000, device="xpu") == "dense"
    assert chosen(Slope(OneSidedHuber(0.1)), 1000) == "dense"


@pytest.mark.parametrize("kind", [0, 4])
def test_the_kernels_compile_for_cuda(kind, monkeypatch):
    """The compiler of Triton needs no device."""
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from rankwise.pairs.by_kernel import _gradients, _sums

    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    options = {"kind": kind, "weighted": True, "rows": 32, "columns": 128}
    for kernel in (_sums, _gradients):
        constants = {name: value for name, value in options.items() if name in kernel.arg_names}
        types = {"width": "i32", "length": "i32", "p": "fp32", **dict.fromkeys(constants, "constexpr")}
        signature = {name: types.get(name, "*fp32") for name in kernel.arg_names}
        made = triton.compile(ASTSource(kernel, signature, constants), target=GPUTarget("cuda", 80, 32))
        assert made.asm["cubin"]
