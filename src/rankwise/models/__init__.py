"""Models: rows of numbers to scores or to vectors."""

from rankwise.models.anchors import Anchors, Assigned, assign_anchors, make_anchors
from rankwise.models.chunks import InChunks
from rankwise.models.closed_forms import EASE, Blend, Ridge, standardise
from rankwise.models.convolution import ConvEmbedder, FeatureMixup
from rankwise.models.detector import Detector, Found
from rankwise.models.documents import XMLCNN, BagOfWordsScorer
from rankwise.models.faster_rcnn import FasterRCNNDetector, Sampled
from rankwise.models.list_stack import StackedRanker
from rankwise.models.recommenders import ItemItemScorer, MatrixFactorisation, NeuMF
from rankwise.models.resnet import ResNetEmbedder
from rankwise.models.retinanet import RetinaNetDetector
from rankwise.models.rows import (
    SCALINGS,
    ContextAwareRanker,
    MLPEmbedder,
    MLPScorer,
    ScaledRanker,
    Scaling,
    fit_scaling,
    reset_last_layer,
    scaled,
)
from rankwise.models.stacked import StackedScorer
from rankwise.models.text import TextRanker
from rankwise.models.whitening import WhitenedEmbedder

__all__ = [
    "EASE",
    "SCALINGS",
    "XMLCNN",
    "Anchors",
    "Assigned",
    "BagOfWordsScorer",
    "Blend",
    "ContextAwareRanker",
    "ConvEmbedder",
    "Detector",
    "FasterRCNNDetector",
    "FeatureMixup",
    "Found",
    "InChunks",
    "ItemItemScorer",
    "MLPEmbedder",
    "MLPScorer",
    "MatrixFactorisation",
    "NeuMF",
    "ResNetEmbedder",
    "RetinaNetDetector",
    "Ridge",
    "Sampled",
    "ScaledRanker",
    "Scaling",
    "StackedRanker",
    "StackedScorer",
    "TextRanker",
    "WhitenedEmbedder",
    "assign_anchors",
    "fit_scaling",
    "make_anchors",
    "reset_last_layer",
    "scaled",
    "standardise",
]
