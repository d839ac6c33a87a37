"""Models: rows of numbers to scores or to vectors."""

from rankwise.models.mlp import MLPEmbedder, MLPScorer

__all__ = ["MLPEmbedder", "MLPScorer"]
