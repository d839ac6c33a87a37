"""The kinds of tasks a recipe may name."""

from __future__ import annotations

from rankwise.recipes.detection import DetectionRecipe
from rankwise.recipes.image_retrieval import ImageRetrievalRecipe
from rankwise.recipes.longtail import LongTailRecipe
from rankwise.recipes.ltr import LTRRecipe
from rankwise.recipes.multilabel import MultilabelRecipe
from rankwise.recipes.pap import PApRecipe
from rankwise.recipes.recsys import RecsysRecipe
from rankwise.recipes.retrieval import RetrievalRecipe
from rankwise.recipes.schema import Recipe
from rankwise.recipes.tabular import TabularRecipe

__all__ = ["KINDS"]

KINDS: dict[str, type[Recipe]] = {
    "tabular": TabularRecipe,
    "ltr": LTRRecipe,
    "pap": PApRecipe,
    "retrieval": RetrievalRecipe,
    "recsys": RecsysRecipe,
    "multilabel": MultilabelRecipe,
    "image-retrieval": ImageRetrievalRecipe,
    "longtail": LongTailRecipe,
    "detection": DetectionRecipe,
}
