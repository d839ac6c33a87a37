"""The outputs of a batch under the weights before the last step, for losses that ask how far a step moved them."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.optim import Optimizer

__all__ = ["PreviousWeights"]


class PreviousWeights:
    """Keeps the weights of a model as they were before the last step, and gives the outputs of a batch under them.

    Two lines in any loop:

        previous = PreviousWeights(model, optimiser)            # once
        before = previous(features)                             # in every step, just before model(features)
        value = loss(model(features), labels, previous_scores=before)

    A call costs one forward without a graph, and memory one copy of the weights being trained. The model is left as it
    was: running statistics (batch norm) are not touched. Neither is torch's random state, so that a model which draws
    at random (dropout, `FeatureMixup`) draws the same when it is called right after.

    The copy is made by the optimiser itself, just before each of its steps; accumulating gradients over several batches
    and skipped steps are therefore no matter. Before the first step the previous weights are the present ones.

    Args:
        model: the model itself, not its wrapper for several processes or devices.
        optimiser: the one that trains it.

    Example:
        >>> model = nn.Linear(2, 1, bias=False)
        >>> optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
        >>> previous = PreviousWeights(model, optimiser)
        >>> features = torch.ones(3, 2)
        >>> before = model(features)
        >>> before.sum().backward()
        >>> optimiser.step()
        >>> bool(torch.equal(previous(features), before)), bool(torch.equal(model(features), before))
        (True, False)
    """

    def __init__(self, model: nn.Module, optimiser: Optimizer) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model: expected a module, got {type(model).__name__}")
        if not isinstance(optimiser, Optimizer):
            raise TypeError(f"optimiser: expected a torch optimiser, got {type(optimiser).__name__}")
        self.model = model
        self._weights: dict[str, Tensor] = {}
        # Weakly, so that an optimiser that lives longer does not keep the model and the copy alive.
        keeper = weakref.ref(self)

        def note(*_: Any) -> None:
            previous = keeper()
            if previous is not None:
                previous._note()

        optimiser.register_step_pre_hook(note)

    @torch.no_grad()
    def __call__(self, *inputs: Any) -> Any:
        """What `model(*inputs)` gave before the last step; no gradient."""
        state = {**{name: buffer.clone() for name, buffer in self.model.named_buffers()}, **self._weights}
        devices = {p.device for p in self.model.parameters() if p.device.type == "cuda"}
        with torch.random.fork_rng(devices=devices):
            return functional_call(self.model, state, inputs)

    @torch.no_grad()
    def _note(self) -> None:
        trained = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        kept = {name: self._weights.get(name) for name in trained}
        self._weights = {
            name: p.detach().clone() if (copy := kept[name]) is None or copy.device != p.device else copy.copy_(p)
            for name, p in trained.items()
        }

    def state_dict(self) -> dict[str, Tensor]:
        """The weights before the last step by name; empty before the first."""
        return dict(self._weights)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take up where a saved training left off."""
        parameters = dict(self.model.named_parameters())
        unknown = sorted(set(state) - set(parameters))
        if unknown:
            raise ValueError(f"state: expected weights of this model, got {unknown[0]!r}, which it does not have")
        for name, weight in state.items():
            if weight.shape != parameters[name].shape:
                raise ValueError(
                    f"state: expected {name!r} of shape {tuple(parameters[name].shape)}, got {tuple(weight.shape)}"
                )
        self._weights = {name: weight.detach().clone().to(parameters[name]) for name, weight in state.items()}
