"""Mistral's params.json, Megatron's arguments."""

from __future__ import annotations

from typing import Any

import pytest

from clockhands.errors import CheckpointError, ConfigError, UsageError
from clockhands.explanation import compare, convert
from clockhands.explanation.huggingface import read_huggingface
from clockhands.explanation.other_files import read_megatron, read_params

PARAMS: dict[str, Any] = {
    "dim": 4096, "n_layers": 4, "head_dim": 128, "n_heads": 32, "rope_theta": 1e6, "max_position_embeddings": 262144,
    "yarn": {"factor": 16.0, "original_max_position_embeddings": 16384, "apply_scale": False},
}  # fmt: skip
"""beta is 32 and alpha 1 where they are not said, as in transformers (Peng et al. 2023, section 3.2)."""
MINISTRAL: dict[str, Any] = {
    "model_type": "ministral3", "head_dim": 128, "num_hidden_layers": 4, "max_position_embeddings": 262144,
    "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                        "original_max_position_embeddings": 16384},
}  # fmt: skip


def test_mistrals_file_and_its_conversion_mean_the_same() -> None:
    assert compare(read_params(PARAMS, "params.json"), read_huggingface(MINISTRAL, "config.json")) is None


def test_apply_scale_turns_the_amplitude_on() -> None:
    raw = {**PARAMS, "yarn": {**PARAMS["yarn"], "apply_scale": True}}
    difference = compare(read_params(raw, "params.json"), read_huggingface(MINISTRAL, "config.json"))
    assert difference is not None
    assert [cause[0] for cause in difference.causes] == ["amplitude"]


def test_mistrals_windows_may_alternate() -> None:
    layers = read_params({**PARAMS, "sliding_window": [None, 4096]}, "params.json").layers
    assert [layer.window for layer in layers] == [None, 4096, None, 4096]
    assert [layer.kind for layer in layers] == ["full_attention", "sliding_attention"] * 2
    assert read_params({**PARAMS, "_sliding_window": 4096}, "params.json").layers[0].window == 4096


OLD: dict[str, Any] = {"dim": 4096, "n_layers": 2, "n_heads": 32, "multiple_of": 256}
BASES: dict[str, tuple[dict[str, Any], float]] = {
    "Llama 1": (OLD, 1e4), "Llama 3.1": ({**OLD, "use_scaled_rope": True}, 5e5),
    "Llama 3": ({**OLD, "use_scaled_rope": False}, 5e5), "Code Llama": ({**OLD, "rope_theta": 1e6}, 1e6),
    "ExecuTorch": ({**OLD, "use_hf_rope": True}, 1e4), "ExecuTorch's own name": ({**OLD, "rope_freq_base": 7e5}, 7e5),
    "Mixtral": ({"dim": 4096, "n_layers": 2, "n_heads": 32, "head_dim": 128, "moe": {"num_experts": 8}}, 1e6),
    "Mistral 7B": ({"dim": 4096, "n_layers": 2, "n_heads": 32, "head_dim": 128, "sliding_window": 4096}, 1e4),
}  # fmt: skip
"""Published files, and the base by the code of each: ModelArgs of llama, llama-models, ExecuTorch; TransformerArgs."""


@pytest.mark.parametrize("name", BASES)
def test_a_base_that_is_not_in_the_file_is_that_of_its_own_code(name: str) -> None:
    raw, base = BASES[name]
    assert [rotation.base for rotation in read_params(raw, "params.json").rotations()] == [base]


def test_mistrals_latent_attention_rotates_its_slice_and_scales_the_whole() -> None:
    large = {**PARAMS, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "kv_lora_rank": 512}
    positions = read_params({**large, "yarn": {**PARAMS["yarn"], "apply_scale": True}}, "params.json")
    rotation = positions.rotations()[0]
    assert rotation.channels == 64 and not positions.strange
    # vLLM multiplies the scale of all logits by the square of 0.1 ln(16) + 1, and cosines by 1.
    assert (rotation.amplitude, rotation.logit_factor) == (1.0, pytest.approx(1.277258872**2))
    layers = read_params({"dim": 64, "n_layers": 3, "model_type": "mamba", "n_groups": 8}, "params.json").layers
    assert not any(layer.attends for layer in layers)


EXECUTORCH: dict[str, Any] = {"dim": 3072, "n_heads": 24, "n_layers": 3, "rope_theta": 1e4, "use_hf_rope": True}


def test_executorchs_kinds_of_layers_are_read() -> None:
    kinds = {"layer_types": ["conv", "sliding_attention", "full_attention"], "sliding_window": 512}
    positions = read_params({**EXECUTORCH, **kinds, "local_rope_theta": 5e3}, "params.json")
    assert [layer.attends for layer in positions.layers] == [False, True, True]
    assert [layer.window for layer in positions.layers] == [None, 512, None] and not positions.strange
    assert [rotation.base for rotation in positions.rotations()] == [5e3, 1e4] and "Qualcomm" in positions.notes[0]


def test_executorchs_longrope_equals_its_conversion() -> None:
    short, long = [1.0] * 48, [1.0 + pair for pair in range(48)]
    lengths = {"original_max_position_embeddings": 4096, "max_position_embeddings": 131072}
    phi4 = {**EXECUTORCH, **lengths, "partial_rotary_factor": 0.75, "rope_scaling_short_factor": short,
            "rope_scaling_long_factor": long}  # fmt: skip
    rule = {"rope_type": "longrope", "short_factor": short, "long_factor": long}
    raw = {"model_type": "phi3", "hidden_size": 3072, "num_attention_heads": 24, "num_hidden_layers": 3, **lengths,
           "partial_rotary_factor": 0.75, "rope_scaling": rule, "sliding_window": None}  # fmt: skip
    assert compare(read_params(phi4, "params.json"), read_huggingface(raw, "f")) is None
    # Its other kind of rotation reads none of that, so a list that is none is no fault there.
    plain = read_params({**phi4, "use_hf_rope": False, "rope_scaling_long_factor": "long"}, "params.json")
    assert plain.rotations()[0].rule == "default" and len(plain.unread) == 3


MEGATRON = "--num-layers 2 --hidden-size 512 --num-attention-heads 8 --position-embedding-type rope"


@pytest.mark.parametrize(
    ("more", "config"),
    [
        ("", {}),
        ("--rotary-base 500000", {"rope_theta": 5e5}),
        ("--rotary-seq-len-interpolation-factor 4", {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
        ("--use-rope-scaling --rotary-base 500000",
         {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                              "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}}),
        ("--kv-channels 128", {"head_dim": 128}),
    ],
)  # fmt: skip
def test_megatrons_arguments_equal_the_configuration(more: str, config: dict[str, Any]) -> None:
    raw = {"model_type": "llama", "hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 2,
           "max_position_embeddings": 131072}  # fmt: skip
    assert compare(read_megatron(f"{MEGATRON} {more}", "a.sh"), read_huggingface({**raw, **config}, "f")) is None


WRITTEN = {
    "what a training prints": """
  hidden_size ..................................... 512
  num_attention_heads ............................. 8
  num_layers ...................................... 2
  position_embedding_type ......................... rope
  rotary_base ..................................... 500000
  rotary_percent .................................. 0.5
  window_size ..................................... None
  loss_scale_window ............................... 1000
""",
    "YAML, as keys and as flags": """
MODEL_ARGS:
  --num-layers: 2
  --use-rotary-position-embeddings: true
  hidden_size: 512
  num_attention_heads: 8
  rotary_interleaved: False  # halves
  --rotary-base: 500000
  rotary_percent: '0.5'
""",
    "a script": """
export LAYERS=${LAYERS:-2}
BASE="500000"
ARGS=" \\
  --num-layers $LAYERS --hidden-size ${HIDDEN:-512} --num-attention-heads 8 \\
  --position-embedding-type rope --rotary-percent 0.5"
torchrun pretrain_gpt.py $ARGS --rotary-base ${BASE} --no-rope-fusion
""",
}


@pytest.mark.parametrize("form", WRITTEN)
def test_megatrons_arguments_are_read_in_every_form(form: str) -> None:
    expected = read_megatron(f"{MEGATRON} --rotary-base 500000 --rotary-percent 0.5", "a.sh")
    positions = read_megatron(WRITTEN[form], "a")
    assert compare(expected, positions) is None and positions.rotations()[0].channels == 32
    assert not positions.strange


def test_megatrons_classes_read_what_each_reads() -> None:
    """By RotaryEmbedding, YarnRotaryEmbedding and MLASelfAttention of Megatron-LM."""
    yarn = f"{MEGATRON.replace('rope', 'yarn')} --rotary-percent 0.5 --rotary-scaling-factor 4"
    rotation = read_megatron(f"{yarn} --no-yarn-correction-range-round-to-int", "a").rotations()[0]
    assert (rotation.channels, rotation.factor, rotation.truncate) == (64, 4.0, False)
    assert read_megatron(yarn.rpartition(" --rotary-s")[0], "a").rotations()[0].rule == "default"  # its factor is 1
    latent = f"{MEGATRON} --multi-latent-attention --use-rope-scaling --rope-type rope --rotary-percent 0.5"
    rotation = read_megatron(latent, "a").rotations()[0]
    assert (rotation.rule, rotation.channels, rotation.head_dim) == ("default", 32, 64)
    assert read_megatron(f"{MEGATRON} --rotary-percent 1.5", "a").rotations()[0].channels == 64
    assert read_megatron(f"{MEGATRON} --window-size '(-1,-1)'", "a").layers[0].window is None
    told = read_megatron(f"{MEGATRON} --use-rope-scaling --rope-scaling-factor 32", "a")
    assert told.rotations()[0].factor == 32 and "--rope-scaling-factor" in told.notes[0]


def test_megatron_without_rotation_has_a_table() -> None:
    positions = read_megatron(
        "--num-layers 2 --hidden-size 512 --num-attention-heads 8 --max-position-embeddings 1024", "a"
    )
    assert "learned table of 1024 rows" in positions.entry
    assert positions.rotations() == []


def test_a_text_without_sizes_is_no_training() -> None:
    with pytest.raises(CheckpointError, match="--num-layers"):
        read_megatron("hello world", "a.txt")
    with pytest.raises(UsageError, match="invalid int"):
        read_megatron("--num-layers many", "a.txt")


META: dict[str, Any] = {"dim": 4096, "n_layers": 2, "n_heads": 32, "multiple_of": 1024, "ffn_dim_multiplier": 1.3}


def test_metas_llama_3_1_equals_its_conversion() -> None:
    raw = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 2,
           "rope_theta": 500000.0, "rope_scaling": {
               "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 8192}}  # fmt: skip
    params = read_params({**META, "rope_theta": 500000.0, "use_scaled_rope": True}, "params.json")
    assert params.program == "Meta" and compare(params, read_huggingface(raw, "f")) is None


def test_metas_llama_4_has_layers_without_rotation_and_chunks() -> None:
    fourth = {**META, "n_layers": 4, "rope_theta": 5e5, "use_scaled_rope": True, "nope_layer_interval": 4,
              "attention_chunk_size": 8192, "attn_temperature_tuning": True}  # fmt: skip
    layers = read_params(fourth, "params.json").layers
    assert [layer.chunk for layer in layers] == [8192] * 3 + [None]
    first = layers[0].rotation
    assert first is not None and (first.factor, first.high_frequency_factor) == (16.0, 1.0)
    assert layers[3].rotation is None and "0.1 ln(1 + ⌊(p + 1)/8192⌋)" in layers[3].temperature


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ({**PARAMS, "yarn": 5}, "sets yarn = 5, which is not a table"),
        ({**PARAMS, "llama_4_scaling": 5}, "sets llama_4_scaling = 5, which is not a table"),
        ({**PARAMS, "sliding_window": [[1]]}, "sliding_window"),
        ({**PARAMS, "sliding_window": -5}, "sliding_window = -5; it must be at least 1"),
        ({**PARAMS, "rope_theta": 10**400}, "not a finite number"),
        ({**PARAMS, "rope_theta": True}, "rope_theta = True"),
        ({**PARAMS, "n_layers": 0}, "n_layers = 0; it must be at least 1"),
        ({**EXECUTORCH, "rope_scaling_long_factor": True}, "long_factor = True, which is not a list of numbers"),
        ({**EXECUTORCH, "partial_rotary_factor": 1e308}, "channels rotate; a head has"),
        ({**META, "n_heads": 1.5}, "n_heads = 1.5; it must be a whole number"),
        ({**META, "dim": None}, "has no dim"),
    ],
)
def test_values_that_no_model_has_are_refused(raw: dict[str, Any], told: str) -> None:
    with pytest.raises(CheckpointError, match=told):
        read_params(raw, "params.json")


def test_megatrons_layers_without_rotation_and_windows() -> None:
    text = MEGATRON.replace("--num-layers 2", "--num-layers 4")
    for flag in ("--no-rope-freq 4", "--no-rope-freq '([0]*3+[1])*1'"):
        layers = read_megatron(f"{text} {flag}", "a").layers
        assert [layer.rotation is None for layer in layers] == [False, False, False, True]
    windows = read_megatron(f"{text} --window-size 127,0 --window-attn-skip-freq 2", "a").layers
    assert [layer.window for layer in windows] == [128, None, 128, None]
    assert [layer.window for layer in read_megatron(f"{text} --window-size '(127, 0)'", "a").layers] == [128] * 4
    strange = read_megatron(f"{text} --mrope-section 8 12 12 --bf16", "a").strange
    assert strange == (("--mrope-section", "set"),)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ("--rotary-base 0", "base 0"),  # not the default of 10,000, and not credited to the flag
        ("--rotary-percent 0", "0 channels rotate"),
        ("--rotary-base 1e999", "not a finite number"),
        ("--no-rope-freq '[1]'", "no list of 2 layers"),
        ("--no-rope-freq '[0]*10**9'", "no list of 2 layers"),
        ("--window-size x", "no pair"),
        ("--rotary-interleaved --multi-latent-attention", "leave it out"),
        ("--use-rope-scaling --rotary-seq-len-interpolation-factor 2", "one after the other"),
        ("--kv-channels -4", "--kv-channels = -4; it must be at least 1"),
    ],
)
def test_megatrons_values_that_mean_nothing_are_refused(flags: str, told: str) -> None:
    with pytest.raises(CheckpointError, match=told):
        read_megatron(f"{MEGATRON} {flags}", "a.sh")


def test_a_quote_that_is_not_closed_is_told() -> None:
    with pytest.raises(UsageError, match="no closing quotation"):
        read_megatron(f"{MEGATRON} --data 'x", "a.sh")


def test_what_is_not_in_a_file_is_not_said_to_come_from_there() -> None:
    megatron = read_megatron(f"{MEGATRON} --use-rope-scaling", "a").rotations()[0]
    meta = read_params({**META, "use_scaled_rope": True}, "params.json").rotations()[0]
    assert [megatron.origin[name] for name in ("base", "channels", "factor")] == ["default of Megatron"] * 3
    assert (meta.origin["factor"], meta.origin["channels"]) == ("Meta's code", "all of the head")


def test_deepseeks_own_file_is_the_same_as_the_hubs() -> None:
    """``inference/configs/config_671B.json``, whose YaRN stands in the code alone; it was read as Mistral's."""
    own = {"dim": 7168, "inter_dim": 18432, "n_layers": 3, "n_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512,
           "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}  # fmt: skip
    rule = {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1,
            "mscale": 1.0, "mscale_all_dim": 1.0}  # fmt: skip
    hub = {"model_type": "deepseek_v3", "num_hidden_layers": 3, "rope_theta": 10000, "rope_scaling": rule}
    read = read_params(own, "f")
    assert (read.program, compare(read, read_huggingface(hub, "f"))) == ("DeepSeek", None)
    assert compare(read_params({**own, "rope_factor": 20}, "f"), read_huggingface(hub, "f")) is not None
    with pytest.raises(ConfigError, match=r"logits are multiplied by 1\.874"):
        convert(read, "hf5")


def test_a_number_switches_metas_temperature_on() -> None:
    raw = {"dim": 5120, "n_layers": 4, "n_heads": 40, "nope_layer_interval": 4, "attn_temperature_tuning": 4}
    assert "ln" in read_params(raw, "f").layers[3].temperature
    assert not read_params({**raw, "attn_temperature_tuning": 0}, "f").layers[3].temperature


def test_nemos_yaml_refers_to_its_own_keys_and_its_rule_is_listed() -> None:
    text = "model:\n  encoder_seq_length: 4096\n  max_position_embeddings: ${.encoder_seq_length}\n  num_layers: 2\n" \
           "  hidden_size: 64\n  num_attention_heads: 4\n  position_embedding_type: rope\n  old_context_len: 8192\n" \
           "  low_freq_factor: 1.0\n"  # fmt: skip
    positions = read_megatron(text, "f")
    assert positions.claimed_length == 4096
    assert positions.strange == (("--low-freq-factor", "set"), ("--old-context-len", "set"))
