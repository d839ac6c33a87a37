"""Losses in graphs of torch.compile: traced into the graph if they can be, else as one operator.

A traced loss computes with tensors that have no values. It takes the path of an accelerator, whose shapes do not depend
on values. What needs values becomes an operator that runs when the graph does: the check of the input, the look-up and
the update of a table, the note of skipped lists. These operators count as writing `_ORDER`, so that the compiler keeps
their number and their order.

A loss that needs values in between, such as one of ragged lists, is one operator itself: it runs eagerly, forward and
backward pass at once, and the graph multiplies its gradients by that of the value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.func import functional_call
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from rankwise.checks import NumberedModule, check_later, deferred_checks, is_traced, run_deferred_checks

__all__ = ["add_loss", "locate", "note", "read", "register", "update"]

_ORDER = torch.zeros(1)
# `_ORDER` in the graph that is being traced.
_TRACED_ORDER: ContextVar[Tensor] = ContextVar("order")

_NEEDS_VALUES = (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode)

Inputs = Sequence[Tensor | None]


def add_loss(loss: NumberedModule, *arguments: Tensor | None, **options: Tensor | None) -> Tensor:
    """Add a call of a loss to the graph that torch.compile is tracing, and return its value there."""
    state: dict[str, Tensor] = dict(loss.named_parameters())
    for name, buffer in loss.named_buffers():
        # The others are written by operators only, and may change their size at every step.
        if not name.rpartition(".")[2].startswith("_"):
            state[name] = buffer
    # The graph depends on these modes: with others, the compiler makes another graph.
    modes = tuple(module.training for module in loss.modules())
    inputs = (*arguments, *options.values())
    value: Tensor = _graph_value(loss._number, modes, _ORDER, ",".join(options), inputs, state)
    return value


@torch.compiler.allow_in_graph  # type: ignore[untyped-decorator]
def _graph_value(
    number: int, modes: tuple[bool, ...], order: Tensor, names: str, inputs: Inputs, state: dict[str, Tensor]
) -> Tensor:
    """Compute the value of a loss. The compiler runs this function with traced tensors, to learn its operations."""
    loss = NumberedModule.live[int(number)]
    if not is_traced(order):  # a backend that runs the graph as it is
        return _run(loss, names, inputs)
    distributed = dist.is_available() and dist.is_initialized()
    if distributed or not all(getattr(module, "traceable", True) for module in loss.modules()):
        return _operator_value(loss, order, names, inputs)
    refuse = partial(_add_check, loss, order, names, inputs)
    token = _TRACED_ORDER.set(order)
    mode = detect_fake_mode((order, *inputs))
    assert mode is not None
    assert mode.shape_env is not None
    try:
        with deferred_checks(refuse), mode.shape_env.ignore_fresh_unbacked_symbols():
            call, calls = _Call(loss), {f"loss.{name}": value for name, value in state.items()}
            value: Tensor = functional_call(call, calls, (names, inputs))
            return value
    except _NEEDS_VALUES:
        return _operator_value(loss, order, names, inputs)
    finally:
        _TRACED_ORDER.reset(token)


class _Call(nn.Module):
    """Module that runs a loss eagerly, for `functional_call`."""

    def __init__(self, loss: NumberedModule) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, names: str, inputs: Inputs) -> Tensor:
        return _run(self.loss, names, inputs)


def _run(loss: NumberedModule, names: str, inputs: Inputs) -> Tensor:
    """Call a loss outside of graphs; the last inputs have these names."""
    named = names.split(",") if names else []
    first = len(inputs) - len(named)
    # The method below the wrapper `in_graphs`, in the first class that has one.
    methods = (vars(kind).get("forward") for kind in type(loss).__mro__)
    wrapped = (getattr(method, "__wrapped__", None) for method in methods)
    forward: Callable[..., Tensor] = next(method for method in wrapped if method is not None)
    return forward(loss, *inputs[:first], **dict(zip(named, inputs[first:], strict=True)))


def _add_check(loss: NumberedModule, order: Tensor, names: str, inputs: Inputs, wrong: Tensor) -> None:
    torch.ops.rankwise.refuse(order, wrong, loss._number, names, [None if t is None else t.detach() for t in inputs])


def note(loss: NumberedModule, valid: Tensor) -> None:
    """Add `loss.note(valid)` to the graph that is being traced."""
    run_deferred_checks()
    torch.ops.rankwise.note(_TRACED_ORDER.get(), loss._number, valid.detach())


def locate(table: NumberedModule, ids: Tensor) -> Tensor:
    """Add `table.locate(ids)` to the graph that is being traced."""
    rows: Tensor = torch.ops.rankwise.locate(_TRACED_ORDER.get(), table._number, ids)
    return rows


def read(table: NumberedModule, rows: Tensor) -> Tensor:
    """Add `table.read` of located rows to the graph that is being traced."""
    values: Tensor = torch.ops.rankwise.read(_TRACED_ORDER.get(), table._number, rows)
    return values


def update(
    table: NumberedModule,
    ids: Tensor,
    values: Tensor,
    update_rate: float,
    space: str,
    rows: Tensor | None,
    chosen: Tensor | None,
    write: bool,
    only_chosen: bool,
) -> Tensor:
    """Add `table.update` to the graph that is being traced; `space` is the name of the averaging functions."""
    order = _TRACED_ORDER.get()
    now: Tensor = torch.ops.rankwise.update(
        order, table._number, ids, values, float(update_rate), space, rows, chosen, write, only_chosen
    )
    return now


def _operator_value(loss: NumberedModule, order: Tensor, names: str, inputs: Inputs) -> Tensor:
    """Return the value of a loss that is one operator."""
    if any(getattr(module, "reduction", "mean") == "none" for module in loss.modules()):
        raise RuntimeError(
            f'reduction: {type(loss).__name__} with "none" and this input is no part of a compiled graph; take "mean" '
            'or "sum", padded lists, or no fullgraph=True around it'
        )
    value: Tensor = _Operator.apply(loss, order, names, len(inputs), *inputs, *loss.parameters())
    return value


class _Operator(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, loss: NumberedModule, order: Tensor, names: str, count: int, *tensors: Tensor | None
    ) -> Tensor:
        needed = [index for index, need in enumerate(ctx.needs_input_grad[4:]) if need]
        inputs, parameters = [None if t is None else t.detach() for t in tensors[:count]], tensors[count:]
        results = torch.ops.rankwise.loss(
            order, loss._number, names, needed, inputs, [p.detach() for p in parameters if p is not None]
        )
        ctx.needed, ctx.total = needed, len(tensors)
        shaped = [tensors[index] for index in needed]
        ctx.forms = [(t.shape, t.dtype, t.numel()) for t in shaped if t is not None]
        ctx.save_for_backward(results)
        value: Tensor = results[0].clone()
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (results,) = ctx.saved_tensors
        gradients: list[Tensor | None] = [None] * ctx.total
        first = 1
        for index, (shape, dtype, size) in zip(ctx.needed, ctx.forms, strict=True):
            gradients[index] = (grad * results[first : first + size]).view(shape).to(dtype)
            first += size
        return None, None, None, None, *gradients


def _eager_keys() -> tuple[Any, Any]:
    return torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()


# The dispatch keys outside of any operator: inside of one, torch records no gradients.
with ThreadPoolExecutor(1) as _pool:
    _EAGER_KEYS = _pool.submit(_eager_keys).result()


def _run_refuse(order: Tensor, wrong: Tensor, number: int, names: str, inputs: list[Tensor | None]) -> None:
    loss = NumberedModule.live[number]
    with deferred_checks():
        if wrong.device.type != "cpu":
            for module in loss.modules():
                getattr(module, "defer_checks", _nothing)()
        check_later(wrong, partial(_explain, loss, names, inputs))


@torch.no_grad()
def _explain(loss: NumberedModule, names: str, inputs: Inputs) -> None:
    """Raise the error of a refused batch: in eval mode, which writes no state, the same checks run eagerly."""
    modes = [(module, module.training) for module in loss.modules()]
    loss.eval()
    try:
        _run(loss, names, inputs)
    finally:
        for module, training in modes:
            module.training = training
    raise RuntimeError(f"{type(loss).__name__}: the compiled graph refused a batch that eager code accepts")


def _run_note(order: Tensor, number: int, valid: Tensor) -> None:
    loss: Any = NumberedModule.live[number]
    loss.note(valid.clone())


def _run_locate(order: Tensor, number: int, ids: Tensor) -> Tensor:
    table: Any = NumberedModule.live[number]
    rows: Tensor = table.locate(ids)
    return rows


def _run_read(order: Tensor, number: int, rows: Tensor) -> Tensor:
    table: Any = NumberedModule.live[number]
    values: Tensor = table.read(rows, rows)[0]
    return values


def _run_update(
    order: Tensor,
    number: int,
    ids: Tensor,
    values: Tensor,
    update_rate: float,
    space: str,
    rows: Tensor | None,
    chosen: Tensor | None,
    write: bool,
    only_chosen: bool,
) -> Tensor:
    table: Any = NumberedModule.live[number]
    now: Tensor = table.update(
        ids, values, update_rate, space, rows=rows, chosen=chosen, write=write, only_chosen=only_chosen
    )
    return now.clone() if now is values else now


def _run_loss(
    order: Tensor, number: int, names: str, needed: list[int], inputs: list[Tensor | None], parameters: list[Tensor]
) -> Tensor:
    loss = NumberedModule.live[number]
    with torch._C._ForceDispatchKeyGuard(*_EAGER_KEYS), torch.set_grad_enabled(bool(needed)):
        leaves = [
            t.detach().requires_grad_() if t is not None and index in needed else t for index, t in enumerate(inputs)
        ]
        value = _run(loss, names, leaves)
        tensors = [*leaves, *loss.parameters()]
        wanted = [t for index, t in enumerate(tensors) if index in needed and t is not None]
        gradients: Sequence[Tensor | None] = (
            torch.autograd.grad(value, wanted, allow_unused=True) if value.requires_grad else [None] * len(needed)
        )
        parts = [torch.zeros_like(t) if g is None else g for t, g in zip(wanted, gradients, strict=True)]
        return torch.cat([value.detach().reshape(1), *(part.flatten().to(value.dtype) for part in parts)])


def _fake_loss(
    order: Tensor, number: int, names: str, needed: list[int], inputs: list[Tensor | None], parameters: list[Tensor]
) -> Tensor:
    scores, tensors = inputs[0], [*inputs, *parameters]
    assert scores is not None
    dtype = torch.promote_types(scores.dtype, torch.float32) if scores.is_floating_point() else torch.float64
    size = sum(t.numel() for index, t in enumerate(tensors) if index in needed and t is not None)
    return scores.new_empty(1 + size, dtype=dtype)


def _fake_rows(order: Tensor, number: int, rows: Tensor) -> Tensor:
    table: Any = NumberedModule.live[number]
    return rows.new_empty(len(rows), table.width, dtype=table.dtype)


_LIBRARY = torch.library.Library("rankwise", "DEF")


def register(schema: str, run: Callable[..., Any], fake: Callable[..., Any]) -> None:
    """Add an operator to the library; `fake` returns tensors of the right shapes for those that have no values."""
    name = schema.partition("(")[0]
    _LIBRARY.define(schema)
    _LIBRARY.impl(name, torch.compiler.disable(run), "CompositeExplicitAutograd")
    torch.library.register_fake(f"rankwise::{name}", fake, lib=_LIBRARY)


def _nothing(*inputs: Any) -> None:
    return None


register("refuse(Tensor(a!) order, Tensor wrong, int loss, str names, Tensor?[] inputs) -> ()", _run_refuse, _nothing)
register("note(Tensor(a!) order, int loss, Tensor valid) -> ()", _run_note, _nothing)
register(
    "locate(Tensor(a!) order, int table, Tensor ids) -> Tensor",
    _run_locate,
    lambda order, table, ids: ids.new_empty(len(ids)),
)
register("read(Tensor(a!) order, int table, Tensor rows) -> Tensor", _run_read, _fake_rows)
register(
    "update(Tensor(a!) order, int table, Tensor ids, Tensor values, float update_rate, str space, Tensor? rows, "
    "Tensor? chosen, bool write, bool only_chosen) -> Tensor",
    _run_update,
    lambda order, table, ids, values, *options: torch.empty_like(values),
)
register(
    "loss(Tensor(a!) order, int loss, str names, int[] needed, Tensor?[] inputs, Tensor[] parameters) -> Tensor",
    _run_loss,
    _fake_loss,
)
