"""Recipes: everything that a training needs, as TOML; validated once, when a file or tables become a ``Recipe``."""

from clockhands.runs.recipe.overrides import apply_overrides
from clockhands.runs.recipe.recipe import Recipe, combine, load, read_tables, read_training_overrides, vary

__all__ = ["Recipe", "apply_overrides", "combine", "load", "read_tables", "read_training_overrides", "vary"]
