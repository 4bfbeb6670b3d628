"""A new model has the recipe's architecture, and the sizes and special tokens of its tokenizers."""

from __future__ import annotations

import pytest
import torch

from clockhands.errors import ConfigError
from clockhands.model import Transformer
from clockhands.runs.recipe import Recipe, vary_recipe
from clockhands.training.architecture import build, configure
from clockhands.training.training_data import prepare
from tests.training.tiny import tables


def test_sizes_and_special_tokens_are_those_of_the_tokenizers() -> None:
    recipe = vary_recipe(Recipe.from_tables(tables(label_smoothing=0.1)), {"tokenizer.shared": False})
    tokenizers = prepare(vary_recipe(recipe, {"model.tying": "target"})).tokenizers
    config = configure(vary_recipe(recipe, {"model.tying": "target"}), tokenizers)
    transformer = config.transformer_config
    assert transformer.get_vocabulary_size("encoder") == len(tokenizers.source)
    assert transformer.get_vocabulary_size("decoder") == len(tokenizers.target)
    assert config.decoder_start_token_id == tokenizers.target.bos_token_id
    assert (config.eos_token_id, config.pad_token_id) == (
        tokenizers.target.eos_token_id, tokenizers.target.pad_token_id,
    )  # fmt: skip
    assert (config.label_smoothing, config.tokenizer_fingerprint) == (0.1, tokenizers.fingerprint)
    with pytest.raises(ConfigError, match="three-way"):
        configure(vary_recipe(recipe, {"model.tying": "three-way"}), tokenizers)


def test_a_model_is_drawn_from_the_global_random_numbers() -> None:
    recipe = Recipe.from_tables(tables())
    tokenizers = prepare(recipe).tokenizers
    models = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        models.append(build(recipe, tokenizers))
    weights = [model.transformer.output.weight for model in models]
    assert all(isinstance(model.transformer, Transformer) for model in models)
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
