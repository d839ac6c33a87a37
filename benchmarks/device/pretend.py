"""A pretend accelerator for tests on a machine without one.

`PretendTensor` reports a device other than the CPU and keeps its numbers in a CPU tensor. Within `PretendDevice` every
operation on such tensors follows the rules of CUDA: tensors of two devices do not mix, numpy cannot read them, and
autocast takes the device by its name. The mode counts the operations, and the stops: operations whose result the host
has to wait for, because it reads a number or a data-dependent shape.

With `float64=False` the device refuses that dtype, as Apple's MPS does.
"""

from __future__ import annotations

import collections
import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map_only

__all__ = ["DEVICE", "PretendDevice", "PretendTensor"]

# A device that every build of torch knows by name and that holds no numbers by itself.
DEVICE = torch.device("meta")

# The host waits for these: it reads a number, or the shape of the result depends on the numbers.
_STOPS = {
    "_local_scalar_dense", "_unique", "_unique2", "bincount", "equal", "is_nonzero", "item", "masked_select", "nonzero",
    "unique_consecutive", "unique_dim", "unique_dim_consecutive",
}  # fmt: skip
# These launch no kernel: they allocate, or describe the same numbers differently.
_FREE = {
    "_reshape_alias", "_unsafe_view", "alias", "as_strided", "detach", "diagonal", "empty", "empty_like",
    "empty_strided", "expand", "lift_fresh", "new_empty", "new_empty_strided", "permute", "select", "slice", "split",
    "split_with_sizes", "squeeze", "t", "transpose", "unbind", "unfold", "unsqueeze", "view",
}  # fmt: skip
# CUDA accepts a CPU tensor of no dimension beside its own, but not in these operations.
_STRICT = {
    "_index_put_impl_", "addmm", "baddbmm", "bmm", "bucketize", "cat", "gather", "index_add", "index_put",
    "index_select", "masked_scatter", "mm", "scatter", "scatter_add", "scatter_reduce", "searchsorted", "stack",
}  # fmt: skip


class PretendTensor(torch.Tensor):
    """A tensor of the pretend device; `numbers` is the CPU tensor behind it."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, numbers):
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            numbers.shape,
            strides=numbers.stride(),
            storage_offset=numbers.storage_offset(),
            dtype=numbers.dtype,
            device=DEVICE,
        )
        made.numbers = numbers
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError(f"{func}: a tensor of the pretend device was used outside of PretendDevice")

    def __repr__(self):
        return f"PretendTensor({self.numbers})"

    def tolist(self):
        active = PretendDevice.active
        if active is not None:
            active.stop("tolist")
        return self.numbers.tolist()

    def numpy(self, *_, **__):
        raise TypeError("can't convert a tensor of the pretend device to numpy; use Tensor.cpu() first")

    __array__ = numpy

    def new_tensor(self, data, dtype=None, device=None, requires_grad=False):
        made = torch.tensor(data, dtype=self.dtype if dtype is None else dtype)
        return made.to(self.device if device is None else device).requires_grad_(requires_grad)


class PretendDevice(TorchDispatchMode):
    """Run what is inside as on an accelerator, and count.

    Attributes:
        operations: how often each operation ran that launches a kernel.
        stops: how often the host had to wait, by operation and line of the package.
    """

    active = None

    def __init__(self, *, float64=True):
        super().__init__()
        self.float64 = float64
        self.operations, self.stops = collections.Counter(), collections.Counter()

    def __enter__(self):
        self._before = torch.tensor, torch.as_tensor, torch.autocast, torch.is_autocast_enabled, PretendDevice.active
        make, take, autocast, enabled, _ = self._before
        torch.tensor, torch.as_tensor = _on_device(make), _on_device(take)
        torch.autocast = lambda device_type, *args, **kwargs: autocast(_autocast_name(device_type), *args, **kwargs)
        torch.is_autocast_enabled = lambda *device_type: enabled(*map(_autocast_name, device_type))
        # The backward pass must run in this thread, where the mode is active.
        self._threads = torch.autograd.is_multithreading_enabled()
        torch.autograd.set_multithreading_enabled(False)
        PretendDevice.active = self
        return super().__enter__()

    def __exit__(self, *error):
        torch.tensor, torch.as_tensor, torch.autocast, torch.is_autocast_enabled, PretendDevice.active = self._before
        torch.autograd.set_multithreading_enabled(self._threads)
        return super().__exit__(*error)

    def put(self, tensor):
        """Return a copy of a CPU tensor on the device."""
        return tensor.detach().to(DEVICE)

    def reset(self):
        """Set the counts to 0."""
        self.operations.clear()
        self.stops.clear()

    def stop(self, name):
        self.stops[f"{name} at {_line()}"] += 1

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = func._schema.name.split("::")[1]
        base = name if name.startswith("_") else name.rstrip("_")
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        own = [tensor for tensor in tensors if isinstance(tensor, PretendTensor)]
        target = kwargs.get("device")
        target = None if target is None else torch.device(target)
        if not own and (target is None or target.type != DEVICE.type):
            return func(*args, **kwargs)
        if len(own) < len(tensors):
            self._check_mixture(base, args, tensors)
        self._count(base, args, kwargs, bool(own), target)
        inner_args, inner_kwargs = tree_map_only(PretendTensor, lambda t: t.numbers, (args, kwargs))
        if target is not None:
            inner_kwargs["device"] = "cpu"
            inner_kwargs.pop("pin_memory", None)
        result = func(*inner_args, **inner_kwargs)
        if base in ("_local_scalar_dense", "equal"):
            return result
        if target is not None and target.type == "cpu":
            return result.clone() if result is inner_args[0] else result
        if base == "copy" and not isinstance(args[0], PretendTensor):
            return args[0]
        wrapped = tree_map_only(torch.Tensor, self._wrap, result)
        return return_and_correct_aliasing(func, args, kwargs, wrapped) if own else wrapped

    def _wrap(self, numbers):
        if numbers.dtype == torch.float64 and not self.float64:
            raise TypeError("the pretend device does not support float64; use float32")
        return PretendTensor(numbers)

    def _check_mixture(self, base, args, tensors):
        """Raise an error where CUDA would, for an operation that has CPU tensors beside those of the device."""
        others = [tensor for tensor in tensors if not isinstance(tensor, PretendTensor)]
        if base in ("copy", "_to_copy"):
            return
        if base in ("index", "index_put", "_index_put_impl_") and isinstance(args[0], PretendTensor):
            values = args[2] if len(args) > 2 else None
            if values is None or isinstance(values, PretendTensor) or not values.dim():
                if any(isinstance(index, torch.Tensor) and not isinstance(index, PretendTensor) for index in args[1]):
                    self.stop("index from the CPU")
                return
        if base in _STRICT or any(tensor.dim() for tensor in others):
            raise RuntimeError(
                f"aten::{base}: expected all tensors on one device, got "
                + ", ".join(f"{tensor.device} {tuple(tensor.shape)}" for tensor in tensors)
            )

    def _count(self, base, args, kwargs, own, target):
        if base not in _FREE:
            self.operations[base] += 1
        if not own:
            if base == "_to_copy" and not kwargs.get("non_blocking"):
                self.stop("copy from the CPU")
            return
        waits = base in _STOPS
        waits |= base == "repeat_interleave" and kwargs.get("output_size") is None
        if base in ("index", "index_put", "_index_put_impl_"):
            chosen = any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1])
            # A number is written through a mask by masked_fill; anything else needs the indices.
            waits |= chosen and not (base != "index" and args[2].numel() == 1)
        if base == "_to_copy" and target is not None and target.type == "cpu":
            waits = True
        if base == "copy" and isinstance(args[0], PretendTensor) != isinstance(args[1], PretendTensor):
            waits |= not (len(args) > 2 and args[2])
        if waits:
            self.stop(base)


def _autocast_name(device_type):
    return "cpu" if device_type == DEVICE.type else device_type


def _on_device(make):
    """Return `torch.tensor` or `torch.as_tensor` for both devices: they are made on the CPU, then moved."""

    def made(data, *args, device=None, requires_grad=False, **kwargs):
        if requires_grad:
            kwargs["requires_grad"] = True
        if isinstance(data, torch.Tensor) or device is None or torch.device(device).type != DEVICE.type:
            return make(data, *args, device=device, **kwargs)
        return make(data, *args, **kwargs).to(DEVICE)

    return made


def _line():
    """Return the file and line of the package that runs, for a message."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if "/rankwise/" in name and "/tests/" not in name:
            return f"{name.rpartition('/rankwise/')[2]}:{frame.f_lineno}"
        frame = frame.f_back
    return "the backward pass"
