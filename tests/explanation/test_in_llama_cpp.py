"""What is read of a GGUF file is what llama.cpp does: it runs the file, beside transformers turned as was read.

The oracle is llama.cpp itself. ``rope_types.json`` keeps what ``llama_model_rope_type`` of llama-cpp-python 0.3.36 says
of every architecture (-1 none, 0 NORM, 2 NEOX, 8 and 40 with sections), for where it is not installed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from clockhands.checking.models.tiny import make_position_audible
from clockhands.explanation import compare, convert
from clockhands.explanation.huggingface import read_huggingface
from clockhands.explanation.llama_cpp import load_llama_facts, read_gguf, read_settings
from clockhands.explanation.table import Layer, Positions
from tests.checking.runtimes.ggufs import write_model

LAYERS, TOKENS, CONTEXT = 8, 100, 1024
SIZES = {"vocab_size": 120, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": LAYERS, "head_dim": 32,
         "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 512, "bos_token_id": 1,
         "eos_token_id": 2, "pad_token_id": 0}  # fmt: skip
FULL = {"layer_types": ["full_attention"] * LAYERS, "sliding_window": 10**6}
OF: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}), "qwen2": ("qwen2", {}), "qwen3": ("qwen3", {}), "mistral3": ("llama", {}),
    "arcee": ("arcee", {}), "ernie4_5": ("ernie4_5", {}), "phi3": ("phi3", {"sliding_window": None}),
    "smollm3": ("smollm3", {"no_rope_layers": [1] * LAYERS}), "olmo2": ("olmo3", FULL),
    "exaone4": ("exaone4", {**FULL, "sliding_window": None}),
    "cohere2": ("cohere2", {**FULL, "layer_types": ["sliding_attention"] * LAYERS}),
    "gemma2": ("gemma2", {**FULL, "query_pre_attn_scalar": 32}),
    "gemma3": ("gemma3_text", {**FULL, "query_pre_attn_scalar": 32}),
}  # fmt: skip
"""By an architecture of llama.cpp, one of transformers whose every layer rotates, and sees everything."""
TOLERANCE = {"gemma2": 0.02, "gemma3": 0.02}
"""Of deviations of logits, in standard deviations: llama.cpp takes GELU from a table in float16. Else 2e-4."""


def make(name: str, **changes: Any) -> Any:
    model_type, more = OF[name]
    torch.manual_seed(0)
    config = CONFIG_MAPPING[model_type](**{**SIZES, **more, **changes})
    return make_position_audible(AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval(), 0)


def turn(layer: Layer, cos: Tensor, interleaved: bool) -> tuple[Tensor, Tensor]:
    """Cosines and sines [1, S, K] of a layer that was read, in the layout of a module of transformers."""
    if layer.rotation is None:
        return torch.ones_like(cos), torch.zeros_like(cos)
    frequencies = torch.tensor(layer.rotation.frequencies(CONTEXT), dtype=torch.float64)
    angles = torch.arange(cos.shape[1])[:, None] * frequencies
    angles = angles.repeat_interleave(2, -1) if interleaved else angles.repeat(1, 2)
    return tuple((turned * layer.rotation.amplitude).float()[None] for turned in (angles.cos(), angles.sin()))  # type: ignore[return-value]


def run_as_read(model: Any, positions: Positions, ids: Tensor, interleaved: bool) -> Tensor:
    """Logits of transformers' model, each layer of which rotates and sees as was read."""

    def wrap(forward: Any, layer: Layer) -> Any:
        def attend(hidden_states: Tensor, position_embeddings: Any, attention_mask: Any = None, **rest: Any) -> Any:
            place = torch.arange(hidden_states.shape[1])
            seen = (place[:, None] >= place) & (place[:, None] - place < (layer.window or CONTEXT))
            mask = torch.where(seen, 0.0, -1e30)[None, None]
            turned = turn(layer, position_embeddings[0], interleaved)
            return forward(hidden_states=hidden_states, position_embeddings=turned, attention_mask=mask, **rest)

        return attend

    for part, layer in zip(model.model.layers, positions.layers, strict=True):
        part.self_attn.scaling *= layer.rotation.logit_factor if layer.rotation else 1.0
        part.self_attn.forward = wrap(part.self_attn.forward, layer)
    with torch.no_grad():
        return model(ids).logits


def run_in_llama_cpp(path: Path, ids: Tensor) -> Tensor:
    from clockhands.checking.runtimes.llama_cpp import LlamaCpp

    return LlamaCpp(str(path)).logits(ids)


def deviation(first: Tensor, second: Tensor) -> float:
    return float((first - second).abs().max() / second.std())


IDS = torch.randint(3, 120, (1, TOKENS), generator=torch.Generator().manual_seed(1))
YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 16.0, "rope.scaling.original_context_length": 64}
LINEAR = {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0}
WINDOW = {"attention.sliding_window": 16}
SOME = np.linspace(1, 4, 16)
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {}, "base": {"rope.freq_base": 5e5}, "linear": LINEAR, "yarn": YARN,
    "type none": {**LINEAR, "rope.scaling.type": "none"}, "a factor alone": {"rope.scaling.factor": 4.0},
    "amplitude": {**YARN, "rope.scaling.attn_factor": 1.3},
    "linear, amplitude": {**LINEAR, "rope.scaling.attn_factor": 1.3},
    "keys of others": {**YARN, "rope.scaling.yarn_ext_factor": 0.5, "rope.scaling.yarn_beta_fast": 8.0},
    "window": WINDOW, "window, linear": {**WINDOW, **LINEAR},
    "window, yarn": {**WINDOW, **YARN, "rope.freq_base_swa": 777.0},
    "a list of windows": {**WINDOW, "attention.sliding_window_pattern": [True, True, False, True] * 2},
    "every third": {**WINDOW, "attention.sliding_window_pattern": 3},
}  # fmt: skip
OTHERS = {
    ("llama", "factors"): {"rope_freqs.weight": SOME},
    ("llama", "factors, yarn"): {**YARN, "rope_freqs.weight": SOME},
    ("exaone4", "factors, yarn"): {**YARN, "rope_freqs.weight": SOME},
    ("mistral3", "mscale_all_dim"): {**YARN, "rope.scaling.yarn_log_multiplier": 0.7,
                                     "rope.scaling.yarn_beta_fast": 16.0},
    ("phi3", "short"): {"rope.scaling.attn_factor": 1.19, "rope.scaling.original_context_length": 2048,
                        "rope_factors_short.weight": SOME, "rope_factors_long.weight": SOME * 3},
    ("phi3", "long"): {"rope.scaling.attn_factor": 1.19, "rope.scaling.original_context_length": 64,
                       "rope_factors_short.weight": SOME, "rope_factors_long.weight": SOME * 3},
}  # fmt: skip
CASES = {(name, what): entries for name in OF for what, entries in SETTINGS.items()} | OTHERS


@pytest.mark.parametrize(("name", "what"), CASES)
def test_a_file_does_in_llama_cpp_what_was_read(name: str, what: str, tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason="needs llama-cpp-python: pip install '.[engines]'")
    entries = dict(CASES[name, what])
    if name == "cohere2":
        entries = {**WINDOW, **entries}  # which it cannot do without
    model = make(name)
    path = write_model(model, tmp_path / "a.gguf", name, entries)
    theirs = run_in_llama_cpp(path, IDS)
    ours = run_as_read(model, read_gguf(path), IDS, interleaved=name == "cohere2")
    assert deviation(theirs, ours) < TOLERANCE.get(name, 2e-4)


RAW: dict[str, tuple[str, dict[str, Any]]] = {
    "linear": ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}}),
    "yarn": ("qwen3", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0,
                                           "original_max_position_embeddings": 64}}),
    "yarn, attention_factor": ("qwen2", {"rope_parameters": {
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 64,
        "attention_factor": 1.1}}),
    "without rotation": ("smollm3", {"no_rope_layers": [1, 1, 1, 0] * 2}),
    "two rotations": ("gemma3", {
        "sliding_window": 16, "layer_types": ["sliding_attention"] * 5 + ["full_attention"] + ["sliding_attention"] * 2,
        "rope_parameters": {"full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
                            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}),
    "windows": ("olmo2", {"sliding_window": 16, "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 2,
                          "rope_parameters": {
        "full_attention": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0,
                           "original_max_position_embeddings": 64},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}),
}  # fmt: skip


@pytest.mark.parametrize("what", RAW)
def test_keys_written_for_gguf_do_in_llama_cpp_what_transformers_does(what: str, tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason="needs llama-cpp-python: pip install '.[engines]'")
    name, changes = RAW[what]
    model = make(name, **changes)
    lines = convert(read_huggingface(model.config.to_dict(), "f"), "gguf").splitlines()
    written = dict(line.removeprefix(f"{name}.").split(" = ") for line in lines)
    entries = {key: _parse(key, value) for key, value in written.items() if key != "context_length"}
    theirs = run_in_llama_cpp(write_model(model, tmp_path / "a.gguf", name, entries), IDS)
    with torch.no_grad():
        assert deviation(theirs, model(IDS).logits) < TOLERANCE.get(name, 2e-4)


def _parse(key: str, value: str) -> Any:
    """The value of a printed line, of the type that llama.cpp asks for."""
    if key == "rope.scaling.type":
        return value
    read = json.loads(value)
    return float(read) if key.startswith(("rope.freq", "rope.scaling")) and "length" not in key else read


def test_every_architecture_pairs_channels_as_llama_cpp_says() -> None:
    known = json.loads((Path(__file__).parent / "rope_types.json").read_text("utf8"))
    facts = load_llama_facts()
    assert set(facts["architectures"]) == set(known)
    # Two that pair channels by their type, and add a learned table in their code.
    assert {name for name, kind in known.items() if kind == -1} == set(facts["unrotated"]) - {"starcoder", "bert"}
    assert {name for name, kind in known.items() if kind in (2, 8, 40)} == set(facts["halves"])


@pytest.mark.parametrize(
    ("name", "entries", "told"),
    [
        ("gpt2", {}, "no rotation that llama.cpp has for 'gpt2': a learned table"),
        ("bloom", {}, "ALiBi"),
        ("baichuan", {"block_count": 40}, "ALiBi"),
        ("granite", {"rope.scaling.finetuned": False}, "rope.scaling.finetuned is false"),
    ],
)
def test_what_llama_cpp_does_not_rotate(name: str, entries: dict[str, Any], told: str) -> None:
    settings = {"block_count": 2, "attention.key_length": 64, "rope.dimension_count": 64, **entries}
    read = read_settings({"general.architecture": name, **{f"{name}.{key}": v for key, v in settings.items()}}, {}, "f")
    assert told in read.entry and all(layer.rotation is None for layer in read.layers)


def read(name: str, **entries: Any) -> Positions:
    """A file of four layers as llama.cpp reads it; keys with __ for each dot."""
    plain = {"block_count": 4, "attention.key_length": 64}
    named = plain | {key.replace("__", "."): value for key, value in entries.items()}
    return read_settings({"general.architecture": name, **{f"{name}.{key}": v for key, v in named.items()}}, {}, "f")


def test_what_the_converter_writes_for_some_architectures_is_read() -> None:
    """Met with the files that ``convert_hf_to_gguf.py`` of that version makes of 110 configurations of transformers."""
    listed = read("granite_swa", attention__sliding_window=128, attention__sliding_window_pattern=[True, False] * 2)
    assert [layer.window for layer in listed.layers] == [128, None] * 2
    lfm2 = read("lfm2", attention__head_count_kv=[0, 0, 8, 0])
    assert [layer.attends for layer in lfm2.layers] == [False, False, True, False]
    config = {"model_type": "lfm2", "hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 4,
              "full_attn_idxs": [2], "rope_theta": 1e4}  # fmt: skip
    assert compare(lfm2, read_huggingface(config, "f")) is None
    assert convert(read_huggingface(config, "f"), "gguf").count("head_count") == 0
    for name in ("qwen3next", "qwen35", "qwen35moe", "qwen4exp"):  # ``load_arch_hparams`` of each
        assert [layer.attends for layer in read(name).layers] == [False] * 3 + [True]
        assert [layer.attends for layer in read(name, full_attention_interval=2).layers] == [False, True] * 2
        named = read(name, attention__recurrent_layers=[False, True, True, False], full_attention_interval=2)
        assert [layer.attends for layer in named.layers] == [True, False, False, True]
    assert [layer.attends for layer in read("minimax-01", block_count=8).layers] == [False] * 7 + [True]
    config = {"model_type": "qwen3_5_text", "num_hidden_layers": 4,
              "layer_types": ["full_attention", "linear_attention"] * 2}  # fmt: skip
    assert "qwen35.attention.recurrent_layers = [false, true, false, true]" in convert(
        read_huggingface(config, "f"), "gguf"
    )
    assert len(read("glm4moe", nextn_predict_layers=1).layers) == 3
    assert "recurrence" in read("mamba", attention__head_count=0).entry
    table = read_huggingface({"model_type": "gpt_bigcode", "num_hidden_layers": 4}, "f")
    assert compare(table, read("starcoder")) is None
    assert compare(table, read("starcoder2")) is not None
    at_rest = read_settings(
        {"general.architecture": "gemma4", "gemma4.attention.key_length": 8, "gemma4.rope.freq_base": 1e6},
        {"rope_freqs.weight": (1.0, 1e30, 1e30, 1e30)}, "f")  # fmt: skip
    raw = {"model_type": "gemma4_text", "num_hidden_layers": 1, "layer_types": ["full_attention"],
           "global_head_dim": 8, "rope_parameters": {"full_attention": {
               "rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25}}}  # fmt: skip
    assert compare(read_huggingface(raw, "f"), at_rest) is None


def test_windows_that_llama_cpp_does_not_have_are_told() -> None:
    """Mistral 7B is converted to the architecture llama, which has no windows."""
    window = {"llama.attention.sliding_window": 4096, "llama.attention.key_length": 64}
    read = read_settings({"general.architecture": "llama", **window}, {}, "f")
    assert read.layers[0].window is None and read.unread == ("attention.sliding_window",)
    ours = read_huggingface({"model_type": "mistral", "head_dim": 64, "sliding_window": 4096}, "f")
    with pytest.raises(Exception, match=r"no keys of llama\.cpp's llama mean these positions .*4,096 tokens of window"):
        convert(ours, "gguf")


def test_the_writer_of_these_tests_knows_the_architectures() -> None:
    assert set(OF) <= set(gguf.MODEL_ARCH_NAMES.values()) & set(load_llama_facts()["architectures"])
