"""Live models on a page: what ``clockhands explore`` writes. ``bundle`` holds the built script and style sheet."""

from clockhands.exploring.model_data import ExplorerModel, describe_model
from clockhands.exploring.page import (
    describe_offer,
    explore,
    find_tour_models,
    make_page,
    name_models,
    prepare_checkpoint,
    prepare_model,
)

__all__ = [
    "ExplorerModel",
    "describe_model",
    "describe_offer",
    "explore",
    "find_tour_models",
    "make_page",
    "name_models",
    "prepare_checkpoint",
    "prepare_model",
]
