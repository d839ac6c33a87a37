"""Encode the columns of a table inside an exported model, as the schema does outside."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from rankwise.data.features import FeatureEncoding

__all__ = ["TableEncoder"]


class TableEncoder(nn.Module):
    """Turn K numbers per row, one for each column, into the D inputs of a model.

    A category is given as the index of its value among the known ones, -1 for any other. A date is three columns: days
    since 1970, month and weekday. NaN is a missing number.

    Args:
        encoding: of the table.

    Attributes:
        columns: names of the K columns.
        source: (D,) the column of each input.
        origin: (D,) subtracted first; float64 if there is any, as float32 cannot hold such columns.
        code: (D,) of an input of a category, the index of its value; NaN elsewhere.
        missing: (D,) whether an input is 1 for missing cells.

    Example:
        >>> encoder = TableEncoder(FeatureEncoding(("size", "site"), {"site": ("left", "right")}, indicators=("size",)))
        >>> encoder.columns, encoder(torch.tensor([[2.5, 1.0], [torch.nan, -1.0]])).tolist()
        (['size', 'site'], [[2.5, 0.0, 0.0, 1.0], [nan, 1.0, 0.0, 0.0]])
    """

    source: Tensor
    origin: Tensor
    code: Tensor
    missing: Tensor

    def __init__(self, encoding: FeatureEncoding) -> None:
        super().__init__()
        names, origins, codes, missing = zip(*_inputs(encoding), strict=True)
        self.columns = list(dict.fromkeys(names))
        index = {name: number for number, name in enumerate(self.columns)}
        dtype = torch.float64 if encoding.origins else torch.float32
        self.register_buffer("source", torch.tensor([index[name] for name in names]))
        self.register_buffer("origin", torch.tensor(origins, dtype=dtype))
        self.register_buffer("code", torch.tensor(codes, dtype=dtype))
        self.register_buffer("missing", torch.tensor(missing))

    @property
    def changes_nothing(self) -> bool:
        """Return whether the inputs are the columns as they are."""
        return bool(self.code.isnan().all() and not self.missing.any() and not self.origin.any())

    def forward(self, columns: Tensor) -> Tensor:
        """Encode columns (..., K) as inputs (..., D)."""
        cells = columns.index_select(-1, self.source)
        values = torch.where(self.code.isnan(), cells - self.origin, (cells == self.code).to(cells.dtype))
        return torch.where(self.missing, cells.isnan().to(cells.dtype), values).float()

    def decode(self, inputs: Tensor) -> Tensor:
        """Return the columns (N, K) that inputs (N, D) come from."""
        columns = torch.full((len(inputs), len(self.columns)), -1, dtype=self.origin.dtype)
        for index, source in enumerate(self.source.tolist()):
            if not self.code[index].isnan():
                columns[inputs[:, index] == 1, source] = self.code[index]
            elif not self.missing[index]:
                columns[:, source] = inputs[:, index].to(columns.dtype) + self.origin[index]
        return columns

    def make_consistent(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        """Return random inputs (N, D) as a table has them: one value or none of each category, missing cells marked."""
        inputs = inputs.clone()
        for column in range(len(self.columns)):
            own = self.source == column
            values = (own & ~self.code.isnan()).nonzero().squeeze(1)
            drawn = torch.randint(-1, max(1, len(values)), (len(inputs), 1), generator=generator)
            inputs[:, values] = (drawn == torch.arange(len(values))).float()
            if bool((own & self.missing).any()):
                (number,) = (own & ~self.missing).nonzero().squeeze(1).tolist()
                inputs[:, own & self.missing] = inputs[:, number, None].isnan().float()
        return inputs


def _inputs(encoding: FeatureEncoding) -> Iterator[tuple[str, float, float, bool]]:
    """Yield the column, origin, code and whether it marks missing cells, of each input."""
    for name in encoding.names:
        if name in encoding.categories:
            yield from ((name, 0.0, float(code), False) for code in range(len(encoding.categories[name])))
            continue
        marked = name in encoding.indicators
        own = encoding.inputs_of(name)
        for value in own[: len(own) - marked]:
            yield value, encoding.origins.get(name, 0.0) if value == name else 0.0, torch.nan, False
        if marked:
            yield name, 0.0, torch.nan, True
