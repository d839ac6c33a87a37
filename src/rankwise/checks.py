"""Check arguments, and run functions under the modes and devices of torch.

Each error names the argument, what was expected and what came.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import Any, ClassVar, NoReturn, ParamSpec, TypeVar
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from rankwise.registry import nearest

__all__ = [
    "ExactModule",
    "NumberedModule",
    "any_of_many",
    "check_between",
    "check_choice",
    "check_count",
    "check_finite",
    "check_ids",
    "check_k",
    "check_labels",
    "check_later",
    "check_moved",
    "check_positive",
    "check_range",
    "check_same_shape",
    "check_share",
    "check_tensor",
    "deferred_checks",
    "first_order_only",
    "full_precision",
    "has_single_items",
    "in_graphs",
    "is_traced",
    "on_host",
    "outside_inference_mode",
    "pending_checks",
    "read_later",
    "refuse_single_items",
    "run_deferred_checks",
    "send",
    "wide_dtype",
    "widen",
    "with_float64",
]


class _Checks(list[tuple[Tensor, Callable[[list[float]], None]]]):
    """Numbers that the host has yet to read, each with the function that gets them.

    While torch.compile traces a loss there is nothing to read: `refuse` adds the check of a condition to the graph.
    """

    refuse: Callable[[Tensor], None] | None = None

    def __init__(self) -> None:
        super().__init__()
        # Tensors whose smallest and largest element were computed, and these two.
        self._ends: list[tuple[Tensor, tuple[Tensor, Tensor]]] = []

    def ends(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return the smallest and the largest element, computed once for several checks of one tensor."""
        for known, ends in self._ends:
            if known is values:
                return ends
        self._ends.append((values, torch.aminmax(values.detach())))
        return self._ends[-1][1]


# None outside of `deferred_checks`: the host reads each condition at once.
_PENDING: ContextVar[_Checks | None] = ContextVar("pending", default=None)
# Conditions of more elements are reduced on the device before the host reads them.
_MOST_READ = 4096


@contextmanager
def deferred_checks(refuse: Callable[[Tensor], None] | None = None) -> Iterator[None]:
    """Collect the checks of tensors on an accelerator, so that the host synchronises once for all of them.

    They run at the end of the context, or earlier by `run_deferred_checks()`. For traced tensors `refuse` gets the
    condition that any check fails.
    """
    if _PENDING.get() is not None:
        yield
        return
    checks = _Checks()
    checks.refuse = refuse
    token = _PENDING.set(checks)
    try:
        yield
        run_deferred_checks()
    finally:
        _PENDING.reset(token)


def pending_checks() -> object:
    """Return the list of checks that the host has yet to read, or None outside of `deferred_checks`."""
    return _PENDING.get()


def read_later(values: Tensor, use: Callable[[list[float]], None]) -> None:
    """Call `use` with the elements of a tensor: at once on the CPU, else with the deferred checks."""
    pending = _PENDING.get()
    if pending is not None and not on_host(values):
        pending.append((values, use))
    else:
        use(values.reshape(-1).tolist())


def check_later(condition: Tensor, action: Callable[[], None]) -> None:
    """Call `action` if any element of the boolean `condition` is true: at once on the CPU, else with the others."""
    if on_host(condition):
        if bool(condition.any()):
            action()
        return

    def decide(values: list[float]) -> None:
        if any(values):
            action()

    read_later(any_of_many(condition), decide)


def any_of_many(condition: Tensor) -> Tensor:
    """Return whether any element is true if there are many, which saves copying them to the host, else the elements."""
    return condition.any() if condition.numel() > _MOST_READ else condition


def check_between(values: Tensor, low: float, high: float, action: Callable[[], None]) -> None:
    """Call `action` unless all values lie between two bounds; NaN does not."""
    if not values.numel():
        return
    if is_traced(values):
        check_later(~((values >= low) & (values <= high)).all(), action)
        return

    def decide(ends: list[float]) -> None:
        if not low <= ends[0] <= high:
            action()

    pending = _PENDING.get()
    for end in torch.aminmax(values.detach()) if pending is None or on_host(values) else pending.ends(values):
        if on_host(end):
            decide([end.item()])
        else:
            read_later(end, decide)


def run_deferred_checks() -> None:
    """Run the checks collected so far, in their order. Call this before any state is written."""
    pending = _PENDING.get()
    if pending:
        checks = list(pending)
        pending.clear()
        parts = [values.reshape(-1) for values, _ in checks]
        if pending.refuse is not None:
            return pending.refuse(torch.cat(parts).any())
        read = iter(torch.cat(parts).tolist())
        for part, (_, use) in zip(parts, checks, strict=True):
            use(list(itertools.islice(read, len(part))))


def check_tensor(name: str, value: object) -> Tensor:
    """Return a tensor, an array or a list as a tensor; refuse other types, and any call inside torch.func.

    Arrays keep their dtype, and Python floats become float64. Packing depends on tensor values, which torch.func cannot
    trace, and state written inside a transform would hold the tensors of that transform.
    """
    if torch._C._are_functorch_transforms_active():
        raise RuntimeError(
            f"{name}: torch.func transforms are not supported (grad, jacrev, hessian, jvp, vmap); "
            "call losses and metrics outside of them, and take gradients by torch.autograd.grad"
        )
    if isinstance(value, Tensor):
        if value.layout != torch.strided or value.is_quantized:
            raise TypeError(f"{name}: expected a dense tensor, got one of {value.layout} and {value.dtype}")
        return value
    if isinstance(value, np.ma.MaskedArray) and value.mask.any():
        raise ValueError(f"{name}: expected an array without masked items, got {int(value.mask.sum())}; pass mask=")
    kind = type(value).__name__
    try:
        if hasattr(value, "__array__"):
            array = np.asarray(value)
            kind = f"{kind} of {array.dtype}"
            if not array.dtype.isnative:
                array = array.astype(array.dtype.newbyteorder("="))
            # torch.from_numpy supports writable arrays without negative strides only.
            supported = array.flags.writeable and all(stride >= 0 for stride in array.strides)
            return torch.from_numpy(array if supported else array.copy())
        tensor = torch.as_tensor(value)
        return torch.as_tensor(value, dtype=torch.float64) if tensor.is_floating_point() else tensor
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name}: expected a tensor or an array of numbers, got {kind}") from None


def check_finite(name: str, values: Tensor, mask: Tensor | None = None) -> None:
    """Refuse NaN and infinite values; masked items may hold any."""
    if not values.is_floating_point():
        return
    if on_host(values):
        # A sum is finite only if every term is. If finite terms overflow, the slow path below decides.
        wide = torch.float64 if values.dtype == torch.float64 else torch.float32
        if mask is None and math.isfinite(values.detach().sum(dtype=wide).item()):
            return
        _refuse_unless_finite(name, values, mask)
        return
    counted = values.detach() if mask is None else values.detach().masked_fill(~mask, 0)
    largest = torch.finfo(values.dtype).max
    check_between(counted, -largest, largest, partial(_refuse_unless_finite, name, values, mask))


def _refuse_unless_finite(name: str, values: Tensor, mask: Tensor | None) -> None:
    bad = ~torch.isfinite(values.detach())
    if mask is not None:
        bad &= mask
    if bool(bad.any()):
        first = [tuple(p) if len(p) > 1 else p[0] for p in bad.nonzero()[:3].tolist()]
        where = ", ".join(map(str, first))
        count = int(bad.sum())
        raise ValueError(
            f"{name}: expected finite numbers, got {count} NaN or infinite of {values.numel()}, first at {where}"
        )


def check_same_shape(name: str, value: Tensor, like: str, shape: Iterable[int]) -> None:
    if tuple(value.shape) != tuple(shape):
        raise ValueError(f"{name}: expected the shape of {like}, {tuple(shape)}, got {tuple(value.shape)}")


def check_moved(state: Tensor, device: torch.device) -> None:
    """Refuse input on another device than the state of a loss."""
    if state.device != device:
        raise RuntimeError(
            f"the state of the loss is on {state.device}, its input on {device}: move the loss to the device of its "
            f'input, loss.to("{device}")'
        )


def has_single_items(scores: Tensor, mask: object, lists: str = "rows") -> bool:
    """Return whether scores of shape (N, 1) came without a mask, which confirms that lists have one item."""
    return scores.ndim == 2 and lists == "rows" and mask is None and len(scores) > 1 and scores.shape[1] == 1


def refuse_single_items(scores: Tensor, why: str) -> NoReturn:
    """Raise the error for scores for which `has_single_items` is true."""
    raise ValueError(
        f"scores: expected lists of several items, got shape {tuple(scores.shape)}: {len(scores)} lists of one item "
        f"each, {why}; pass scores.flatten() and labels.flatten() (one list), with query_ids= if there are several "
        "lists, or mask= if each list does hold one item"
    )


def check_labels(labels: Tensor, kind: str, mask: Tensor | None = None) -> None:
    """Refuse labels other than 0 and 1 (`kind="binary"`), or negative and infinite ones (`kind="grades"`)."""
    if labels.dtype == torch.bool:
        return
    if labels.is_complex():
        raise TypeError(f"labels: expected numbers, got {labels.dtype}")
    if on_host(labels):
        check_finite("labels", labels, mask)
        if not _surely_right(labels, kind):
            _refuse_wrong_labels(labels, kind, mask)
        return
    refuse = partial(_refuse_wrong_labels, labels, kind, mask)
    if kind == "binary" and labels.is_floating_point():
        check_later(_wrong_labels(labels, kind, mask).any(), refuse)
        return
    counted = labels if mask is None else labels.masked_fill(~mask, 0)
    largest = torch.finfo(labels.dtype).max if labels.is_floating_point() else math.inf
    check_between(counted, 0, 1 if kind == "binary" else largest, refuse)


def _wrong_labels(labels: Tensor, kind: str, mask: Tensor | None) -> Tensor:
    wrong = (labels != 0) & (labels != 1) if kind == "binary" else labels < 0
    return wrong if mask is None else wrong & mask


def _refuse_wrong_labels(labels: Tensor, kind: str, mask: Tensor | None) -> None:
    if labels.is_floating_point():
        _refuse_unless_finite("labels", labels, mask)
    wrong = _wrong_labels(labels, kind, mask)
    if not bool(wrong.any()):
        return
    expected = "0 or 1" if kind == "binary" else "grades of 0 or more"
    first, hint = labels[wrong][0].item(), ""
    if kind == "binary" and first != int(first):
        hint = "; continuous labels need a threshold: labels > t"
    elif kind == "binary":
        hint = "; of several classes choose the positive one: labels == c; grades need a threshold: labels > 0"
    raise ValueError(f"labels: expected {expected}, got {first:g} ({int(wrong.sum())} of {labels.numel()}){hint}")


def _surely_right(labels: Tensor, kind: str) -> bool:
    """Return whether the largest and smallest label, masked or not, already prove all labels valid."""
    if not labels.numel():
        return True
    low, high = (end.item() for end in torch.aminmax(labels))
    return low >= 0 and (kind == "grades" or (high <= 1 and not labels.is_floating_point()))


def check_ids(name: str, ids: object) -> Tensor:
    """Return ids as int64. Integers of any size and sign are valid; floats and booleans are refused, not rounded."""
    tensor = check_tensor(name, ids)
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"{name}: expected integers (int64), got {tensor.dtype}")
    return tensor.to(torch.int64)


def check_k(k: int | None) -> int | None:
    if k is None:
        return None
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise TypeError(f"k: expected a whole number of at least 1 or None, got {k!r}")
    if k < 1:
        raise ValueError(f"k: expected a whole number of at least 1 or None (the whole list), got {k}")
    return int(k)


def check_count(name: str, value: int, *, least: int = 1) -> int:
    """Return `value` as an int; refuse all but whole numbers of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name}: expected a whole number of at least {least}, got {value!r}")
    if value < least:
        raise ValueError(f"{name}: expected a whole number of at least {least}, got {value}")
    return int(value)


def check_share(name: str, value: float, *, open_end: bool = True) -> float:
    """Return `value` as a float; refuse numbers outside (0, 1), or outside (0, 1] with `open_end=False`."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name}: expected a number between 0 and 1, got {value!r}")
    if not (0 < value < 1 or (value == 1 and not open_end)):
        raise ValueError(f"{name}: expected a number in (0, 1{')' if open_end else ']'}, got {value}")
    return float(value)


def check_positive(name: str, value: float, *, zero: bool = False) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name}: expected a number, got {value!r}")
    if not (value > 0 or (zero and value == 0)) or value == float("inf"):
        raise ValueError(f"{name}: expected a finite number {'>= 0' if zero else '> 0'}, got {value}")
    return float(value)


def check_range(name: str, value: object) -> tuple[float, float]:
    """Return the ends of a range of finite width, the lower one first."""
    ends = check_tensor(name, value).flatten().tolist()
    if len(ends) != 2 or not ends[0] < ends[1] or ends[1] - ends[0] == float("inf"):
        raise ValueError(f"{name}: expected the lowest and the highest score, got {value!r}")
    return float(ends[0]), float(ends[1])


def check_choice(name: str, value: str, choices: Iterable[str]) -> str:
    """Return `value`; refuse words that are not among the choices, and name the nearest choice."""
    choices = tuple(choices)
    if value not in choices:
        raise ValueError(f"{name}: unknown word {value!r}{nearest(str(value), choices)}")
    return value


def first_order_only(values: Tensor, name: str, reason: str) -> Tensor:
    """Return `values` with a hook that raises an error in a backward pass with `create_graph=True`.

    Some gradients treat as constant what depends on the scores (moving averages, weights, thresholds), or are no
    derivatives at all. Autograd would differentiate them as they are, and return a wrong second derivative.

    Args:
        values: any tensor between the scores and the value of the loss in the graph.
        name: the name of the loss; reason: the end of the error message.

    Example:
        >>> scores = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> values = first_order_only(scores.square(), "MyLoss", "its weights are held fixed")
        >>> torch.autograd.grad(values.sum(), scores)
        (tensor([2., 4.]),)
    """
    if values.requires_grad:
        values.register_hook(partial(_refuse_second_derivatives, name, reason))
    return values


def _refuse_second_derivatives(name: str, reason: str, gradient: Tensor) -> None:
    if torch.is_grad_enabled():
        raise RuntimeError(f"{name}: second derivatives (create_graph=True) are not supported, because {reason}")


P = ParamSpec("P")
R = TypeVar("R")

HALF = (torch.float16, torch.bfloat16)
# Device types without float64.
_WITHOUT_FLOAT64 = {"mps"}


def wide_dtype(device: torch.device) -> torch.dtype:
    """Return float64, or float32 on a device without it."""
    return torch.float32 if device.type in _WITHOUT_FLOAT64 else torch.float64


def widen(values: Tensor) -> Tensor:
    """Return the values in float64, or in float32 on a device without it."""
    return values.to(wide_dtype(values.device))


def send(values: Tensor, device: torch.device) -> Tensor:
    """Return the values on a device. A copy to an accelerator does not block the host."""
    return values.to(device, non_blocking=device.type != "cpu")


def with_float64(values: Tensor) -> Tensor:
    """Return the values on their own device if it has float64, else on the CPU."""
    return values.cpu() if values.device.type in _WITHOUT_FLOAT64 else values


def is_traced(values: Tensor) -> bool:
    """Return whether torch.compile traces the tensor, which then has no values."""
    return isinstance(values, FakeTensor | FunctionalTensor)


def on_host(values: Tensor) -> bool:
    """Return whether the host can read the values without waiting: on the CPU, and not traced."""
    return values.device.type == "cpu" and not isinstance(values, FakeTensor | FunctionalTensor)


class NumberedModule(nn.Module):
    """Module with a number, by which operators in a compiled graph find it in `live`.

    Attributes:
        traceable: whether torch.compile can trace a call: it writes no state but that of tables (`IdTable`).
    """

    traceable: ClassVar[bool] = True
    live: ClassVar[WeakValueDictionary[int, NumberedModule]] = WeakValueDictionary()
    _numbers = itertools.count(1)

    def __init__(self) -> None:
        super().__init__()
        self._enter()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._enter()

    def _enter(self) -> None:
        self._number = next(self._numbers)
        self.live[self._number] = self


class ExactModule(NumberedModule):
    """Module whose buffers keep their dtype under `half()` and `bfloat16()`.

    In half precision, updates of a moving average would round to nothing. On a device without float64 the buffers are
    float32.
    """

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        def move(values: Tensor) -> Tensor:
            try:
                moved = fn(values)
            except TypeError:
                if values.dtype != torch.float64:
                    raise
                moved = fn(values.float())
            return values.to(moved.device) if moved.dtype in HALF else moved

        return super()._apply(move, recurse)  # type: ignore[no-untyped-call]


def full_precision(device_type: str) -> AbstractContextManager[object]:
    """Return a context that disables autocast, or does nothing if autocast is not enabled."""
    if torch.is_autocast_enabled(device_type):
        return torch.autocast(device_type, enabled=False)
    return nullcontext()


def in_graphs(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap the forward method of a loss so that torch.compile can add it to a graph, see `rankwise.graphs`."""

    @functools.wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> R:
        if torch.compiler.is_compiling():
            from rankwise import graphs

            add: Callable[..., Any] = graphs.add_loss
            value: R = add(*arguments, **options)
            return value
        return function(*arguments, **options)

    return call


def outside_inference_mode(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function that writes state so that it leaves `torch.inference_mode()`, without gradients.

    Tensors created in that mode can be neither updated in place nor used in autograd after it.
    """

    @functools.wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> R:
        if not torch.is_inference_mode_enabled():
            return function(*arguments, **options)
        with torch.inference_mode(False), torch.no_grad():
            named = {name: _normal(value) for name, value in options.items()}
            return function(*map(_normal, arguments), **named)

    return call


def _normal(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) and value.is_inference() else value
