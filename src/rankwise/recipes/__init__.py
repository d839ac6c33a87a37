"""Recipes: whole runs as YAML files. Needs `pip install "rankwise[train]"`."""

from rankwise.recipes.load import BadRecipe, dump_recipe, library, load_recipe, make_recipe
from rankwise.recipes.schema import Recipe

__all__ = ["BadRecipe", "Recipe", "dump_recipe", "library", "load_recipe", "make_recipe"]
