"""Recipes: whole runs as YAML files. Needs `pip install "rankwise[train]"`."""

from rankwise.recipes.kinds import KINDS
from rankwise.recipes.load import BadRecipe, dump_recipe, library, load_recipe, make_recipe
from rankwise.recipes.schema import Recipe

__all__ = ["KINDS", "BadRecipe", "Recipe", "dump_recipe", "library", "load_recipe", "make_recipe"]
