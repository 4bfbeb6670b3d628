"""What is measured inside a model, against what is known of it before."""

from __future__ import annotations

from typing import Any

import torch

from clockhands.comparison.model_measures import During, Inside
from clockhands.runs.recipe import Recipe, vary_recipe
from clockhands.training import TrainingData, prepare
from clockhands.training.architecture import build
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
    during = During(Inside(material, ("loudness", "survival")))
    assert during.measures == ["loudness"]
