"""Profile of a few training steps: a trace of torch.profiler, and a table of what takes the time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.hooks import RemovableHandle

__all__ = ["Profile", "part"]

# The loop marks these parts of a step; the loss is within the forward pass.
PARTS = ("loader", "forward", "loss", "backward", "optimiser")
_MARK = "rankwise: "
# Calls by which the host waits for a GPU.
_STOPS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")


def part(name: str) -> record_function:
    """Return a context that marks a part of a step in the trace; it costs about a microsecond without a profiler."""
    return record_function(_MARK + name)


class Profile:
    """Record some steps of a training, and write `profile.json` and `profile.md` to a folder.

    `profile.json` opens in Perfetto or chrome://tracing. The table has the time of each part of a step on the host and
    on the GPU, and how often the host waited for the GPU.

    Args:
        folder: where to write.
        skip: steps before the first that is recorded, which are slower than the others.
        steps: number of steps to record.
    """

    def __init__(self, folder: str | Path, *, skip: int = 5, steps: int = 10) -> None:
        self.folder, self.skip, self.steps = Path(folder), skip, steps
        self.rows: list[tuple[str, float, float]] = []
        self.stops = 0.0
        self._seen = 0
        self._hooks: list[RemovableHandle] = []
        self._stack: ExitStack | None = None
        self._profiler: Any = None

    def watch(self, loss: nn.Module) -> None:
        """Record the forward pass of the loss as a part of the step."""
        marks: list[record_function] = []

        def begin(*_: Any) -> None:
            marks.append(part("loss"))
            marks[-1].__enter__()

        def end(*_: Any) -> None:
            marks.pop().__exit__(None, None, None)

        self._hooks = [loss.register_forward_pre_hook(begin), loss.register_forward_hook(end)]

    @contextmanager
    def step(self) -> Iterator[None]:
        """Run a step, and record it if it is one of those to record."""
        if self._seen == self.skip:
            self._stack = ExitStack()
            activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
            self._profiler = self._stack.enter_context(profile(activities=activities))
        with part("step"):
            yield
        self._seen += 1
        if self._seen == self.skip + self.steps:
            self.close()

    def close(self) -> None:
        """Write the files of the recording, which ends."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        if self._stack is None:
            return
        self._stack.close()
        self._stack = None
        count = self._seen - self.skip
        events = {event.key: event for event in self._profiler.key_averages()}
        for name in ("step", *PARTS):
            event = events.get(_MARK + name)
            if event is not None:
                self.rows.append((name, event.cpu_time_total / 1000 / count, event.device_time_total / 1000 / count))
        self.stops = sum(events[name].count for name in _STOPS if name in events) / count
        self._profiler.export_chrome_trace(str(self.folder / "profile.json"))
        (self.folder / "profile.md").write_text(self.table(), encoding="utf-8")

    def table(self) -> str:
        """Return the times as a table in Markdown."""
        whole = self.rows[0][1] if self.rows else 1.0
        lines = [
            f"Milliseconds of a step, means over {self._seen - self.skip}. "
            f"The host waited for the GPU {self.stops:g} times.",
            "",
            "| part | host | share | GPU |",
            "| --- | --: | --: | --: |",
            *(f"| {name} | {host:.2f} | {host / whole:.0%} | {gpu:.2f} |" for name, host, gpu in self.rows),
        ]
        return "\n".join(lines) + "\n"
