"""Leave out the doctests of modules that this machine cannot import."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [] if find_spec("triton") else ["src/rankwise/pairs/by_kernel.py"]
