"""Keep old names working for a while: forward them to the new names and warn."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import ParamSpec, TypeVar

__all__ = ["renamed_argument", "renamed_attributes"]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def renamed_attributes(module: str, new_names: Mapping[str, str], *, removed_in: str) -> Callable[[str], object]:
    """Return a module's `__getattr__` that forwards old names to their new ones, with a `FutureWarning`.

    It serves functions, classes and constants alike: the old name gives the very object that the new name gives.

    Args:
        module: `__name__` of the module that had the old names.
        new_names: the full path of the new name ("package.module.name") for each old name in the module.
        removed_in: the version in which the old names are removed.

    Example:
        >>> __getattr__ = renamed_attributes("rankwise.lists", {"squeeze": "rankwise.lists.compact"}, removed_in="0.3")
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     __getattr__("squeeze") is import_module("rankwise.lists").compact
        True
        >>> print(caught[0].message)
        rankwise.lists.squeeze is deprecated and will be removed in rankwise 0.3; use rankwise.lists.compact
    """

    def find(name: str) -> object:
        if name not in new_names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        owner, _, attribute = new_names[name].rpartition(".")
        _warn(f"{module}.{name}", new_names[name], removed_in)
        return getattr(import_module(owner), attribute)

    return find


def renamed_argument(
    old: str, new: str, *, removed_in: str
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Return a decorator for a function, method or `__init__` that passes the keyword argument `old` on as `new`.

    A call that uses the old name gets a `FutureWarning`; one that uses both gets a `TypeError`.

    Args:
        old: the name that callers may still use.
        new: the name that the function has now.
        removed_in: the version in which the old name is removed.

    Example:
        >>> @renamed_argument("temperature", "tau", removed_in="0.3")
        ... def sharpen(score, *, tau=1.0):
        ...     return score / tau
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     sharpen(1.0, temperature=0.5)
        2.0
        >>> print(caught[0].message)
        sharpen(temperature=...) is deprecated and will be removed in rankwise 0.3; use tau
    """

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        called = function.__qualname__.removesuffix(".__init__")

        @functools.wraps(function)
        def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            if old in kwargs:
                if new in kwargs:
                    raise TypeError(f"{called}: got {new} and {old}, which is its old name; give only {new}")
                _warn(f"{called}({old}=...)", new, removed_in)
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call

    return decorate


def _warn(old: str, new: str, removed_in: str) -> None:
    """Warn the caller of the function that calls this one."""
    # A FutureWarning is shown by default, a DeprecationWarning only to code that is run as a script.
    message = f"{old} is deprecated and will be removed in rankwise {removed_in}; use {new}"
    warnings.warn(message, FutureWarning, stacklevel=3)
