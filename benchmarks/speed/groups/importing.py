"""What `import rankwise` costs on top of `import torch`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from benchmarks.speed.contest import Contender, Group, Mark, Row

__all__ = ["IMPORTING"]


def _importing(module: str) -> Callable[[object], Callable[[], object]]:
    def prepare(_: object) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, "-c", f"import {module}"], check=True)

    return prepare


IMPORTING = Group(
    key="import",
    title="Import",
    problem="what",
    about="Whole life of a Python process that does nothing but import, warm disk cache.",
    rows=(
        Row(
            name="import rankwise",
            make=lambda: None,
            small=lambda: None,
            contenders=(
                Contender("import rankwise", _importing("rankwise"), role="ours"),
                Contender("import torch", _importing("torch"), role="limit"),
            ),
            mark=Mark(over_limit_ms=300),
            seconds=20.0,
            memory=False,
        ),
    ),
)
