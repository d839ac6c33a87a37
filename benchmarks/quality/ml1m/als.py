"""Matrix factorisation by alternating least squares, as the package implicit does it."""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import nn

from rankwise.data import SparseRows

__all__ = ["fit_als"]

# How much more a chosen film weighs than one that was not chosen.
_CONFIDENCE = 4.0


@torch.no_grad()
def fit_als(model: nn.Module, known: SparseRows, *, penalty: float, seed: int) -> None:
    """Give a matrix factorisation the vectors that ALS finds; its biases become 0."""
    from implicit.als import AlternatingLeastSquares

    users, items = (model.get_submodule(f"model.{side}") for side in ("users", "items"))
    assert isinstance(users, nn.Embedding)
    assert isinstance(items, nn.Embedding)
    chosen = csr_matrix(
        (np.ones(len(known.columns), np.float32), known.columns.numpy(), known.starts.numpy()),
        shape=(len(known), known.width),
    )
    found = AlternatingLeastSquares(
        factors=users.embedding_dim,
        regularization=penalty,
        alpha=_CONFIDENCE,
        iterations=15,
        random_state=seed,
        num_threads=1,
    )
    found.fit(chosen, show_progress=False)
    users.weight.copy_(torch.from_numpy(found.user_factors))
    items.weight.copy_(torch.from_numpy(found.item_factors))
    model.get_parameter("model.bias").zero_()
