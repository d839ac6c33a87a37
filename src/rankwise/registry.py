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
    """A loss by name, defined in the file of the loss: its options, what it is called with, and how it is made.

    Attributes:
        name, aliases: the words that name it in recipes and in `create_loss`.
        summary: what it trains for.
        build: its class, or a function that makes it; `create` checks the options first.
        role: "paper" for the methods that this library is about, "baseline" for those they are compared with.
        inputs: what it is called with: "scores" and `labels` ("binary" or "grades"), or "embeddings" and classes.
        shift_invariant: whether adding a number to all scores of a list changes nothing.
        paper: where it was published.
        state: what it keeps between batches.
        advice: when to take it.

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
        """The names of its options."""
        return tuple(inspect.signature(self.build).parameters)

    def takes(self, option: str) -> bool:
        """Return whether the loss has this option."""
        return option in self.parameters

    def create(self, **options: Any) -> Any:
        """Make the loss; an unknown option is answered with the nearest known one."""
        for option in options:
            if not self.takes(option):
                names = f"{self.name} ({', '.join(self.aliases)})" if self.aliases else self.name
                raise ValueError(f"{names} has no option {option!r}{nearest(option, self.parameters)}")
        return self.build(**options)


@dataclass(frozen=True)
class MetricRecord:
    """A metric: `per_list(ranked, k=..., ...)` gives one value per list, NaN where it is undefined.

    `definition` says what is computed, with `{k}` and options to be filled in; `ties` is the default policy and
    `average_words` what "average" means here; `undefined` says which lists have no value.
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
    """A batch sampler: `build(**options)` makes it."""

    name: str
    summary: str
    build: Callable[..., Any]
    aliases: tuple[str, ...] = ()


Record = TypeVar("Record", LossRecord, MetricRecord, SamplerRecord)


@dataclass
class Registry(Generic[Record]):
    """Records of one kind by name and alias; an unknown name is answered with the nearest known one."""

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
    """The end of an error message: what `name` may have been meant to be, and all that is known."""
    known = sorted(known)
    folded = {_fold(each): each for each in known}
    close = difflib.get_close_matches(_fold(name), folded, n=1, cutoff=0.5)
    hint = f"; did you mean {folded[close[0]]!r}?" if close else ""
    return f"{hint} (known: {', '.join(known)})"


def _fold(name: str) -> str:
    """Return a name as it is compared: in small letters, words joined by hyphens, without the "Loss" of a class."""
    folded = name.casefold().replace("_", "-")
    return folded.removesuffix("loss").rstrip("-") or folded
