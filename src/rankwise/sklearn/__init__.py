"""scikit-learn estimators that train for the metric they are scored by. Needs `pip install "rankwise[sklearn]"`."""

from rankwise.sklearn.classifier import APClassifier

__all__ = ["APClassifier"]
