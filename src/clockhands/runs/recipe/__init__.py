"""Recipes: everything that a training needs, as TOML; validated once, when a file or tables become a ``Recipe``."""

from clockhands.runs.recipe.recipe import (
    Recipe,
    load_recipe,
    make_recipe,
    read_tables,
    read_training_overrides,
    vary_recipe,
)
from clockhands.runs.recipe.tables import apply_overrides, inherit_tables

__all__ = [
    "Recipe", "apply_overrides", "inherit_tables", "load_recipe", "make_recipe", "read_tables",
    "read_training_overrides", "vary_recipe",
]  # fmt: skip
