"""Export the model of a run for use without rankwise: an ONNX file or a `torch.export` archive, checked before it is
written."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from rankwise.extras import require
from rankwise.files import write_whole
from rankwise.runs.interfaces import Interface, interface_of

if TYPE_CHECKING:
    from rankwise.runs.run import Run

__all__ = ["FORMATS", "METADATA", "Exported", "export_run"]

FORMATS = (".onnx", ".pt2")
# The key of the metadata in an ONNX file, and with .json the extra file of an archive.
METADATA = "rankwise"
# Largest difference to the run's own output, as a share of its largest value or of 1, whichever is more.
TOLERANCE = 1e-5
# An ONNX file is one protocol buffer, which holds at most so many bytes.
ONNX_BYTES = 2**31 - 2**20

Inputs = tuple[Tensor, ...]


@dataclass(frozen=True)
class Exported:
    """An exported model.

    Attributes:
        path: of the file.
        metadata: stored in it: kind, schema, inputs and outputs by name with dtype and shape, calibration, versions.
        difference: the largest between the file's output and the run's.
        checked: number of entries (rows, images, users or lists) that were compared.
    """

    path: Path
    metadata: dict[str, Any]
    difference: float
    checked: int


def export_run(run: Run, path: str | Path, source: Any = None) -> Exported:
    """Write the model of a run, with its numeric preprocessing, to an ONNX file or a `torch.export` archive.

    The number of rows is free. The output of the file is compared with the run's own, for all checked entries at once
    and for one alone, before the file appears; a difference above 1e-5 is an error, and nothing is written.

    Args:
        run: the run.
        path: ends with .onnx (opened by ONNX Runtime) or .pt2 (opened by `torch.export.load`).
        source: data in the form of the training data to check on; by default random ones.
    """
    path = Path(path)
    if path.suffix not in FORMATS:
        raise ValueError(f"path: expected a name that ends with {' or '.join(FORMATS)}, got {path.name!r}")
    if path.suffix == ".onnx":
        require("exporting to ONNX, which is checked by ONNX Runtime,", ("onnx", "onnxscript", "onnxruntime"))
    model = _plain_copy(run.model)
    interface = interface_of(run, model)
    part = interface.synthetic(torch.Generator().manual_seed(0))
    inputs = interface.tensors(part)
    program = _trace(interface, inputs)
    metadata = _metadata(run, interface, inputs, program)
    text = json.dumps(metadata)
    content = _to_onnx(interface, program, text) if path.suffix == ".onnx" else _to_archive(program, text)
    score = _open_onnx(content) if path.suffix == ".onnx" else _open_archive(content)
    if source is not None:
        part = interface.first(run.schema.read(source, labels="optional"))
        inputs = interface.tensors(part)
    expected = interface.expected(part)
    difference = max(
        _difference(path, score(*inputs), expected),
        _difference(path, score(*(each[:1] for each in inputs)), expected[:1]),
    )
    write_whole(path, content)
    return Exported(path, metadata, difference, len(expected))


def _plain_copy(model: nn.Module) -> nn.Module:
    """Return a copy of a model on the CPU, in evaluation mode, its weights in the usual order in memory."""
    copied = deepcopy(model).cpu().eval().requires_grad_(False)
    for weight in copied.parameters():
        weight.data = weight.data.contiguous()
    return copied


def _trace(interface: Interface, inputs: Inputs) -> ExportedProgram:
    free = {name: Dim(name) for shape in interface.inputs.values() for name in shape if isinstance(name, str)}
    shapes = {
        name: {axis: free[size] for axis, size in enumerate(shape) if isinstance(size, str)}
        for name, shape in interface.inputs.items()
    }
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # its fused operator is unknown elsewhere
    try:
        program = torch.export.export(
            interface.module.eval(),
            inputs,
            dynamic_shapes=shapes,
            strict=False,
            # torch 2.10 cannot prove that attention takes any number of items; the file checks it when it is called.
            prefer_deferred_runtime_asserts_over_guards=True,
        )
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # names folders of this machine
    return program


def _metadata(run: Run, interface: Interface, inputs: Inputs, program: ExportedProgram) -> dict[str, Any]:
    (output,) = (node for node in program.graph.nodes if node.op == "output")
    value: Tensor = output.args[0][0].meta["val"]
    named: dict[str, dict[str, Any]] = {
        name: {"dtype": _word(tensor), "shape": list(shape)}
        for (name, shape), tensor in zip(interface.inputs.items(), inputs, strict=True)
    }
    if interface.columns is not None:
        next(iter(named.values()))["columns"] = list(interface.columns)
    free = next(iter(interface.inputs.values()))
    shape = [size if isinstance(size, int) else free[axis] for axis, size in enumerate(value.shape)]
    return {
        "format": 1,
        "kind": run.problem.kind,
        "inputs": named,
        "outputs": {interface.output: {"dtype": _word(value), "shape": shape}},
        "schema": interface.metadata(),
        "calibration": run.calibration,
        "versions": run.record["versions"],
    }


def _word(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _to_archive(program: ExportedProgram, metadata: str) -> bytes:
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files={f"{METADATA}.json": metadata})
    return buffer.getvalue()


def _open_archive(content: bytes) -> Callable[..., Tensor]:
    with _without_warnings_of_torch():
        module: Callable[..., Tensor] = torch.export.load(io.BytesIO(content)).module()
    return module


def _to_onnx(interface: Interface, program: ExportedProgram, metadata: str) -> bytes:
    size = sum(value.numel() * value.element_size() for value in interface.module.state_dict().values())
    if size > ONNX_BYTES:
        raise ValueError(
            f"path: expected a name that ends with .pt2 for a model of {size / 2**30:.1f} GB, as an ONNX file holds at "
            "most 2 GB, got .onnx"
        )
    with _without_warnings_of_torch():
        exported = torch.onnx.export(
            program.run_decompositions({torch.ops.aten.log1p.default: _log1p}),
            input_names=list(interface.inputs),
            output_names=[interface.output],
            dynamo=True,
            verbose=False,
        )
    assert exported is not None
    proto = exported.model_proto
    sizes = {
        dimension.dim_param: str(name)
        for each in proto.graph.input
        for dimension, name in zip(each.type.tensor_type.shape.dim, interface.inputs[each.name], strict=True)
        if dimension.dim_param
    }
    for each in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        for dimension in each.type.tensor_type.shape.dim:
            if dimension.dim_param in sizes:
                dimension.dim_param = sizes[dimension.dim_param]
    entry = proto.metadata_props.add()
    entry.key, entry.value = METADATA, metadata
    content: bytes = proto.SerializeToString()
    return content


def _log1p(value: Tensor) -> Tensor:
    """Return log(1 + x): ONNX has no such operator, and float32 would lose the digits of a small x in 1 + x."""
    return (1 + value.double()).log().to(value.dtype)


@contextmanager
def _without_warnings_of_torch() -> Iterator[None]:
    """Suppress two warnings of torch 2.10 about its own code: a deprecated call, and a read-only buffer."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning)
        warnings.filterwarnings("ignore", "The given buffer is not writable", UserWarning)
        yield


def _open_onnx(content: bytes) -> Callable[..., Tensor]:
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]

    def score(*inputs: Tensor) -> Tensor:
        (output,) = session.run(None, {name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True)})
        return torch.from_numpy(np.asarray(output))

    return score


def _difference(path: Path, given: Tensor, expected: Tensor) -> float:
    """Return the largest difference to the run's own output; raise an error if it is not small."""
    if given.shape != expected.shape:
        raise ValueError(
            f"{path}: not written, as the exported model gives shape {tuple(given.shape)}, the run {expected.shape}"
        )
    scale = expected.abs().amax().clamp_min(1) if expected.numel() else torch.tensor(1.0)
    difference = (given.detach() - expected).abs().amax() if expected.numel() else torch.tensor(0.0)
    if not bool(difference <= TOLERANCE * scale):
        raise ValueError(
            f"{path}: not written, as the exported model and the run differ by {float(difference):.2g}, more than "
            f"{TOLERANCE:g} of their largest value {float(scale):.3g}"
        )
    return float(difference)
