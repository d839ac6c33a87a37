"""Closed forms and layers by their definitions, slowly."""

from __future__ import annotations

import numpy as np
import torch


def ease(history, regularisation):
    """Column by column: ridge regression of each item on all others."""
    items = history.shape[1]
    weights = torch.zeros(items, items, dtype=torch.float64)
    for target in range(items):
        others = [i for i in range(items) if i != target]
        x, y = history[:, others].double(), history[:, target].double()
        gram = x.T @ x + regularisation * torch.eye(len(others), dtype=torch.float64)
        weights[others, target] = torch.linalg.solve(gram, x.T @ y)
    return weights


def pooled_convolution(vectors, weight, bias, parts):
    """(filters, parts): one document (T, D), every place and filter by itself, zeros after the end if it is short."""
    filters, _, width = weight.shape
    length = len(vectors)
    padded = torch.cat([vectors, vectors.new_zeros(width, vectors.shape[1])])
    places = max(length - width + 1, 1)
    best = vectors.new_zeros(filters, parts)
    for f in range(filters):
        for place in range(places):
            answer = bias[f] + sum(weight[f, :, o] @ padded[place + o] for o in range(width))
            part = place * parts // places
            best[f, part] = torch.maximum(best[f, part], answer)
    return best


def whitening(rows, labels, shrinkage):
    """The inverse square root of the shrunk within-class covariance, one class after the other."""
    rows, labels = np.asarray(rows, dtype=float), np.asarray(labels)
    width = rows.shape[1]
    total = np.zeros((width, width))
    for label in np.unique(labels):
        of_class = rows[labels == label]
        for row in of_class - of_class.mean(0):
            total += np.outer(row, row)
    covariance = total / (len(rows) - len(np.unique(labels)))
    shrunk = (1 - shrinkage) * covariance + shrinkage * np.trace(covariance) / width * np.eye(width)
    values, vectors = np.linalg.eigh(shrunk)
    return sum(np.outer(vector, vector) / np.sqrt(value) for value, vector in zip(values, vectors.T, strict=True))
