"""Positions written as keys of transformers' configurations: its own models compute the same with them."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from clockhands.errors import ConfigError, UsageError
from clockhands.interchange.architectures import ARCHITECTURES
from clockhands.interchange.position_keys import convert_position_keys, make_position_keys
from clockhands.interchange.position_table import read_position_table
from clockhands.model import PositionConfig, TransformerConfig
from clockhands.model.huggingface_base import ClockhandsConfig
from clockhands.schemes.position_presets import POSITION_PRESETS
from tests.interchange.test_position_table import LAYERS, LENGTH, PEERS, SIZES, make_tiny
from tests.interchange.test_weights import THEIRS
from tests.model.tiny import words
from tests.schemes.test_position_presets import PUBLISHED

WIDTH = 12
WRITTEN = {
    "layer_types", "sliding_window", "use_sliding_window", "local_attention", "attention_chunk_size", "no_rope_layers",
    "attn_temperature_tuning", "attn_scale", "floor_scale", "rope_parameters", "qk_rope_head_dim", "qk_nope_head_dim",
    "relative_attention_num_buckets", "max_position_embeddings",
}  # fmt: skip
"""Every key that may be written: a configuration without them, and with those written, is compared."""
OF_PRESETS = {
    "mistral": "mistral", "gpt-oss": "gpt_oss", "gemma-3": "gemma3_text", "gemma-4": "gemma4_text",
    "modernbert": "modernbert", "llama-4": "llama4_text", "smollm3": "smollm3", "cohere-2": "cohere2",
    "olmo-3": "olmo3", "qwen3-next": "qwen3_next", "deepseek-v3": "deepseek_v3",
    "mistral-large-4": "mistral_large4_text", "mpnet": "mpnet",
}  # fmt: skip


def rebuild(config: Any, keys: dict[str, Any]) -> Any:
    """The configuration whose keys about position are those that were written, and no others."""
    rest = {key: value for key, value in config.to_dict().items() if key not in WRITTEN}
    return type(config)(**{**rest, **copy.deepcopy(keys)}, experts_implementation=SIZES["experts_implementation"])


# Where weights are copied, ``test_weights`` copies the model there and back. Keys of DeepSeek-V4 are only read.
@pytest.mark.parametrize("name", sorted(set(PEERS) - {"deepseek-v4"}))
@torch.no_grad()
def test_from_a_configuration_and_back_it_is_the_same_model(name: str) -> None:
    theirs = make_tiny(name)
    config = theirs.config
    position = PositionConfig.from_dict(read_position_table(config.to_dict()))
    keys = make_position_keys(position, config.model_type, LAYERS, WIDTH)
    again = rebuild(config, keys)
    assert read_position_table(again.to_dict()) == read_position_table(config.to_dict())
    for key in WRITTEN & set(keys) - {"rope_parameters"}:
        assert getattr(again, key) == getattr(config, key), key
    other = type(theirs)(again).eval().double()
    other.load_state_dict(theirs.state_dict())
    text = words(2, LENGTH)
    torch.testing.assert_close(other(input_ids=text)[0], theirs(input_ids=text)[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("preset", OF_PRESETS)
def test_the_positions_of_a_model_are_written_for_its_architecture(preset: str) -> None:
    """And as its published numbers are, amplitudes too."""
    model_type, width = OF_PRESETS[preset], 192 if preset == "deepseek-v3" else 128
    position = PositionConfig.from_dict({"preset": preset})
    keys = make_position_keys(position, model_type, 12, width)
    assert set(keys) - {"model_type", "num_hidden_layers", "head_dim"} <= WRITTEN
    if preset in PUBLISHED:
        family, numbers = PUBLISHED[preset]
        config = getattr(transformers, family)(**numbers, num_hidden_layers=12)
        published = PositionConfig.from_dict(read_position_table(config.to_dict()))
        assert make_position_keys(published, model_type, 12, width) == keys


def draw_positions(rng: random.Random) -> dict[str, Any]:
    """Six layers of parts that real models have; no architecture has keys for most of them."""

    def draw_layer() -> Any:
        parts: list[Any] = []
        if rng.random() < 0.8:
            spectrum = rng.choice([{}, {}, {"spectrum": "yarn", "factor": 4.0, "original_length": 32}])
            layout = rng.choice(["half", "half", "interleaved"])
            parts.append({"scheme": "rope", "base": rng.choice([100.0, 5e5]), "layout": layout, **spectrum})
        if rng.random() < 0.5:
            parts.append({"scheme": "window", "left": rng.choice([4, 4, 6])})
        if rng.random() < 0.1:
            parts.append("sinks")
        return {"schemes": parts} if parts else "none"

    kinds = [draw_layer() for _ in range(rng.choice([1, 1, 2]))]
    return {"layers": [rng.choice(kinds) for _ in range(LAYERS)]}


@pytest.mark.parametrize("model_type", ["mistral", "qwen3", "gemma3_text", "cohere2", "smollm3", "gpt_oss"])
def test_what_is_written_means_to_transformers_what_was_asked_for(model_type: str) -> None:
    """Through the class of the configuration, which fills in what a file lacks; else the positions are refused."""
    rng = random.Random(7)
    family = transformers.CONFIG_MAPPING[model_type]
    said = 0
    for _ in range(150):
        position = PositionConfig.from_dict(draw_positions(rng))
        try:
            keys = make_position_keys(position, model_type, LAYERS, WIDTH)
        except ConfigError as refusal:
            assert f"a configuration of {model_type} has no keys for these positions: layer " in str(refusal)
            continue
        said += 1
        table = read_position_table(family(**{**SIZES, **copy.deepcopy(keys)}).to_dict())
        assert make_position_keys(PositionConfig.from_dict(table), model_type, LAYERS, WIDTH) == keys
    assert 1 <= said < 150


@pytest.mark.parametrize(
    ("preset", "model_type", "reason"),
    [
        ("gemma-3", "mistral", r"layer 5 has rope \(base 1000000.0\), and would be read as rope \+ window"),
        ("cohere-2", "gemma3_text", r"layer 0 has rope \(base 50000.0, layout interleaved\) \+ window \(left 4095\)"),
        ("hybrid-2026", "gpt_oss", r"layer 3 has temperature \(form log, length 1024\) \+ sinks, and would be read as"),
        ("llama-4", "smollm3", r"layer 0 has .* \+ chunks, and would be read as rope"),
        ("gemma-4", "gemma4_text", r"layer 7 has rope \+ window \(left 511\), and would be read as rope \(base"),
        ("smollm3", "mpnet", r"has a learned table and T5's buckets, and layer 0 lacks one"),
    ],
)  # fmt: skip
def test_what_an_architecture_has_no_key_for_is_refused(preset: str, model_type: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        make_position_keys(PositionConfig.from_dict({"preset": preset}), model_type, 8, 48)


def test_what_no_configuration_says_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"position.transform is 'shifted', and no configuration of transformers"):
        make_position_keys(PositionConfig("rope", transform="shifted"), "llama", 2, 8)
    with pytest.raises(ConfigError, match=r"layer 0 has alibi, and would be read as"):
        make_position_keys(PositionConfig("alibi"), "llama", 2, 8)
    with pytest.raises(ConfigError, match=r"layer 0 has rope \(values True\), and would be read as rope"):
        make_position_keys(PositionConfig("rope", options={"values": True}), "llama", 2, 8)
    with pytest.raises(UsageError, match=r"unknown architecture 'deepseek_v4'"):
        make_position_keys(PositionConfig("rope", options={"values": True}), "deepseek_v4", 2, 8)
    with pytest.raises(UsageError, match=r"unknown architecture 'mistal'.*mistral"):
        make_position_keys(PositionConfig("rope"), "mistal", 2, 8)


@pytest.mark.parametrize(
    "table",
    [
        {"schemes": ["rope", {"scheme": "window", "left": 4}, {"scheme": "window", "left": 6}]},
        {"scheme": "window", "left": 4, "layers": [{"schemes": ["rope", {"scheme": "window", "left": 6}]}]},
    ],
)
def test_a_layer_with_two_windows_is_refused_instead_of_one_being_lost(table: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"layer 0 has two schemes window, and no configuration"):
        make_position_keys(PositionConfig.from_dict(table), "mistral", 2, 8)


def test_every_architecture_has_a_model_here_that_it_is_compared_with() -> None:
    of_peers = {getattr(transformers, peer.model).config_class.model_type for peer in PEERS.values()}
    assert set(ARCHITECTURES) == (of_peers | set(THEIRS)) - {"deepseek_v4"}, "add a model of it to one of the two"
    assert set(OF_PRESETS) == set(POSITION_PRESETS) - {"hybrid-2026"}


def test_a_saved_model_and_its_configuration_are_written_alike(tmp_path: Path) -> None:
    config = TransformerConfig(
        kind="decoder", vocab_size=41, d_model=48, num_heads=4, decoder_layers=6, tying="target",
        decoder=PositionConfig.from_dict({"preset": "gemma-3"}),
    )  # fmt: skip
    ClockhandsConfig(transformer=config).save_pretrained(tmp_path)
    keys = convert_position_keys(tmp_path, "gemma3_text")
    assert keys == make_position_keys(config.decoder, "gemma3_text", 6, 12)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "config.json").write_text(json.dumps({**keys, "head_dim": 12}))
    for source in (theirs, theirs / "config.json"):
        assert convert_position_keys(source, "gemma3_text") == keys


def test_an_encoder_decoder_is_refused_whose_encoder_would_be_lost(tmp_path: Path) -> None:
    ClockhandsConfig(transformer=TransformerConfig(encoder=PositionConfig("alibi"))).save_pretrained(tmp_path)
    with pytest.raises(UsageError, match=r"has an encoder and a decoder, .* llama describes one stack; give a model"):
        convert_position_keys(tmp_path, "llama")
