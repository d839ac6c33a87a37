"""One number for each column of a table, from the inputs that the columns became."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["MISSING", "NUMBER", "Columns"]

# Codes of inputs that are no value of a category: a number, and the mark of a missing cell.
NUMBER, MISSING = -1, 0


class Columns(nn.Module):
    """Join the inputs of each column of a table to one number, as trees like them; NaN where a cell is missing.

    A split on a column with missing cells or with many categories then takes one decision instead of several.

    Args:
        codes: for each of D inputs its column and its code: `NUMBER`; `MISSING` if it is 1 where the cell is missing;
            otherwise the code, from 1, of the category that it is 1 for.

    Example:
        A number, the mark of its missing cells, and a category with two values.

        >>> columns = Columns([(0, NUMBER), (0, MISSING), (1, 1), (1, 2)])
        >>> columns(torch.tensor([[5.0, 0, 0, 1], [6.0, 1, 1, 0], [7.0, 0, 0, 0]]))
        tensor([[5., 2.],
                [nan, 1.],
                [7., nan]])
    """

    numbers: Tensor
    marks: Tensor
    values: Tensor
    weights: Tensor

    def __init__(self, codes: Sequence[tuple[int, int]]) -> None:
        super().__init__()
        numbers = [entry for entry, (_, code) in enumerate(codes) if code == NUMBER]
        marks = {column: entry for entry, (column, code) in enumerate(codes) if code == MISSING}
        values = [entry for entry, (_, code) in enumerate(codes) if code > MISSING]
        categories = list(dict.fromkeys(codes[entry][0] for entry in values))
        weights = torch.zeros(len(values), len(categories))
        for row, entry in enumerate(values):
            column, code = codes[entry]
            weights[row, categories.index(column)] = code
        # Numbers without a mark take the 0 behind the last input.
        marked = [marks.get(codes[entry][0], len(codes)) for entry in numbers]
        for name, indices in (("numbers", numbers), ("marks", marked), ("values", values)):
            self.register_buffer(name, torch.tensor(indices, dtype=torch.int64), persistent=False)
        self.register_buffer("weights", weights, persistent=False)
        self.width = len(numbers) + len(categories)

    def forward(self, inputs: Tensor, scaled: Tensor | None = None) -> Tensor:
        """Map inputs (N, D) to columns (N, C): numbers, then the codes of categories.

        Args:
            inputs: (N, D) without NaN.
            scaled: (N, D) what numbers are to be instead.
        """
        numbers = (inputs if scaled is None else scaled).index_select(1, self.numbers)
        absent = functional.pad(inputs, (0, 1)).index_select(1, self.marks) > 0
        codes = inputs.index_select(1, self.values) @ self.weights.to(inputs)
        return torch.cat([numbers.masked_fill(absent, torch.nan), codes.masked_fill(codes < 1, torch.nan)], 1)
