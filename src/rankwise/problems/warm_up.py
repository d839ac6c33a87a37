"""Start a training with another loss."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import field_validator
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from rankwise.losses import ListLoss, SwitchLoss
from rankwise.models import reset_last_layer
from rankwise.problems.problem import LossChoice
from rankwise.training import Budget, OptimiserOptions, ScheduleOptions
from rankwise.training.options import Count, Options, Positive

__all__ = ["WarmUp"]


class WarmUp(Options):
    """Start with another `loss` for so many `steps`, at a `learning_rate` of its own if given; `reset_last_layer` draws
    the last layer anew after them."""

    loss: str = "listwise-cross-entropy"
    steps: Count
    learning_rate: Positive | None = None
    reset_last_layer: bool = False

    @field_validator("loss")
    @classmethod
    def _known(cls, name: str) -> str:
        return LossChoice.of(name).name

    def check_budget(self, budget: Budget) -> None:
        """Refuse a warm-up that leaves no step to the loss itself."""
        if budget.steps is not None and self.steps >= budget.steps:
            raise ValueError(f"expected a warm_up shorter than the {budget.steps} steps of the budget")

    def wrap_loss(self, loss: ListLoss, create: Callable[[LossChoice], ListLoss]) -> SwitchLoss:
        """Return the loss with the loss of the warm-up before it; `create` makes that one."""
        return SwitchLoss(create(LossChoice.of(self.loss)), loss, after=self.steps)

    def finish(self, model: nn.Module, loss: nn.Module) -> None:
        """Draw the last layer anew if this is the first step after the warm-up; called before the forward pass."""
        if self.reset_last_layer and loss.training and isinstance(loss, SwitchLoss) and loss.steps == loss.after:
            reset_last_layer(model)

    def build_schedule(
        self, schedule: ScheduleOptions, options: OptimiserOptions, optimiser: Optimizer, steps: int
    ) -> LRScheduler:
        """Return the schedule of a run, with the learning rate of the warm-up in its first steps."""
        if self.learning_rate is None:
            return schedule.build(optimiser, steps)
        return schedule.build(optimiser, steps, first=(self.steps, self.learning_rate / options.learning_rate))
