"""Build the model of a recipe as a model of transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clockhands.data import Tokenizers
from clockhands.model.huggingface import MODEL_CLASSES
from clockhands.model.huggingface_config import ClockhandsConfig
from clockhands.runs.recipe import Recipe

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["build", "configure"]


def configure(recipe: Recipe, tokenizers: Tokenizers) -> ClockhandsConfig:
    """Make the model's configuration: the recipe's architecture, the tokenizers' vocabularies and special tokens.

    Raises ConfigError if the vocabularies do not fit the architecture (three-way tying needs one for both sides).
    """
    source, target = tokenizers.source, tokenizers.target
    core = recipe.model.with_vocabularies(len(target), None if tokenizers.shared else len(source))
    first = next(token for token in (target.bos_token_id, target.pad_token_id) if token is not None)
    return ClockhandsConfig(
        transformer=core,
        label_smoothing=recipe.training.label_smoothing,
        smoothing=recipe.training.smoothing,
        pad_token_id=target.pad_token_id,
        bos_token_id=target.bos_token_id,
        eos_token_id=target.eos_token_id,
        decoder_start_token_id=first if recipe.model.architecture == "encoder-decoder" else None,
        tokenizer_fingerprint=tokenizers.fingerprint,
    )


def build(recipe: Recipe, tokenizers: Tokenizers) -> PreTrainedModel:
    """Build a new model, drawn from the global random numbers. Raises ConfigError as ``configure``."""
    return MODEL_CLASSES[recipe.model.architecture](configure(recipe, tokenizers))
