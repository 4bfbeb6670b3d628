"""What is written for another program means the same when that program reads it."""

from __future__ import annotations

import copy
import json
import re
import shlex
from pathlib import Path
from typing import Any

import gguf
import pytest
from transformers import CONFIG_MAPPING

from clockhands.errors import ConfigError, UsageError
from clockhands.explanation import compare, convert, read_positions
from clockhands.explanation.filled import load_families
from clockhands.explanation.huggingface import lay_over, read_huggingface
from clockhands.explanation.huggingface_rotation import LABELS
from clockhands.explanation.llama_cpp_settings import apply_llama_flags
from tests.explanation.modules import rotary_modules
from tests.explanation.test_filled import read_by_transformers
from tests.explanation.test_llama_cpp import by_llama_cpp

BASE: dict[str, Any] = {
    "model_type": "qwen3", "head_dim": 64, "num_hidden_layers": 4, "max_position_embeddings": 32768, "rope_theta": 1e6,
}  # fmt: skip
RULES: dict[str, dict[str, Any] | None] = {
    "default": None,
    "linear": {"rope_type": "linear", "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
    "yarn": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 4096, "attention_factor": 1.1},
    "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 4096},
    "longrope": {"rope_type": "longrope", "factor": 8.0, "original_max_position_embeddings": 4096,
                 "short_factor": [1.0 + pair / 40 for pair in range(32)],
                 "long_factor": [1.0 + pair for pair in range(32)]},
    "proportional": {"rope_type": "proportional", "partial_rotary_factor": 0.25},
}  # fmt: skip
IMPOSSIBLE = {("hf4", "proportional"), ("vllm", "dynamic"), *(
    ("llama.cpp", rule) for rule in ("dynamic", "llama3", "longrope", "proportional")
)}  # fmt: skip


def positions_under(rule: str) -> Any:
    return read_huggingface({**BASE, "rope_scaling": RULES[rule]}, "f")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("form", ["hf4", "hf5", "vllm", "llama.cpp"])
def test_what_is_written_is_read_as_the_same(form: str, rule: str) -> None:
    before = positions_under(rule)
    if (form, rule) in IMPOSSIBLE:
        with pytest.raises(ConfigError):
            convert(before, form)
        return
    written = convert(before, form)
    assert compare(before, read_back(form, written)) is None


@pytest.mark.parametrize("rule", ["default", "linear", "yarn"])
def test_flags_of_vllm_for_a_model_of_pictures_go_to_the_part_that_reads_text(rule: str) -> None:
    """Beside it they would change nothing; inside of it tables are merged."""
    text = {**BASE, "model_type": "qwen3_vl_text"}
    before, after = (
        {"model_type": "qwen3_vl", "text_config": {**text, "rope_scaling": RULES[name], "rope_theta": base}}
        for name, base in (("llama3", 1e4), (rule, 1e6))
    )
    flags = shlex.split(convert(read_huggingface(after, "f", "vllm"), "vllm"))
    assert set(json.loads(flags[1])) == {"text_config"}
    made = CONFIG_MAPPING["qwen3_vl"].from_dict(copy.deepcopy(before)).to_dict()  # which vLLM lays its overrides over
    read = read_huggingface(lay_over(made, flags[1]), "f", "vllm")
    assert compare(read_huggingface(after, "f", "vllm"), read) is None


def read_back(form: str, written: str) -> Any:
    """Read what was written as the program reads it that it was written for."""
    plain = {key: value for key, value in BASE.items() if key != "rope_theta"}
    if form in ("hf4", "hf5"):
        return read_huggingface(
            {**plain, **json.loads(written)}, "f", "transformers4" if form == "hf4" else "transformers5"
        )
    if form == "vllm":
        overrides = re.search(r"--hf-overrides '(.*)' --max-model-len 32768", written)
        assert overrides is not None
        return read_huggingface({**plain, **json.loads(overrides[1])}, "f", "vllm")
    if form == "llama.cpp":
        return apply_llama_flags(read_huggingface({**BASE, "rope_theta": 10000.0}, "f"), written)
    raise AssertionError(form)


def test_kinds_of_layers_go_only_where_they_can_be_said() -> None:
    gemma = read_huggingface(
        {"model_type": "gemma3_text", "head_dim": 64, "num_hidden_layers": 6, "sliding_window": 64,
         "max_position_embeddings": 8192}, "f")  # fmt: skip
    again = {"model_type": "gemma3_text", "head_dim": 64, "num_hidden_layers": 6, "sliding_window": 64}
    assert compare(gemma, read_huggingface({**again, **json.loads(convert(gemma, "hf5"))}, "f")) is None
    assert (
        compare(gemma, read_huggingface({**again, **json.loads(convert(gemma, "hf4"))}, "f", "transformers4")) is None
    )
    with pytest.raises(ConfigError, match="one rotation for all layers"):
        convert(gemma, "vllm")
    assert "gemma3.rope.freq_base_swa = 10000" in convert(gemma, "gguf")


@pytest.mark.parametrize("name", ["smollm3", "llama4_text", "cohere2", "beam"])
def test_layers_that_do_not_rotate_are_said_where_the_architecture_says_them(name: str) -> None:
    family = CONFIG_MAPPING[name]
    before = read_huggingface(family(num_hidden_layers=8).to_dict(), "f")
    assert None in [layer.rotation for layer in before.layers]
    keys = json.loads(convert(before, "hf5"))
    again = family(num_hidden_layers=8, **keys).to_dict()
    assert compare(before, read_huggingface(again, "f")) is None
    flat = family(num_hidden_layers=8).to_dict()["rope_parameters"]
    assert set(keys["rope_parameters"]) == set(flat)


def test_layers_of_a_run_that_rotate_differently_need_an_architecture(tmp_path: Path) -> None:
    position = {"scheme": "none", "options": {}, "layers": ["rope", {"scheme": "rope", "base": 100.0}]}
    transformer = {"kind": "decoder", "d_model": 16, "num_heads": 2, "decoder_layers": 2, "decoder": position}
    for entry in ({"scheme": "rope", "base": 100.0}, "none"):
        position["layers"] = ["rope", entry]
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "clockhands", "transformer": transformer}))
        with pytest.raises(
            ConfigError, match=r"layers of one kind \(decoder\) rotate differently, .* give --to an arch"
        ):
            convert(read_positions(tmp_path), "hf5")


def test_an_unknown_format_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(BASE))
    with pytest.raises(UsageError, match="hf5"):
        convert(read_positions(tmp_path), "hf6")


REOPENED = {
    "nothing": {},
    "base": {"rope_theta": 5e5, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
    "linear": {"rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    "yarn": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}},
    "share": {"rope_parameters": {"rope_type": "default", "rope_theta": 2e4, "partial_rotary_factor": 0.5}},
    "two bases": {"rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 3e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 2e4}}},
    "a rule for full layers": {"rope_parameters": {
        "full_attention": {"rope_type": "linear", "rope_theta": 3e6, "factor": 4.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 2e4}}},
}  # fmt: skip
ALWAYS = ("gpt_neox", "modernbert", "gemma3_text", "olmo3", "glm", "stablelm", "persimmon", "minimax_m2", "qwen3",
          "deepseek_v3", "ministral3", "gpt_oss")  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in ALWAYS else pytest.mark.exhaustive) for n in sorted(load_families())]
)
def test_what_is_written_is_reopened_by_transformers_own_class_and_rotates_the_same(name: str) -> None:
    written = 0
    for variant, changes in REOPENED.items():
        raw = {"model_type": name, **changes}
        modules = read_by_transformers(raw)
        if not modules:
            continue
        labels = LABELS.get(name, {})
        used = {
            None,
            *(labels.get(layer.kind, layer.kind) for layer in read_huggingface(copy.deepcopy(raw), "f").layers),
        }
        modules = {kind: module for kind, module in modules.items() if kind in used}
        for form in ("hf5", "hf4", "vllm"):
            try:
                text = convert(read_huggingface(raw, "f", "vllm" if form == "vllm" else "transformers5"), form)
            except ConfigError:
                continue
            keys = json.loads(re.findall(r"'(.*)'", text)[0] if form == "vllm" else text)
            files = [{"model_type": name, **keys}, *([{**copy.deepcopy(raw), **keys}] if form == "hf5" else [])]
            for file in files:
                # What vLLM multiplies its own factor by is not read by transformers.
                assert_same(read_by_transformers(file), modules, (form, variant), amplitudes=form != "vllm")
            written += 1
    assert written or name not in ALWAYS


def assert_same(ours: Any, theirs: Any, told: object, *, amplitudes: bool = True) -> None:
    """Frequencies and amplitude of every kind of layer are equal."""
    assert ours is not None and set(ours) >= set(theirs), told
    for kind, (frequencies, amplitude) in theirs.items():
        assert ours[kind][0] == pytest.approx(frequencies, rel=1e-12, abs=0), (told, kind)
        assert not amplitudes or ours[kind][1] == pytest.approx(amplitude, rel=1e-9), (told, kind)


SETTERS = {gguf.GGUFValueType.FLOAT32: float, gguf.GGUFValueType.UINT32: int, gguf.GGUFValueType.STRING: str}
TYPES = {
    "rope.scaling.type": gguf.GGUFValueType.STRING, "rope.dimension_count": gguf.GGUFValueType.UINT32,
    "context_length": gguf.GGUFValueType.UINT32, "rope.scaling.original_context_length": gguf.GGUFValueType.UINT32,
    "attention.sliding_window": gguf.GGUFValueType.UINT32,
}  # fmt: skip
"""The types that setters of its library give keys; all others of a rotation are floats."""


@pytest.mark.parametrize(
    "rule", [rule for rule in RULES if rule not in ("dynamic", "llama3", "longrope", "proportional")]
)
@pytest.mark.parametrize("name", ["qwen3", "qwen2_moe", "gpt_neox", "llama", "gemma2", "stablelm"])
def test_keys_of_gguf_are_reopened_by_its_own_reader_and_mean_the_same(name: str, rule: str, tmp_path: Path) -> None:
    """What transformers' rotary module computes is what llama.cpp computes of the file that gguf writes and reads."""
    raw = {"model_type": name, "rope_scaling": RULES[rule]}
    positions = read_huggingface(copy.deepcopy(raw), "f")
    lines = dict(line.split(" = ") for line in convert(positions, "gguf").splitlines())
    model = next(iter(lines)).split(".")[0]
    assert model in gguf.MODEL_ARCH_NAMES.values()
    groups = (gguf.Keys.Rope, gguf.Keys.Attention, gguf.Keys.LLM)
    known = {key for group in groups for at, key in vars(group).items() if not at.startswith("_")}
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", model)
    for key, value in lines.items():
        plain = key.removeprefix(f"{model}.")
        assert f"{{arch}}.{plain}" in known
        if plain == "attention.sliding_window_pattern":
            writer.add_array(key, json.loads(value))
        else:
            kind = TYPES.get(plain, gguf.GGUFValueType.FLOAT32)
            writer.add_key_value(key, SETTERS[kind](value), kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    fields = {key: field.contents() for key, field in gguf.GGUFReader(tmp_path / "a.gguf").fields.items()}
    width = positions.rotations()[0].head_dim
    theta, amplitude, _ = by_llama_cpp(fields, model, length=positions.claimed_length or 0, width=width)
    modules = read_by_transformers(raw)
    assert modules
    for frequencies, factor in modules.values():
        assert theta == pytest.approx(frequencies, rel=1e-6)
        assert amplitude == pytest.approx(factor, rel=1e-6)
    windows = [layer.window for layer in positions.layers]
    assert fields.get(f"{model}.attention.sliding_window") == max((w for w in windows if w), default=None)


def test_what_no_key_of_gguf_says_is_refused() -> None:
    for raw, told in (
        (
            {"model_type": "smollm3", "no_rope_layer_interval": 2},
            "keys of llama.cpp's smollm3 mean these positions .of layer 1: the layer does not rotate against rotates",
        ),
        ({"model_type": "helium"}, r"llama\.cpp has no architecture for 'helium'"),
        ({"model_type": "llama", "rope_scaling": {**RULES["yarn"], "truncate": False}}, "always rounds the bounds"),
        *(
            ({**BASE, "rope_scaling": RULES[rule]}, r"llama\.cpp")
            for rule in ("dynamic", "llama3", "longrope", "proportional")
        ),
    ):
        with pytest.raises(ConfigError, match=told):
            convert(read_huggingface(raw, "f"), "gguf")


def test_flags_of_vllm_by_what_its_documentation_says_of_them() -> None:
    """``--hf-overrides``: "If a dictionary, contains arguments to be forwarded to the Hugging Face config."

    ``--max-model-len``: "Model context length (prompt and output). If unspecified, will be automatically derived from
    the model config." So what is forwarded, to a configuration that transformers made of the plain file, must rotate as
    the scaled file does there, and the length is the claimed one.
    """
    for rule in ("linear", "yarn", "llama3", "longrope"):
        raw = {**BASE, "rope_scaling": RULES[rule]}
        flags = shlex.split(convert(read_huggingface(copy.deepcopy(raw), "f", "vllm"), "vllm"))
        assert flags[::2] == ["--hf-overrides", "--max-model-len"] and flags[3] == "32768"
        config = CONFIG_MAPPING["qwen3"].from_dict({key: value for key, value in BASE.items() if key != "rope_theta"})
        config.update(json.loads(flags[1]))
        truth = read_by_transformers(raw)
        assert truth
        assert_same(rotary_modules(config), truth, rule, amplitudes=rule != "yarn")  # vLLM multiplies its own factor
