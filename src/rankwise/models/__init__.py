"""Models: rows of numbers to scores or to vectors."""

from rankwise.models.feature_mixup import FeatureMixup
from rankwise.models.mlp import MLPEmbedder, MLPScorer

__all__ = ["FeatureMixup", "MLPEmbedder", "MLPScorer"]
