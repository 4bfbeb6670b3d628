"""What is measured inside a model, against what is known of it before."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from clockhands.comparison.model_measures import During, Inside
from clockhands.runs.recipe import Recipe, vary_recipe
from clockhands.training import TrainingData, prepare
from clockhands.training.model import build
from tests.training.tiny import tables


def _look(*measures: str, **changes: Any) -> dict[str, float]:
    recipe = vary_recipe(
        Recipe.from_tables(tables()), {key.replace("__", "."): value for key, value in changes.items()}
    )
    material = prepare(recipe)
    torch.manual_seed(1)
    return Inside(material, measures).look(build(recipe, material.tokenizers).eval())


def test_no_position_is_read_from_an_encoder_that_has_none() -> None:
    """It cannot know: attention without positions does not see the order (the words are shuffled before)."""
    blind, told = _look("survival", position__scheme="none"), _look("survival")
    chance = blind["position read back by chance"]
    assert blind["position read back, layer 1"] < 1.6 * chance
    assert told["position read back, layer 1"] > 2 * chance


def test_a_step_along_the_sinusoid_is_a_turn_and_along_random_vectors_none() -> None:
    clock, noise = _look("shift"), _look("shift", position__scheme="random")
    assert clock["error of a step as a rotation"] < 0.05 < 0.9 < noise["error of a step as a rotation"]
    assert clock["similarity told by distance"] > 0.9 > 0.1 > noise["similarity told by distance"]


def test_louder_positions_lose_words() -> None:
    found = _look("recovery", "louder")
    louder = [found[f"words recovered, positions {times} times as long"] for times in (4, 16)]
    assert found["words recovered"] >= louder[0] > louder[1]


def test_only_what_is_cheap_is_looked_at_during_training() -> None:
    recipe = Recipe.from_tables(tables())
    material: TrainingData = prepare(recipe)
    during = During(Inside(material, ("loudness", "survival", "terms")))
    assert during.measures == ["loudness", "terms"]


def test_without_positions_a_translator_has_no_terms_of_theirs() -> None:
    """Its texts are shuffled, or the words that are usual at a place would pass as positions."""
    blind, told = _look("terms", position__scheme="none"), _look("terms", position__amplitude=4.0)
    assert abs(blind["position–position, layer 1"]) < 0.01 < 0.1 < told["position–position, layer 1"]
    assert sum(told.values()) == pytest.approx(1, abs=1e-4)


def test_a_language_model_is_measured_on_windows_of_its_text() -> None:
    recipe = Recipe.from_tables(
        {
            "data": {"corpus": "stdlib", "limit": 200_000, "file_limit": 4000},
            "tokenizer": {"kind": "character"},
            "model": {"kind": "decoder", "d_model": 16, "num_heads": 2, "d_ff": 32, "decoder_layers": 2},
            "batches": {"size": 4, "window": 33},
            "training": {"max_steps": 2},
        }
    )
    material = prepare(recipe)
    inside = Inside(material, ("loudness", "terms"))
    assert inside.texts.ids_NT.shape == (96, 32)
    torch.manual_seed(1)
    found = inside.look(build(recipe, material.tokenizers).eval())
    assert found["word over position"] > 0 and sum(found.values()) > 2
    for layer in (1, 2):
        shares = [value for name, value in found.items() if name.endswith(f"layer {layer}")]
        assert len(shares) == 7 and sum(shares) == pytest.approx(1, abs=1e-4)
