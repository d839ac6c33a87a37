"""What is to be run, and what a run is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

__all__ = ["Options", "Outcome", "Plan", "Row", "Trial"]

Options = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Row:
    """A line of the table.

    Attributes:
        name: of the method; variant: what is added to it.
        loss: its registered name.
        tries: settings to choose from, by name: options of the loss, the same for all variants.
        ours: whether it is one of the library's own losses.
    """

    name: str
    variant: str
    loss: str
    tries: Mapping[str, Options]
    ours: bool = False

    @property
    def title(self) -> str:
        return f"{self.name}, {self.variant}"


@dataclass(frozen=True)
class Trial:
    """Which run. `part` is "validation" for a run made to choose a setting, "test" for one that stands in the table."""

    name: str
    variant: str
    setting: str
    seed: int
    steps: int
    part: str


@dataclass(frozen=True)
class Outcome:
    """What a run gave.

    Attributes:
        figures: values by name; "validation" is always among them.
        lists: values of single lists of the test part, in the same order in every run; None for a choice.
        curve: (step, value on validation) along the training.
    """

    figures: Mapping[str, float]
    lists: Tensor | None = None
    curve: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Plan:
    """A comparison.

    Attributes:
        about: the first paragraph of the page.
        rows: in the order in which they are run, for every seed.
        run: makes one run of a row with options.
        metrics: on the test part, by name; the first is compared.
        steps: of the runs in the table; choice_steps: of those to choose a setting.
        seeds: of the runs in the table; choices are made with the first.
        variant: the one whose runs choose the setting for all variants of a method.
        unit: what one value of `Outcome.lists` belongs to.
    """

    about: str
    rows: tuple[Row, ...]
    run: Callable[[Row, Options, Trial], Outcome]
    metrics: tuple[str, ...]
    steps: int
    choice_steps: int
    seeds: tuple[int, ...]
    variant: str
    unit: str
    notes: tuple[str, ...] = field(default=())
