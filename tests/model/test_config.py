"""Configurations: defaults are the paper's, every fault is told, and told together."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clockhands.errors import ConfigError, UsageError
from clockhands.model import PRESETS, PositionConfig, TransformerConfig, make_preset
from clockhands.model import config as module
from clockhands.model.config import DROPOUT_PLACES
from clockhands.options import options_of


def test_defaults_are_the_base_model_of_the_paper() -> None:
    config = make_preset("paper-base")
    assert (config.d_model, config.d_ff, config.num_heads, config.resolved_head_dim) == (512, 2048, 8, 64)
    assert (config.encoder_layers, config.decoder_layers, config.dropout) == (6, 6, 0.1)
    assert (config.norm, config.token_scale, config.tying, config.attention_bias) == (
        "post", "sqrt", "three-way", False,
    )  # fmt: skip
    assert config.encoder.scheme == config.decoder.scheme == "sinusoidal" and config.cross.scheme == "none"


def test_tutorial_has_the_tutorial_s_parameters() -> None:
    """10,184,162 with vocabularies of 7,765 and 7,010 words (counted from the notebook's layers)."""
    from clockhands.model import Transformer

    model = Transformer(make_preset("tutorial", {"vocab_size": 7010, "source_vocab_size": 7765}))
    assert sum(parameter.numel() for parameter in model.parameters()) == 10_184_162


@pytest.mark.parametrize("name", PRESETS)
def test_round_trip(name: str) -> None:
    config = make_preset(name, {"cross": {"scheme": "rope", "base": 500.0, "skip_every": 2}})
    table = config.to_dict()
    assert TransformerConfig.from_dict(json.loads(json.dumps(table))) == config
    assert config.cross.options == {"base": 500.0}


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"d_modle": 3}, "unknown option of the model 'd_modle'; did you mean 'd_model'?"),
    ({"kind": "decodr"}, "kind is 'decodr', but must be one of"),
    ({"d_model": 64.5}, "d_model is 64.5, but must be a whole number"),
    ({"encoder": 3}, "encoder is 3, but must be the name of a scheme or a table"),
    ({"d_model": 0}, "d_model is 0, but must be from 1 to 1,048,576"),
    ({"decoder_layers": 1_000_000}, "decoder_layers is 1000000, but must be from 0 to 2,000"),
    ({"num_heads": 0}, "num_heads is 0, but must be from 1 to"),
    ({"num_heads": 7}, "num_heads is 7, which does not divide d_model 512; take 8, or set head_dim"),
    ({"d_model": 2**19, "num_heads": 2}, "d_model / num_heads is 262,144, but must be at most 131,072"),
    ({"num_kv_heads": 3}, "num_kv_heads is 3, which does not divide num_heads 8; take 2"),
    ({"dropout": 1.0}, "dropout is 1.0, but must be from 0 to below 1"),
    ({"output_scale": 0.0}, "output_scale is 0.0, but must be above 0"),
    ({"norm_eps": 0.0}, "norm_eps is 0.0, but must be above 0 and below 1"),
    ({"norm_eps": math.inf}, "norm_eps is inf, but must be a finite number"),
    ({"attention_scale": math.nan}, "attention_scale is nan, but must be a finite number"),
    ({"encoder": {"scheme": "rope", "base": math.inf}}, "encoder: rope.base is inf, but must be a finite number"),
    ({"d_ff": 2**64}, "d_ff is 18446744073709551616, but must be a whole number of at most 64 bits"),
    ({"dropout_places": ["residul"]}, "dropout_places is ('residul',), but must be"),
    ({"parallel": True, "kind": "decoder"}, "parallel attention and feed-forward need norm = 'pre'"),
    ({"parallel": True, "norm": "pre"}, "parallel attention and feed-forward have no place for cross-attention"),
    ({"source_vocab_size": 5}, "the vocabularies have 5 (source) and 8000 (target) tokens; set tying = 'target'"),
    ({"encoder": "ropee"}, "encoder: unknown scheme 'ropee'; did you mean 'rope'?"),
    ({"encoder": {"scheme": "rope", "bsae": 3}}, "encoder: unknown option of rope 'bsae'; did you mean 'base'?"),
    ({"encoder": {"scheme": "rope", "base": "x"}}, "encoder: rope.base is 'x', but must be a number"),
    ({"encoder": {"scheme": "sinusoidal", "options": 3}}, "encoder.options is 3, but must be a table"),
    ({"encoder": {"scheme": "sinusoidal", "combine": "concatenate"}}, "needs encoder.width"),
    ({"encoder": {"scheme": "sinusoidal", "combine": "concatenate", "width": 512}},
     "encoder.width (d_p) is 512, but d_model is 512; d_p must leave channels to the tokens"),
    ({"encoder": {"scheme": "sinusoidal", "width": 8}}, "encoder.width is 8, but combine = 'add' takes no width"),
    ({"encoder": {"scheme": "sinusoidal", "combine": "project", "width": 0}},
     "encoder.width is 0, but must be at least 1"),
    ({"encoder": {"scheme": "sinusoidal", "combine": "project", "width": 9}}, "needs an even width"),
    ({"encoder": {"scheme": "sinusoidal", "combine": "concatenate", "width": 8}},
     "leaves 504 channels to the tokens and the output needs 512"),
    ({"encoder": {"scheme": "rope", "combine": "project", "width": 8}},
     "combine = 'project' needs a scheme that adds vectors at the token embedding; rope adds none"),
    ({"encoder": {"scheme": "rope", "every_layer": True}}, "every_layer = true needs a scheme that adds vectors"),
    ({"encoder": {"scheme": "sinusoidal", "every_layer": True, "combine": "project", "width": 8}},
     "encoder.every_layer adds the encoding again, so combine must be 'add'"),
    ({"encoder": {"scheme": "rope", "skip_every": 1}}, "encoder.skip_every is 1; it must be 0"),
    ({"encoder": "cope"}, "and the encoder has none; choose another scheme, or set causal_encoder = true"),
    ({"cross": "sinusoidal"}, "cross: sinusoidal acts at the token embedding or computes"),
    ({"encoder": {"scheme": "rope", "transform": "shiftd"}}, "unknown position transform 'shiftd'"),
    ({"encoder": {"scheme": "rope", "transform_options": {"maximum": 3}}},
     "encoder.transform_options is set but encoder.transform is not: set it or remove the options"),
    ({"encoder": {"scheme": "rope", "transform": "scaled", "transform_options": {"factor": "x"}}},
     "encoder.transform_options.factor is 'x', but must be a number"),
    ({"num_kv_heads": 16}, "num_kv_heads is 16, which does not divide num_heads 8; take 8"),
    ({"cross": "cope"}, "only under a causal mask, and cross-attention has none; choose another scheme"),
    ({"encoder": {"scheme": "learned", "transform": "cape"}},
     "cape gives real numbers, and learned takes integer positions; choose another transform, or a scheme that"),
    ({"cross": {"scheme": "rope", "transform": "scaled"}},
     "cross.transform is set, but cross-attention reads positions as they were counted"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "sentence"), FAULTS, ids=[sentence for _, sentence in FAULTS])
def test_every_fault_is_told(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TransformerConfig.from_dict(changes)
    assert sentence in str(caught.value)
    assert len(caught.value.faults) == 1


def test_all_faults_are_told_together() -> None:
    with pytest.raises(ConfigError) as caught:
        TransformerConfig.from_dict(
            {"d_modle": 3, "num_heads": 7, "encoder": {"scheme": "rope", "bsae": 3}, "decoder": "alibbi"}, "recipe.toml"
        )
    assert caught.value.source == "recipe.toml"
    assert len(caught.value.faults) == 4
    with pytest.raises(ConfigError) as caught:
        TransformerConfig.from_dict({"d_model": "x", "encoder": {"width": "y"}, "cross": {"skip_every": 1.5}})
    assert len(caught.value.faults) == 3
    own = {"scheme": "sinusoidal", "combine": "concatenate", "width": 15}
    lone = {"scheme": "rope", "fraction": -1.0}
    with pytest.raises(ConfigError, match=r"(?s)leaves 497 channels to the tokens.*needs an even width") as caught:
        TransformerConfig.from_dict({"encoder": own, "decoder": lone})
    assert len(caught.value.faults) == 3


def test_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="unknown preset 'tny'; did you mean 'tiny'"):
        make_preset("tny")


@given(places=st.sets(st.sampled_from(DROPOUT_PLACES)), asked=st.sampled_from(DROPOUT_PLACES))
def test_dropout_acts_exactly_where_it_is_put(places: set[str], asked: str) -> None:
    config = make_preset("tiny", {"dropout": 0.25, "dropout_places": sorted(places)})
    expected = asked in places or (asked == "ffn-residual" and "residual" in places)
    assert config.get_dropout(asked) == (0.25 if expected else 0.0)


def test_position_from_a_name_or_a_table() -> None:
    assert PositionConfig.from_dict("rope") == PositionConfig("rope")
    loose = PositionConfig.from_dict({"scheme": "rope", "base": 5.0, "options": {"layout": "half"}, "skip_every": 4})
    assert loose == PositionConfig("rope", {"layout": "half", "base": 5.0}, skip_every=4)


def test_options_of_layers_that_known_models_need_are_described() -> None:
    assert options_of(TransformerConfig)["latent_width"].meaning.startswith("keys and values of self-attention")


@pytest.fixture
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CONFIGS", {})


@pytest.mark.usefixtures("nothing_kept")
def test_equal_tables_give_the_same_configuration_validated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    read = TransformerConfig.from_dict
    monkeypatch.setattr(
        TransformerConfig, "from_dict", lambda table, origin: calls.append(table) or read(table, origin)
    )
    first = module.read_config({"d_model": 64, "num_heads": 4})
    assert module.read_config({"num_heads": 4, "d_model": 64}) is first and len(calls) == 1
    assert module.read_config({"num_heads": 8, "d_model": 64}).num_heads == 8 and len(calls) == 2


@pytest.mark.usefixtures("nothing_kept")
def test_the_oldest_configuration_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_CONFIGS", 2)
    first, second, third = ({"d_ff": size} for size in (64, 128, 256))
    oldest, kept = module.read_config(first), module.read_config(second)
    module.read_config(third)
    assert module.read_config(second) is kept
    assert module.read_config(first) is not oldest and module.read_config(first) == oldest


@pytest.mark.parametrize("table", [{"d_modle": 64}, {"d_model": {1, 2}}])
def test_a_table_that_is_not_valid_says_where_it_comes_from(table: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="the file has 1 fault"):
        module.read_config(table, "the file")
