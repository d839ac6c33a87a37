"""Weights along a training: their average, and those before the last step."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.optim import Optimizer

from rankwise.checks import check_count, check_share

__all__ = ["AverageWeights", "PreviousWeights"]


class AverageWeights:
    """Averages the weights of a model, and its running statistics, over the steps of its training.

        average <- average + (weights - average) / min(n, 1 / (1 - decay)),   n the steps averaged so far,

    so without a decay it is the plain mean of all of them, and with one the moving average of about the last
    1 / (1 - decay) steps, without a bias towards the first. Whole numbers (batches counted) are taken as they are.

    Args:
        model: the model itself, not its wrapper for several processes or devices.
        decay: of the moving average, in (0, 1), such as .99; None takes the plain mean.
        after: steps that are not averaged.

    Example:
        >>> model = nn.Linear(1, 1, bias=False)
        >>> average = AverageWeights(model, after=1)
        >>> for value in (9.0, 1.0, 2.0):
        ...     _ = nn.init.constant_(model.weight, value)
        ...     average.update()
        >>> with average.applied():
        ...     model.weight.item()
        1.5
        >>> model.weight.item()
        2.0
    """

    def __init__(self, model: nn.Module, *, decay: float | None = None, after: int = 0) -> None:
        self.model = model
        self.decay = None if decay is None else check_share("decay", decay)
        self.after = check_count("after", after, least=0)
        self.step = 0
        self._mean: dict[str, Tensor] = {}

    @torch.no_grad()
    def update(self) -> None:
        """Add the weights after a step to the average."""
        self.step += 1
        count = self.step - self.after
        if count < 1:
            return
        share = 1 / count if self.decay is None else max(1 / count, 1 - self.decay)
        for name, value in self.model.state_dict().items():
            if name in self._mean and value.is_floating_point():
                self._mean[name].lerp_(value, share)
            else:
                self._mean[name] = value.detach().clone()

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Inside, the model has the averaged weights, if there are any yet; afterwards its own again."""
        own = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        self.apply()
        try:
            yield
        finally:
            self.model.load_state_dict(own)

    def apply(self) -> None:
        """Give the model the averaged weights for good, if there are any yet."""
        if self._mean:
            self.model.load_state_dict(self._mean)

    def state_dict(self) -> dict[str, Any]:
        """The average and how many steps were taken."""
        return {"step": self.step, "mean": dict(self._mean)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up where a saved training left off."""
        self.step = int(state["step"])
        self._mean = {name: value.detach().clone() for name, value in state["mean"].items()}


class _MethodCaller(nn.Module):
    """Call a method of a model as `forward`, which is all that `functional_call` calls."""

    def __init__(self, model: nn.Module, method: str) -> None:
        super().__init__()
        self.model, self.method = model, method

    def forward(self, *inputs: Any) -> Any:
        return getattr(self.model, self.method)(*inputs) if self.method != "forward" else self.model(*inputs)


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
    def __call__(self, *inputs: Any, method: str = "forward") -> Any:
        """Return `model(*inputs)` under the weights before the last step, without a gradient.

        Args:
            inputs: of the model.
            method: the method of the model to call, `forward` by default.
        """
        state = {**{name: buffer.clone() for name, buffer in self.model.named_buffers()}, **self._weights}
        devices = {p.device for p in self.model.parameters() if p.device.type == "cuda"}
        with torch.random.fork_rng(devices=devices):
            caller = _MethodCaller(self.model, method)
            return functional_call(caller, {f"model.{name}": tensor for name, tensor in state.items()}, inputs)

    @torch.no_grad()
    def _note(self) -> None:
        trained = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        kept = {name: self._weights.get(name) for name in trained}
        self._weights = {
            name: p.detach().clone() if (copy := kept[name]) is None or copy.device != p.device else copy.copy_(p)
            for name, p in trained.items()
        }

    def state_dict(self) -> dict[str, Tensor]:
        """Return the weights before the last step, by name; none before the first step."""
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
