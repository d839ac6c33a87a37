"""What is to be run, and what a run is called."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

__all__ = ["Figures", "Key", "Method", "Plan"]

Figures = dict[str, float]


@dataclass(frozen=True)
class Method:
    """A contender.

    Attributes:
        name: as it stands in tables.
        loss, options: what it minimises.
        ours: whether it is one of the library's own losses.
        slow: whether it looks at every pair of items and takes many times as long as the others.
    """

    name: str
    loss: str
    options: Mapping[str, Any] = field(default_factory=dict)
    ours: bool = False
    slow: bool = False


@dataclass(frozen=True)
class Key:
    """Which run: a method with a scorer, a learning rate, a weight decay and a seed.

    A closed form has the rate 0, its penalty as decay, and the first seed. `fitted` is "train" for a run that is judged
    on the validation part, to choose a setting, and "all" for one that learns from both parts and is judged on the
    test part.
    """

    scorer: str
    method: str
    rate: float
    decay: float
    seed: int
    fitted: str


@dataclass(frozen=True)
class Plan:
    """A comparison.

    Attributes:
        about: the first paragraph of the page.
        scorers, methods: every method is run with every scorer.
        settings: pairs of learning rate and weight decay, all tried with the first seed.
        seeds: with the chosen setting all of them learn from training and validation data together.
        metrics: on the test part; the first decides on validation.
        run: the figures of a run ("train", "seconds", and "validation" or the metrics), and for a run that is fitted to
            all the first metric of each list of the test part.
        closed_form: further runs, which have one result whatever the seed.
    """

    about: str
    scorers: tuple[str, ...]
    methods: tuple[Method, ...]
    settings: tuple[tuple[float, float], ...]
    seeds: tuple[int, ...]
    metrics: tuple[str, ...]
    run: Callable[[Key, Method | None], tuple[Figures, Tensor | None]]
    closed_form: tuple[Key, ...] = ()

    def first_runs(self, *, slow: bool, settings: int | None = None) -> Iterator[tuple[Key, Method | None]]:
        """All settings, or the first so many, with the first seed."""
        for scorer in self.scorers:
            for rate, decay in self.settings[:settings]:
                for method in self.methods:
                    if slow or not method.slow:
                        yield Key(scorer, method.name, rate, decay, self.seeds[0], "train"), method
            if scorer == self.scorers[0]:
                yield from ((key, None) for key in self.closed_form)

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Scorer and method of every row of the table."""
        rows = [(scorer, method.name) for scorer in self.scorers for method in self.methods]
        return rows + list(dict.fromkeys((key.scorer, key.method) for key in self.closed_form))
