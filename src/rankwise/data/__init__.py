"""Data sets and their parts."""

from rankwise.data.arff import read_arff
from rankwise.data.augmentations import AUGMENTATIONS, augmentation
from rankwise.data.boxes import BoxedImage, BoxSet
from rankwise.data.check import Finding, check_parts
from rankwise.data.coco import read_coco
from rankwise.data.detection import (
    BOX_AUGMENTATIONS,
    DetectionPart,
    DetectionSplit,
    box_augmentation,
    cut_boxes,
    read_boxes,
)
from rankwise.data.digits import load_digit_retrieval, load_eights
from rankwise.data.histories import active_users, histories, hold_out, join_interactions, number_together
from rankwise.data.image_files import ImageOptions, ImageSet, container, read_images
from rankwise.data.image_sources import ArrayImages, EncodedImages, ImageSource
from rankwise.data.images import (
    AugmentedImages,
    ImagePart,
    ImageSplit,
    cut_classes,
    cut_images,
    imbalanced,
    labelled_like,
    listed_parts,
)
from rankwise.data.interactions import (
    Interactions,
    InteractionSplit,
    leave_one_out,
    read_interaction_lists,
    read_interactions,
    read_movielens,
)
from rankwise.data.letor import read_letor, read_letor_comments
from rankwise.data.letor_folds import read_letor_folds, read_letor_split
from rankwise.data.movielens_features import RatedFilms, cut_rated_films, read_rated_films
from rankwise.data.multilabel import MultiLabel, MultiLabelSplit, cut_multilabel, read_extreme
from rankwise.data.netflix import read_netflix
from rankwise.data.parts import Batch, Boxes, Part, Split, cut_by_class
from rankwise.data.reading import read_labelled
from rankwise.data.scores import Scores, read_scores
from rankwise.data.sparse import SparseRows
from rankwise.data.splits import cut_by_query, cut_stratified, folds_by_query, join_parts
from rankwise.data.tables import Table, read_table
from rankwise.data.voc import read_voc

__all__ = [
    "AUGMENTATIONS",
    "BOX_AUGMENTATIONS",
    "ArrayImages",
    "AugmentedImages",
    "Batch",
    "BoxSet",
    "BoxedImage",
    "Boxes",
    "DetectionPart",
    "DetectionSplit",
    "EncodedImages",
    "Finding",
    "ImageOptions",
    "ImagePart",
    "ImageSet",
    "ImageSource",
    "ImageSplit",
    "InteractionSplit",
    "Interactions",
    "MultiLabel",
    "MultiLabelSplit",
    "Part",
    "RatedFilms",
    "Scores",
    "SparseRows",
    "Split",
    "Table",
    "active_users",
    "augmentation",
    "box_augmentation",
    "check_parts",
    "container",
    "cut_boxes",
    "cut_by_class",
    "cut_by_query",
    "cut_classes",
    "cut_images",
    "cut_multilabel",
    "cut_rated_films",
    "cut_stratified",
    "folds_by_query",
    "histories",
    "hold_out",
    "imbalanced",
    "join_interactions",
    "join_parts",
    "labelled_like",
    "leave_one_out",
    "listed_parts",
    "load_digit_retrieval",
    "load_eights",
    "number_together",
    "read_arff",
    "read_boxes",
    "read_coco",
    "read_extreme",
    "read_images",
    "read_interaction_lists",
    "read_interactions",
    "read_labelled",
    "read_letor",
    "read_letor_comments",
    "read_letor_folds",
    "read_letor_split",
    "read_movielens",
    "read_netflix",
    "read_rated_films",
    "read_scores",
    "read_table",
    "read_voc",
]
