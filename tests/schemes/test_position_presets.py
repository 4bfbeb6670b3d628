"""Positions of real models: the numbers of the presets, against transformers' configurations of these models."""

from __future__ import annotations

from typing import Any

import pytest
import transformers

from clockhands.interchange.position_table import read_position_table
from clockhands.model import PositionConfig
from clockhands.model.side_schemes import find_layer_count_faults, list_layer_specs
from clockhands.options import defaults_of, options_of
from clockhands.schemes import CATALOGUE, read_part
from clockhands.schemes.position_presets import POSITION_PRESETS

PUBLISHED: dict[str, tuple[str, dict[str, Any]]] = {
    "mistral": ("MistralConfig", {"sliding_window": 4096}),
    "gpt-oss": ("GptOssConfig", {}),
    "gemma-3": ("Gemma3TextConfig", {"sliding_window": 512}),
    "gemma-4": ("Gemma4TextConfig", {}),
    "modernbert": ("ModernBertConfig", {}),
    "llama-4": ("Llama4TextConfig", {"rope_theta": 500_000.0}),
    "smollm3": ("SmolLM3Config", {"rope_theta": 5e6}),
    "cohere-2": ("Cohere2Config", {"rope_theta": 50_000.0}),
    # OLMo-core's script of the long-context training says factor 8 of 8192; both are in the checkpoint's config.json.
    "olmo-3": ("Olmo3Config",
        {"rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192}}),
    # The base is that of Qwen3-Next-80B-A3B; that of the class is 10,000. Every layer is one with a softmax here, since
    # the others, which are delta nets, have no position.
    "qwen3-next": ("Qwen3NextConfig", {"rope_theta": 1e7, "full_attention_interval": 1}),
    # The rope_scaling of the checkpoint's config.json. The class has none by default; inference/model.py in the
    # repository of DeepSeek-V3 has the same numbers.
    "deepseek-v3": (
        "DeepseekV3Config",
        {
            "rope_scaling": {
                "type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1,
                "mscale": 1.0, "mscale_all_dim": 1.0,
            }
        },
    ),
    "mistral-large-4": ("MistralLarge4TextConfig", {}),
    "mpnet": ("MPNetConfig", {"max_position_embeddings": 514}),
}  # fmt: skip


OWN = {"hybrid-2026"}
"""Presets of this project, which no model was published with."""


def test_every_preset_of_a_model_is_compared_with_it() -> None:
    assert {*PUBLISHED} | OWN == {*POSITION_PRESETS}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_preset_has_the_numbers_of_its_model(name: str) -> None:
    """As read from a configuration with the published numbers, layer by layer; frequencies and all."""
    family, numbers = PUBLISHED[name]
    config = getattr(transformers, family)(**numbers)
    count = config.num_hidden_layers
    ours, theirs = (
        PositionConfig.from_dict(table) for table in (POSITION_PRESETS[name], read_position_table(config.to_dict()))
    )
    assert _spell_out(ours, count) == _spell_out(theirs, count)


@pytest.mark.parametrize("count", [1, 4, 6, 7])
@pytest.mark.parametrize("name", ["gemma-3", "modernbert", "olmo-3"])
def test_a_model_of_few_layers_has_the_first_of_the_pattern(name: str, count: int) -> None:
    """As transformers builds it: Gemma 3 of four layers has windows in all of them."""
    family, numbers = PUBLISHED[name]
    config = getattr(transformers, family)(**numbers, num_hidden_layers=count)
    ours = PositionConfig.from_dict({"preset": name})
    assert find_layer_count_faults(ours, "decoder", count) == []
    assert _spell_out(ours, count) == _spell_out(PositionConfig.from_dict(read_position_table(config.to_dict())), count)


def _spell_out(position: PositionConfig, num_layers: int) -> list[Any]:
    """Every layer's schemes with all their options, those that stand for a rule's own value left out."""
    common = [] if position.scheme == "none" else [{"scheme": position.scheme, **position.options}]
    common = [part for entry in common for part in entry.get("schemes", [entry])]
    layers = []
    for parts in list_layer_specs(position, num_layers):
        tables = [*map(read_part, common), *parts]
        layers.append(sorted((scheme, _fill_in(scheme, options)) for scheme, options in tables))
    return layers


def _fill_in(scheme: str, options: dict[str, Any]) -> dict[str, Any]:
    own = {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": True} if options.get("spectrum") == "yarn" else {}
    own |= {"factor": 1.0} if options.get("spectrum") == "proportional" else {}
    filled = {**defaults_of(options_of(CATALOGUE[scheme])), **own, **options}
    return {key: value for key, value in filled.items() if key != "attention_factor"}
