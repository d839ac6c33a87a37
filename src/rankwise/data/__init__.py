"""Data sets and their parts."""

from rankwise.data.arff import read_arff
from rankwise.data.augmentations import AUGMENTATIONS, BOX_AUGMENTATIONS, augmentation, box_augmentation
from rankwise.data.box_files import read_coco, read_voc
from rankwise.data.boxes import BoxedImage, BoxSet
from rankwise.data.check import Finding, check_parts
from rankwise.data.detection import DetectionPart, DetectionSchema, cut_boxes, read_boxes
from rankwise.data.digits import load_digit_retrieval, load_eights
from rankwise.data.histories import (
    InteractionPart,
    active_users,
    cut_histories,
    histories,
    hold_out,
    leave_one_out,
    number_like,
)
from rankwise.data.image_files import ImageSet, container, read_images
from rankwise.data.image_sources import ArrayImages, EncodedImages, ImageSource
from rankwise.data.images import (
    AugmentedImages,
    ImagePart,
    ImageSchema,
    cut_classes,
    cut_images,
    imbalanced,
    labelled_like,
)
from rankwise.data.interaction_schema import InteractionSchema, learn_interactions
from rankwise.data.interactions import (
    Interactions,
    read_interaction_lists,
    read_interactions,
    read_movielens,
    read_netflix,
)
from rankwise.data.letor import read_letor, read_letor_comments
from rankwise.data.multilabel import SparsePart, cut_multilabel, read_extreme
from rankwise.data.parts import (
    Batch,
    Boxes,
    Part,
    Split,
    cut_by_class,
    cut_by_query,
    cut_stratified,
    cut_within_queries,
    folds_by_query,
    put_in_folds,
    put_lists_in_folds,
    require_labels,
)
from rankwise.data.rated_films import read_rated_films
from rankwise.data.schema import DataNote, Schema
from rankwise.data.score_lists import ScoreLists, open_score_lists
from rankwise.data.scores import Scores, read_scores
from rankwise.data.sparse import SparseRows
from rankwise.data.sparse_schema import SparseSchema, read_multilabel
from rankwise.data.table_files import open_table
from rankwise.data.tables import Table, TableSchema, read_table
from rankwise.data.text import TextCollection, TextPart, TextSchema, cut_queries, learn_texts
from rankwise.data.text_files import Judgements, Texts, read_judgements, read_texts, read_trec_run

__all__ = [
    "AUGMENTATIONS",
    "BOX_AUGMENTATIONS",
    "ArrayImages",
    "AugmentedImages",
    "Batch",
    "BoxSet",
    "BoxedImage",
    "Boxes",
    "DataNote",
    "DetectionPart",
    "DetectionSchema",
    "EncodedImages",
    "Finding",
    "ImagePart",
    "ImageSchema",
    "ImageSet",
    "ImageSource",
    "InteractionPart",
    "InteractionSchema",
    "Interactions",
    "Judgements",
    "Part",
    "Schema",
    "ScoreLists",
    "Scores",
    "SparsePart",
    "SparseRows",
    "SparseSchema",
    "Split",
    "Table",
    "TableSchema",
    "TextCollection",
    "TextPart",
    "TextSchema",
    "Texts",
    "active_users",
    "augmentation",
    "box_augmentation",
    "check_parts",
    "container",
    "cut_boxes",
    "cut_by_class",
    "cut_by_query",
    "cut_classes",
    "cut_histories",
    "cut_images",
    "cut_multilabel",
    "cut_queries",
    "cut_stratified",
    "cut_within_queries",
    "folds_by_query",
    "histories",
    "hold_out",
    "imbalanced",
    "labelled_like",
    "learn_interactions",
    "learn_texts",
    "leave_one_out",
    "load_digit_retrieval",
    "load_eights",
    "number_like",
    "open_score_lists",
    "open_table",
    "put_in_folds",
    "put_lists_in_folds",
    "read_arff",
    "read_boxes",
    "read_coco",
    "read_extreme",
    "read_images",
    "read_interaction_lists",
    "read_interactions",
    "read_judgements",
    "read_letor",
    "read_letor_comments",
    "read_movielens",
    "read_multilabel",
    "read_netflix",
    "read_rated_films",
    "read_scores",
    "read_table",
    "read_texts",
    "read_trec_run",
    "read_voc",
    "require_labels",
]
