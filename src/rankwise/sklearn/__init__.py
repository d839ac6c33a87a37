"""scikit-learn estimators that train for the metric they are scored by. Needs `pip install "rankwise[sklearn]"`."""

from rankwise.sklearn.classifier import APClassifier
from rankwise.sklearn.rankers import NDCGRanker, PApRanker

__all__ = ["APClassifier", "NDCGRanker", "PApRanker"]
