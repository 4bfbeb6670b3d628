"""Weights there and back between decoders of transformers and ours: the same logits, and the same numbers."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import transformers

from clockhands.errors import ConfigError, UsageError
from clockhands.model import TransformerConfig
from clockhands.model.huggingface import ClockhandsForCausalLM
from clockhands.model.huggingface_config import ClockhandsConfig
from clockhands.model.huggingface_weights import DECODERS, copy_from_transformers, copy_to_transformers
from tests.model.test_layout_peers import close, shaken
from tests.model.tiny import VOCABULARY, words

LENGTH = 21
SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 48, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 16}
THEIRS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", {"rope_parameters": YARN, "attention_bias": True, "mlp_bias": True, "head_dim": 12}),
    "mistral": ("MistralForCausalLM", {"sliding_window": 5, "tie_word_embeddings": True}),
    "smollm3": ("SmolLM3ForCausalLM", {"rope_theta": 100.0, "attention_bias": True}),
    "cohere2": ("Cohere2ForCausalLM", {"sliding_window": 5, "logit_scale": 0.25, "attention_bias": True}),
}
BODY = {
    "kind": "decoder", "vocab_size": VOCABULARY, "d_model": 32, "num_heads": 4, "num_kv_heads": 2, "d_ff": 48,
    "decoder_layers": 4, "norm": "pre", "norm_kind": "rms", "norm_eps": 1e-6, "token_scale": "one", "gated": True,
    "activation": "silu", "ffn_bias": False, "tying": "none", "dropout": 0.0,
}  # fmt: skip
COHERE = {"norm_kind": "layer", "norm_bias": False, "parallel": True, "tying": "target"}
WINDOW = {"scheme": "window", "left": 4}
OURS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "llama": ({"attention_bias": True}, {"scheme": "rope", "layout": "interleaved"}),
    "mistral": ({}, {"schemes": [{"scheme": "rope", "base": 100.0, "layout": "interleaved"}, WINDOW]}),
    "smollm3": ({"tying": "target"}, {"layers": ["rope", "none"]}),
    "cohere2": ({**COHERE, "output_scale": 0.5}, {"layers": [{"schemes": ["rope", WINDOW]}, "none"]}),
}


def make_theirs(name: str) -> Any:
    family, settings = THEIRS[name]
    kind = getattr(transformers, family)
    return shaken(kind(kind.config_class(**{**SIZES, **copy.deepcopy(settings)})))


def make_ours(body: dict[str, Any], position: dict[str, Any]) -> ClockhandsForCausalLM:
    config = TransformerConfig.from_dict({**BODY, **body, "decoder": position})
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    made: ClockhandsForCausalLM = shaken(ClockhandsForCausalLM(ClockhandsConfig(transformer=config, **ids)))
    return made


@pytest.mark.parametrize("name", DECODERS)
@torch.no_grad()
def test_from_transformers_and_back_everything_is_the_same(name: str) -> None:
    theirs, text = make_theirs(name), words(2, LENGTH)
    ours = copy_from_transformers(theirs)
    close(ours(input_ids=text).logits, theirs(input_ids=text).logits)
    again = copy_to_transformers(ours, name)
    assert type(again) is type(theirs)
    for key, tensor in theirs.state_dict().items():
        assert torch.equal(again.state_dict()[key], tensor), key
    left_out = {"architectures", "max_position_embeddings", "dtype", "initializer_range", "rope_parameters"}
    before, after = (model.config.to_dict() for model in (theirs, again))
    assert {key: after.get(key) for key in before if key not in left_out} == {
        key: value for key, value in before.items() if key not in left_out
    }
    close(again(input_ids=text).logits, theirs(input_ids=text).logits)


@pytest.mark.parametrize("name", DECODERS)
@torch.no_grad()
def test_a_decoder_of_our_own_has_its_logits_in_transformers(name: str) -> None:
    """Channels that are paired otherwise, and two norms where Cohere's has one, are worked into the matrices."""
    ours, text = make_ours(*OURS[name]), words(2, LENGTH)
    before = {key: tensor.clone() for key, tensor in ours.state_dict().items()}
    theirs = copy_to_transformers(ours, name)
    close(theirs(input_ids=text).logits, ours(input_ids=text).logits)
    assert all(torch.equal(tensor, before[key]) for key, tensor in ours.state_dict().items())
    assert (theirs.config.bos_token_id, theirs.config.eos_token_id) == (1, 2)


@pytest.mark.parametrize(
    ("name", "body", "position", "reasons"),
    [
        ("mistral", {"norm": "post", "attention_bias": True}, {"scheme": "rope"},
         ["norm is 'post', and mistral has 'pre'", "attention_bias is True, and mistral has False"]),
        ("llama", {"token_scale": "sqrt"}, {"scheme": "rope"}, ["token_scale is 'sqrt', and llama has 'one'"]),
        ("llama", {"attention_scale": 1.0}, {"scheme": "rope"}, ["attention_scale is 1.0, and llama has 0.35"]),
        ("cohere2", {}, {"layers": [{"schemes": ["rope", WINDOW]}, "none"]}, ["parallel is False, and cohere2"]),
        ("smollm3", {}, {"schemes": ["rope", "sinks"]}, ["layer 0 has rope + sinks, and would be read as rope"]),
    ],
)  # fmt: skip
def test_what_the_architecture_cannot_express_is_refused(
    name: str, body: dict[str, Any], position: dict[str, Any], reasons: list[str]
) -> None:
    ours = make_ours(body, position)
    with pytest.raises(ConfigError) as refusal:
        copy_to_transformers(ours, name)
    assert all(reason in str(refusal.value) for reason in reasons)


def test_other_architectures_are_refused() -> None:
    theirs = transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**SIZES, head_dim=8, query_pre_attn_scalar=8))
    with pytest.raises(UsageError, match=r"unknown decoder 'gemma3_text'.*llama, mistral, smollm3"):
        copy_from_transformers(theirs)
    with pytest.raises(UsageError, match=r"unknown decoder 'gpt_oss'"):
        copy_to_transformers(make_ours({}, {"scheme": "rope"}), "gpt_oss")
