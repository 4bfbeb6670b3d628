"""Another position configuration is what transformers' own model does with those ``rope_parameters``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Gemma3TextConfig, GPT2Config, LlamaForCausalLM, MixtralConfig
from transformers.models.mixtral.modeling_mixtral import MixtralRotaryEmbedding

from clockhands.errors import ConfigError, UsageError
from clockhands.models import open_language_model
from clockhands.models.positions import change_foreign_positions, find_rope_table
from tests.runs.tiny import LENGTH, make_config, save_model

BASE = {"rope_theta": 10_000.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": LENGTH, **BASE}
LLAMA3 = {
    "rope_type": "llama3", "factor": 4.0, "original_max_position_embeddings": LENGTH, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, **BASE,
}  # fmt: skip


@pytest.mark.parametrize(
    ("overrides", "theirs"),
    [
        ({"spectrum": "linear", "factor": 4.0}, {"rope_type": "linear", "factor": 4.0, **BASE}),
        ({"spectrum": "ntk", "factor": 4.0}, {"rope_type": "default", "rope_theta": 10_000.0 * 4.0 ** (16 / 14)}),
        ({"spectrum": "dynamic", "factor": 4.0}, {"rope_type": "dynamic", "factor": 4.0, **BASE}),
        ({"spectrum": "yarn", "factor": 4.0}, YARN),
        ({"spectrum": "yarn", "factor": 4.0, "attention_factor": 1.0}, {**YARN, "attention_factor": 1.0}),
        ({"spectrum": "llama3", "factor": 4.0}, LLAMA3),
        ({"base": 500_000.0}, {"rope_type": "default", "rope_theta": 500_000.0}),
    ],
)
def test_logits_are_those_of_transformers(overrides: dict[str, Any], theirs: dict[str, Any], tmp_path: Path) -> None:
    folder = save_model(tmp_path, "llama")
    config = make_config("llama", rope_parameters=theirs)
    reference = LlamaForCausalLM.from_pretrained(folder, config=config).eval()
    plain = LlamaForCausalLM.from_pretrained(folder).eval()
    ids_BS = torch.randint(3, 99, (2, 4 * LENGTH), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected, before = reference(input_ids=ids_BS).logits, plain(input_ids=ids_BS).logits
    found = open_language_model(folder, position=overrides).compute_logits(ids_BS)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    assert (found - before).abs().max() > 0.01, "the frequencies changed nothing"


def test_layers_that_see_a_window_keep_their_rotation() -> None:
    config = Gemma3TextConfig(num_hidden_layers=6, head_dim=16)
    local = dict(config.rope_parameters["sliding_attention"])
    change_foreign_positions(config, {"spectrum": "linear", "factor": 8.0}, "gemma", 4096)
    assert config.rope_parameters["sliding_attention"] == local
    assert find_rope_table(config) == {"rope_type": "linear", "rope_theta": 1_000_000.0, "factor": 8.0}


def test_a_width_of_heads_that_is_left_open_is_filled_in() -> None:
    """transformers multiplies with ``head_dim`` where the base grows with the text, and Mixtral's is None."""
    config = MixtralConfig(hidden_size=32, num_attention_heads=2, rope_parameters={"rope_type": "default", **BASE})
    change_foreign_positions(config, {"spectrum": "dynamic", "factor": 4.0}, "mixtral", LENGTH)
    assert MixtralRotaryEmbedding(config).inv_freq.shape == (8,)


def test_a_model_that_rotates_nothing_takes_no_option() -> None:
    with pytest.raises(UsageError, match=r"gpt \(gpt2\) has no rope_parameters"):
        change_foreign_positions(GPT2Config(), {"factor": 2.0}, "gpt", 1024)


def test_an_option_that_belongs_to_the_weights_is_refused() -> None:
    for option in ({"layout": "interleaved"}, {"values": True}):
        with pytest.raises(UsageError, match=rf"(?s)position option of llama.*{min(option)}"):
            change_foreign_positions(make_config("llama"), option, "llama", LENGTH)


def test_every_value_of_a_wrong_type_is_refused_and_nothing_changes() -> None:
    config = make_config("llama")
    before = dict(config.rope_parameters)
    with pytest.raises(ConfigError) as told:
        change_foreign_positions(config, {"spectrum": "yarnn", "base": "x", "factor": "a"}, "llama", LENGTH)
    assert [fault.partition(", but")[0] for fault in told.value.faults] == [
        "position.spectrum is 'yarnn'",
        "position.base is 'x'",
        "position.factor is 'a'",
    ]
    assert config.rope_parameters == before
