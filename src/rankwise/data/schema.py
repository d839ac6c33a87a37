"""The protocol of schemas: what was learned about the form of the training data, saved with a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from torch import Tensor
from typing_extensions import Self

__all__ = ["DataNote", "Labels", "Schema", "with_tuples"]

Labels = Literal["required", "optional"]


class DataNote(UserWarning):
    """A stated treatment of data that differ from the training data, such as columns that were ignored."""


class Schema(Protocol):
    """Form of the data as learned from the training part: names of columns, classes, vocabularies.

    A schema is learned from the training source once, is the same for all seeds, and reads every other source. It is
    saved as JSON with tensors beside it.
    """

    def read(self, source: Any, *, labels: Labels = "required") -> Any:
        """Read a source of the same form into a part; with `labels="optional"` it may come without labels."""

    def to_json(self) -> dict[str, Any]:
        """Return the schema as plain values."""

    def tensors(self) -> dict[str, Tensor]:
        """Return what is too large for JSON."""

    @classmethod
    def from_saved(cls, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """Return the schema that `to_json` and `tensors` describe."""


def with_tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values that were saved as JSON, with tuples for lists."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
