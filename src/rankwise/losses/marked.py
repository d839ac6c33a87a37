"""States that say what they are of."""

from __future__ import annotations

import json
import warnings
from functools import reduce
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rankwise.gains import describe_gain

__all__ = ["CountsSteps", "MarkedModule"]

_KEY = "_extra_state"


class MarkedModule(nn.Module):
    """A loss whose state dict carries its name and the options that give the state its meaning.

    The mark is a tensor of bytes (JSON) under the key "_extra_state", so that any format of tensors holds it. Loading
    the state of another loss, or one of other such options, is refused by a RuntimeError that names both. A state
    without a mark, of an earlier version, loads with a warning.

    Attributes:
        remembers: the options that the meaning of the state depends on, by the names of attributes; None: there is no
            state, and no mark.
    """

    remembers: ClassVar[tuple[str, ...] | None] = None

    def extra_repr(self) -> str:
        """Return the options, as far as they are plain attributes and no submodules or buffers."""
        options = {name: value for name, value in vars(self).items() if name[0] != "_" and name != "training"}
        return ", ".join(f"{name}={getattr(value, '__name__', repr(value))}" for name, value in options.items())

    def _mark(self) -> tuple[str, dict[str, Any]]:
        options = {path: reduce(getattr, path.split("."), self) for path in self.remembers or ()}
        return type(self).__name__, {
            path: describe_gain(value) if path == "gain" else value for path, value in options.items()
        }

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.remembers is not None:
            text = json.dumps(self._mark()).encode()
            destination[prefix + _KEY] = torch.tensor(list(text), dtype=torch.uint8)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        if self.remembers is not None:
            self._check_mark(state_dict.pop(prefix + _KEY, None), any(key.startswith(prefix) for key in state_dict))
        super()._load_from_state_dict(state_dict, prefix, *others)

    def _check_mark(self, mark: Tensor | None, something: bool) -> None:
        expected = _in_words(*self._mark())
        if mark is None:
            if something:
                warnings.warn(
                    f"the loaded state does not say what it is of (it was saved by an earlier version): it is taken "
                    f"for that of {expected}",
                    stacklevel=2,
                )
            return
        try:
            name, options = json.loads(bytes(mark.tolist()))
            found = f"that of {_in_words(name, options)}"
        except (TypeError, ValueError, AttributeError):
            found = "something that says nothing"
        if found != f"that of {expected}":
            raise RuntimeError(f"state: expected that of {expected}, got {found}")


class CountsSteps(nn.Module):
    """Count training steps in the buffer `step`; the host keeps the number too, so as not to wait for a device."""

    step: Tensor
    _steps: int | None = None

    @property
    def steps(self) -> int:
        """The number of training steps so far."""
        if self._steps is None:
            self._steps = int(self.step)
        return self._steps

    def advance(self) -> None:
        """Count a step."""
        self._steps = self.steps + 1
        self.step = self.step + 1

    def _load_from_state_dict(self, *arguments: Any) -> None:
        self._steps = None
        super()._load_from_state_dict(*arguments)


def _in_words(name: str, options: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{path}={json.dumps(value)}' for path, value in options.items())})"
