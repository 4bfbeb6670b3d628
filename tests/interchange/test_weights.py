"""Weights there and back between models of transformers and ours: the same logits, and the same numbers."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import transformers

from clockhands.errors import ConfigError, UsageError
from clockhands.interchange.architectures import ARCHITECTURES
from clockhands.interchange.fields import DECODERS, ENCODERS, REFUSED
from clockhands.interchange.weights import copy_from_transformers, copy_to_transformers
from clockhands.model import TransformerConfig
from clockhands.model.huggingface import ClockhandsForCausalLM, ClockhandsForMaskedLM
from clockhands.model.huggingface_base import ClockhandsConfig
from tests.model.peers import without_yarn
from tests.model.tiny import VOCABULARY, words

LENGTH = 21
SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 48, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 16}
PLAIN = {"rope_type": "default", "rope_theta": 100.0}
QUARTER = {**PLAIN, "partial_rotary_factor": 0.25}
THEIRS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", {"rope_parameters": YARN, "attention_bias": True, "mlp_bias": True, "head_dim": 12}),
    "mistral": ("MistralForCausalLM", {"sliding_window": 5, "tie_word_embeddings": True}),
    "smollm3": ("SmolLM3ForCausalLM", {"rope_theta": 100.0, "attention_bias": True}),
    "cohere2": ("Cohere2ForCausalLM", {"sliding_window": 5, "logit_scale": 0.25, "attention_bias": True}),
    "qwen3": ("Qwen3ForCausalLM", {"rope_theta": 100.0, "head_dim": 12, "attention_bias": True}),
    "stablelm": ("StableLmForCausalLM", {"rope_parameters": QUARTER}),
    "llama4_text": ("Llama4ForCausalLM", {
        "head_dim": 8, "intermediate_size_mlp": 40, "moe_layers": [], "use_qk_norm": False, "floor_scale": 8,
        "attention_chunk_size": 6, "no_rope_layers": [1, 1, 0, 1]}),
    "gemma3_text": ("Gemma3ForCausalLM", {
        "head_dim": 12, "query_pre_attn_scalar": 10, "sliding_window": 5,
        "layer_types": [*["sliding_attention"] * 3, "full_attention"],
        "rope_parameters": {"sliding_attention": PLAIN, "full_attention": {**PLAIN, "rope_theta": 1000.0}}}),
    "olmo3": ("Olmo3ForCausalLM", {
        "sliding_window": 5, "rope_parameters": {"sliding_attention": PLAIN, "full_attention": YARN},
        "layer_types": [*["sliding_attention"] * 3, "full_attention"]}),
}  # fmt: skip
DEEPSEEK = {
    "q_lora_rank": 10, "kv_lora_rank": 12, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 6,
    "num_key_value_heads": 4, "rope_parameters": PLAIN, "moe_intermediate_size": 8, "n_routed_experts": 8,
    "n_shared_experts": 2, "n_group": 4, "topk_group": 2, "num_experts_per_tok": 3, "first_k_dense_replace": 1,
}  # fmt: skip
THEIRS |= {
    "gpt_oss": ("GptOssForCausalLM", {
        "head_dim": 8, "sliding_window": 5, "rope_parameters": YARN, "num_local_experts": 4,
        "num_experts_per_tok": 2}),
    "deepseek_v3": ("DeepseekV3ForCausalLM", DEEPSEEK),
    "modernbert": ("ModernBertForMaskedLM", {
        "local_attention": 8, "classifier_bias": True, "attention_bias": True,
        "rope_parameters": {"sliding_attention": PLAIN, "full_attention": {**PLAIN, "rope_theta": 1000.0}}}),
    "mpnet": ("MPNetForMaskedLM", {"max_position_embeddings": 34, "pad_token_id": 1}),
}  # fmt: skip
"""Settings under which further values of the same keys are copied: (architecture, changes)."""
FURTHER: list[tuple[str, dict[str, Any]]] = [
    ("llama4_text", {"moe_layers": [1, 3], "num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 20}),
    ("deepseek_v3", {"rope_parameters": {**YARN, "mscale": 0.7, "mscale_all_dim": 1.0}}),
    ("deepseek_v3", {"q_lora_rank": None, "first_k_dense_replace": 4, "attention_bias": True}),
    ("modernbert", {"classifier_bias": False, "attention_bias": False, "norm_bias": True, "mlp_bias": True}),
]
NO_WINDOWS = {"sliding_window": 64}
SAME_BASE = {"rope_parameters": {"sliding_attention": PLAIN, "full_attention": PLAIN}}
WITHOUT: list[tuple[str, dict[str, Any]]] = [
    ("llama", without_yarn(THEIRS["llama"][1])),
    ("mistral", NO_WINDOWS),
    ("smollm3", {"no_rope_layers": [1] * 4}),
    ("cohere2", NO_WINDOWS),
    ("cohere2", {"layer_types": ["sliding_attention"] * 4}),
    ("stablelm", {"rope_parameters": {**PLAIN, "partial_rotary_factor": 1.0}}),
    ("llama4_text", {"attention_chunk_size": 64}),
    ("llama4_text", {"attn_scale": 0.0}),
    ("llama4_text", {"no_rope_layers": [1] * 4}),
    ("deepseek_v3", {"rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}}),
    ("gemma3_text", NO_WINDOWS),
    ("gemma3_text", SAME_BASE),
    ("olmo3", NO_WINDOWS),
    ("olmo3", without_yarn(THEIRS["olmo3"][1])),
    ("gpt_oss", NO_WINDOWS),
    ("gpt_oss", without_yarn(THEIRS["gpt_oss"][1])),
    ("modernbert", {"local_attention": 64}),
    ("modernbert", SAME_BASE),
]
"""Settings that take away what a model of ``THEIRS`` is copied for: (architecture, changes)."""
BODY = {
    "kind": "decoder", "vocab_size": VOCABULARY, "d_model": 32, "num_heads": 4, "num_kv_heads": 2, "d_ff": 48,
    "decoder_layers": 4, "norm": "pre", "norm_kind": "rms", "norm_eps": 1e-6, "token_scale": "one", "gated": True,
    "activation": "silu", "ffn_bias": False, "tying": "none", "dropout": 0.0,
}  # fmt: skip
COHERE = {"norm_kind": "layer", "norm_bias": False, "parallel": True, "tying": "target"}
WINDOW = {"scheme": "window", "left": 4}
INTERLEAVED = {"scheme": "rope", "layout": "interleaved"}
TEMPERATURE = {"scheme": "temperature", "length": 8}
OURS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "llama": ({"attention_bias": True}, INTERLEAVED),
    "mistral": ({}, {"schemes": [{"scheme": "rope", "base": 100.0, "layout": "interleaved"}, WINDOW]}),
    "smollm3": ({"tying": "target"}, {"layers": ["rope", "none"]}),
    "cohere2": ({**COHERE, "output_scale": 0.5}, {"layers": [{"schemes": ["rope", WINDOW]}, "none"]}),
    "qwen3": ({"query_key_norm": "head"}, INTERLEAVED),
    "stablelm": ({"norm_kind": "layer"}, {"scheme": "rope", "layout": "interleaved", "fraction": 0.5}),
    "llama4_text": ({}, {"layers": [{"schemes": ["rope", {"scheme": "chunks", "size": 6}]}, TEMPERATURE]}),
    "gemma3_text": ({"norm": "sandwich", "query_key_norm": "head", "token_scale": "sqrt", "activation": "gelu-tanh"},
        {"layers": [{"schemes": [INTERLEAVED, WINDOW]}, {"scheme": "rope", "base": 500.0}]}),
    "olmo3": ({"norm": "output", "query_key_norm": "joint"}, {"layers": [{"schemes": [INTERLEAVED, WINDOW]}, "rope"]}),
}  # fmt: skip
EXPERT_KEYS = {
    "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "n_shared_experts", "routed_scaling_factor",
    "n_group", "topk_group", "num_local_experts",
}  # fmt: skip
EXPERTS = {"experts": 4, "experts_per_token": 2}
LATENT = {"latent_width": 12, "shared_key_dim": 4, "value_dim": 6, "num_kv_heads": 4, "head_dim": 12}
ENCODER = {
    "kind": "encoder", "norm_kind": "layer", "embedding_norm": True, "output_transform": True, "tying": "target",
    "num_kv_heads": 4, "encoder_layers": 4, "activation": "gelu",
}  # fmt: skip
POST = {"norm": "post", "gated": False, "attention_bias": True, "ffn_bias": True, "output_bias": True}
OURS |= {
    "gpt_oss": (
        {**EXPERTS, "activation": "clamped-silu", "ffn_bias": True, "attention_bias": True},
        {"layers": [{"schemes": [INTERLEAVED, WINDOW, "sinks"]}, {"schemes": [INTERLEAVED, "sinks"]}]},
    ),
    "deepseek_v3": (
        {**LATENT, **EXPERTS, "expert_layers": [1, 2, 3], "shared_expert_width": 48, "router": "sigmoid"},
        {"scheme": "rope", "fraction": 1 / 3},
    ),
    "modernbert": ({**ENCODER, "first_norm": False}, {"layers": ["rope", {"schemes": [INTERLEAVED, WINDOW]}]}),
    "mpnet": ({**ENCODER, **POST}, {"schemes": [{"scheme": "learned", "max_length": 30}, "t5"]}),
}


def shaken(model: Any) -> Any:
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return model.eval()


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert theirs.std() > 0.1, "the peer's logits say nothing"
    torch.testing.assert_close(ours, theirs, atol=1e-5 * float(theirs.abs().max().clamp(min=1)), rtol=1e-5)


def make_theirs(name: str, changes: dict[str, Any] | None = None) -> Any:
    family, settings = THEIRS[name]
    kind = getattr(transformers, family)
    config = kind.config_class(**{**SIZES, **copy.deepcopy(settings), **(changes or {})})
    return shaken(kind(config.text_config if hasattr(config, "text_config") else config))


def make_ours(body: dict[str, Any], position: dict[str, Any]) -> Any:
    table = {**BODY, **body}
    config = TransformerConfig.from_dict({**table, table["kind"]: position})
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    kind: Any = ClockhandsForCausalLM if config.architecture == "decoder" else ClockhandsForMaskedLM
    return shaken(kind(ClockhandsConfig(transformer=config, **ids)))


@pytest.mark.parametrize(("name", "changes"), [*((name, {}) for name in [*DECODERS, *ENCODERS]), *FURTHER])
@torch.no_grad()
def test_from_transformers_and_back_everything_is_the_same(name: str, changes: dict[str, Any]) -> None:
    theirs, text = make_theirs(name, changes), words(2, LENGTH)
    ours = copy_from_transformers(theirs)
    close(ours(input_ids=text).logits, theirs(input_ids=text).logits)
    again = copy_to_transformers(ours, name)
    assert type(again) is type(theirs)
    for key, tensor in theirs.state_dict().items():
        if name == "gemma3_text" and "norm" in key:  # 1 is added to the gains and taken away again
            torch.testing.assert_close(again.state_dict()[key], tensor, rtol=0, atol=1e-6)
        elif key == "mpnet.embeddings.position_embeddings.weight":  # the first rows stand for no position
            assert torch.equal(again.state_dict()[key][2:], tensor[2:])
        else:
            assert torch.equal(again.state_dict()[key], tensor), key
    left_out = {"architectures", "max_position_embeddings", "dtype", "initializer_range", "rope_parameters"}
    # Of experts, which there may not be, and of what only training reads.
    left_out |= {"intermediate_size"} if name == "llama4_text" and not theirs.config.moe_layers else set()
    left_out |= {"classifier_bias"} if name == "modernbert" else set()
    left_out |= {"first_k_dense_replace", *EXPERT_KEYS} if changes.get("first_k_dense_replace") == 4 else set()
    left_out |= EXPERT_KEYS if name == "llama4_text" and not theirs.config.moe_layers else set()
    # Keys of SIZES that encoders do not have.
    left_out |= {"num_key_value_heads"} if name in ENCODERS else set()
    before, after = (model.config.to_dict() for model in (theirs, again))
    assert {key: after.get(key) for key in before if key not in left_out} == {
        key: value for key, value in before.items() if key not in left_out
    }
    close(again(input_ids=text).logits, theirs(input_ids=text).logits)


@pytest.mark.parametrize(("name", "changes"), WITHOUT)
@torch.no_grad()
def test_what_is_copied_acts_in_both_models(name: str, changes: dict[str, Any]) -> None:
    """A key that transformers ignores would be ignored on both sides, and the logits would agree all the same."""
    text = words(2, LENGTH)
    complete, without = (make_theirs(name, settings) for settings in ({}, changes))
    without.load_state_dict(complete.state_dict())
    theirs = [model(input_ids=text).logits for model in (complete, without)]
    ours = [copy_from_transformers(model)(input_ids=text).logits for model in (complete, without)]
    for with_it, without_it in (theirs, ours):
        assert (with_it - without_it).abs().max() > 1e-3


@pytest.mark.parametrize("name", [*DECODERS, *ENCODERS])
@torch.no_grad()
def test_a_model_of_our_own_has_its_logits_in_transformers(name: str) -> None:
    """Channels that are paired otherwise, and two norms where Cohere's has one, are worked into the matrices."""
    ours, text = make_ours(*OURS[name]), words(2, LENGTH)
    before = {key: tensor.clone() for key, tensor in ours.state_dict().items()}
    theirs = copy_to_transformers(ours, name, 48)
    assert name == "mpnet" or theirs.config.max_position_embeddings == 48, "MPNet's is the length of its table"
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
        ("llama", {}, {"scheme": "rope", "values": True}, ["layer 0 has rope (values True), and would"]),
        ("smollm3", {}, {"schemes": ["rope", "sinks"]}, ["layer 0 has rope + sinks, and would be read as rope"]),
        ("modernbert", {**OURS["modernbert"][0], "causal_encoder": True}, OURS["modernbert"][1],
         ["1 fault:", "causal_encoder is True, and modernbert has False"]),
        ("mpnet", {**OURS["mpnet"][0], "causal_encoder": True}, OURS["mpnet"][1],
         ["1 fault:", "causal_encoder is True, and mpnet has False"]),
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
    theirs = transformers.PhiForCausalLM(transformers.PhiConfig(**SIZES))
    with pytest.raises(UsageError, match=r"unknown architecture 'phi'.*llama, llama4_text, mistral"):
        copy_from_transformers(theirs)
    with pytest.raises(UsageError, match=r"weights of qwen3_next are not copied: .* delta nets.*; those of llama, mis"):
        copy_to_transformers(make_ours({}, {"scheme": "rope"}), "qwen3_next")
    with pytest.raises(ConfigError, match=r"kind is 'decoder', and modernbert has 'encoder'"):
        copy_to_transformers(make_ours({}, {"scheme": "rope"}), "modernbert")


def test_every_architecture_whose_layout_is_written_has_weights_or_a_reason() -> None:
    assert {*DECODERS, *ENCODERS, *REFUSED} == set(ARCHITECTURES)


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        ("llama4_text", {"use_qk_norm": True}, "use_qk_norm is True, for which our layers have no option"),
        ("gpt_oss", {"swiglu_limit": 9.0}, "swiglu_limit is 9.0"),
        ("deepseek_v3", {"norm_topk_prob": False}, "norm_topk_prob is False"),
        ("modernbert", {"classifier_activation": "relu"}, "classifier_activation is 'relu'"),
        ("gemma3_text", {"final_logit_softcapping": 30.0}, "final_logit_softcapping is 30.0"),
        ("stablelm", {"use_parallel_residual": True}, "use_parallel_residual is True"),
    ],
)
def test_what_our_layers_have_no_option_for_is_refused(name: str, settings: dict[str, Any], reason: str) -> None:
    theirs = make_theirs(name, settings)
    with pytest.raises(ConfigError, match=reason):
        copy_from_transformers(theirs)


@pytest.mark.parametrize("name", ["gemma3_text", "olmo3", "deepseek_v3", "gpt_oss"])
@torch.no_grad()
def test_what_is_copied_writes_token_by_token_as_all_at_once(name: str) -> None:
    ours, text = copy_from_transformers(make_theirs(name)), words(2, LENGTH)
    cached = ours(input_ids=text[:, :-3], use_cache=True)
    steps = [cached.logits[:, -1:]]
    for place in range(LENGTH - 3, LENGTH):
        cached = ours(input_ids=text[:, place : place + 1], past_key_values=cached.past_key_values, use_cache=True)
        steps.append(cached.logits)
    close(torch.cat(steps, dim=1), ours(input_ids=text).logits[:, -4:])


@torch.no_grad()
@pytest.mark.parametrize("changes", [{}, {"n_inner": 40, "activation_function": "relu", "tie_word_embeddings": False}])
def test_gpt2_is_read_and_not_written(changes: dict[str, Any]) -> None:
    sizes = {"n_embd": 24, "n_head": 3, "n_layer": 2, "n_positions": 32, "vocab_size": 50}
    theirs = shaken(transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **changes)))
    ours = copy_from_transformers(theirs)
    text = torch.randint(50, (2, 32))
    close(ours(input_ids=text).logits, theirs(input_ids=text).logits)
    with pytest.raises(UsageError, match="gpt2"):
        copy_to_transformers(ours, "gpt2")
