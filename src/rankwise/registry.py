"""Registry of every loss, metric and sampler by name."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar

__all__ = ["LossRecord", "MetricRecord", "Registry", "SamplerRecord", "nearest"]


@dataclass(frozen=True)
class LossRecord:
    """Record of a loss, defined in the file of the loss: its name, options, inputs and constructor.

    Attributes:
        name, aliases: its names in recipes and in `create_loss`.
        summary: the metric or aim that it trains for.
        build: its class, or a function that creates it; `create` checks the options first.
        role: "paper" for the methods that this library is about, "baseline" for those they are compared with.
        inputs: its arguments: "scores" and `labels` ("binary" or "grades"), or "embeddings" and classes.
        shift_invariant: whether adding a number to all scores of a list changes nothing.
        paper: the publication.
        state: the tensors it keeps between batches.
        advice: when to use it.

    Example:
        >>> record = LossRecord("distance", "", build=lambda margin=1.0: margin, role="baseline")
        >>> record.parameters, record.takes("k"), record.create(margin=2.0)
        (('margin',), False, 2.0)
        >>> record.create(margn=2.0)
        Traceback (most recent call last):
        ValueError: distance has no option 'margn'; did you mean 'margin'? (known: margin)
    """

    name: str
    summary: str
    build: Callable[..., Any]
    role: Literal["paper", "baseline"]
    labels: str = "binary"
    aliases: tuple[str, ...] = ()
    shift_invariant: bool = True
    paper: str = ""
    inputs: str = "scores"
    state: str = ""
    advice: str = ""

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Return the names of its options."""
        return tuple(inspect.signature(self.build).parameters)

    def takes(self, option: str) -> bool:
        """Return whether the loss has this option."""
        return option in self.parameters

    def create(self, **options: Any) -> Any:
        """Create the loss; the error for an unknown option names the nearest known one."""
        for option in options:
            if not self.takes(option):
                names = f"{self.name} ({', '.join(self.aliases)})" if self.aliases else self.name
                raise ValueError(f"{names} has no option {option!r}{nearest(option, self.parameters)}")
        return self.build(**options)


@dataclass(frozen=True)
class MetricRecord:
    """Record of a metric: `per_list(ranked, k=..., ...)` returns one value per list, NaN where it is undefined.

    `definition` is the formula, with `{k}` and options to be filled in; `ties` is the default policy and
    `average_words` the meaning of "average" here; `undefined` names the lists that have no value.
    """

    name: str
    summary: str
    per_list: Callable[..., Any]
    labels: str = "binary"
    takes_k: bool = False
    takes_item_weights: bool = True
    options: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    definition: str = ""
    ties: str = "average"
    average_words: str = "the mean over the orders of tied items"
    undefined: str = "lists without a relevant item"


@dataclass(frozen=True)
class SamplerRecord:
    """Record of a batch sampler: `build(**options)` creates it."""

    name: str
    summary: str
    build: Callable[..., Any]
    aliases: tuple[str, ...] = ()


Record = TypeVar("Record", LossRecord, MetricRecord, SamplerRecord)


@dataclass
class Registry(Generic[Record]):
    """Records of one kind by name and alias; the error for an unknown name names the nearest known one."""

    kind: str
    _records: dict[str, Record] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        names = (record.name, *record.aliases)
        for name in names:
            if name in self._names:
                raise ValueError(f"{self.kind} name {name!r} is taken by {self._names[name]!r}")
        self._names.update(dict.fromkeys(names, record.name))
        self._records[record.name] = record

    def get(self, name: str) -> Record:
        if not isinstance(name, str):
            raise TypeError(f"{self.kind}: expected a name (str), got {type(name).__name__}")
        if name not in self._names:
            raise ValueError(f"unknown {self.kind} {name!r}{nearest(name, self._names)}")
        return self._records[self._names[name]]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records.values())

    def __len__(self) -> int:
        return len(self._records)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message: the known name nearest to `name`, and all known names."""
    known = sorted(known)
    folded = {_fold(each): each for each in known}
    close = difflib.get_close_matches(_fold(name), folded, n=1, cutoff=0.5)
    hint = f"; did you mean {folded[close[0]]!r}?" if close else ""
    return f"{hint} (known: {', '.join(known)})"


def _fold(name: str) -> str:
    """Normalise a name for comparison: lower case, hyphens between words, without the suffix "Loss" of a class."""
    folded = name.casefold().replace("_", "-")
    return folded.removesuffix("loss").rstrip("-") or folded
