"""Models: rows of numbers to scores or to vectors."""

from rankwise.models.feature_mixup import FeatureMixup
from rankwise.models.mlp import MLPEmbedder, MLPScorer
from rankwise.models.scaling import SCALINGS, Scaling, scaled

__all__ = ["SCALINGS", "FeatureMixup", "MLPEmbedder", "MLPScorer", "Scaling", "scaled"]
