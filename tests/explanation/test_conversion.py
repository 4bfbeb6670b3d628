"""What is written for another program means the same when that program reads it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from transformers import CONFIG_MAPPING

from clockhands.errors import ConfigError, UsageError
from clockhands.explanation import apply_llama_flags, compare, convert, read_positions
from clockhands.explanation.huggingface import read_huggingface

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
    (form, rule) for form in ("gguf", "llama.cpp") for rule in ("dynamic", "llama3", "longrope", "proportional")
)}  # fmt: skip


def positions_under(rule: str) -> Any:
    return read_huggingface({**BASE, "rope_scaling": RULES[rule]}, "f")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("form", ["hf4", "hf5", "vllm", "gguf", "llama.cpp"])
def test_what_is_written_is_read_as_the_same(form: str, rule: str) -> None:
    before = positions_under(rule)
    if (form, rule) in IMPOSSIBLE:
        with pytest.raises(ConfigError):
            convert(before, form)
        return
    written = convert(before, form)
    assert compare(before, read_back(form, written)) is None


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
    values = dict(line.split(" = ") for line in written.splitlines())
    return _as_gguf({key.removeprefix("qwen3."): value for key, value in values.items()})


def _as_gguf(values: dict[str, str]) -> Any:
    import tempfile

    import gguf

    from clockhands.explanation.gguf_file import read_gguf
    from tests.explanation.test_gguf_file import write

    adders: dict[str, Any] = {"key_length": 64}
    names = {
        "rope.freq_base": ("rope_freq_base", float), "rope.dimension_count": ("rope_dimension_count", int),
        "rope.scaling.type": ("rope_scaling_type", gguf.RopeScalingType),
        "rope.scaling.factor": ("rope_scaling_factor", float),
        "rope.scaling.original_context_length": ("rope_scaling_orig_ctx_len", int),
        "rope.scaling.yarn_beta_fast": ("rope_scaling_yarn_beta_fast", float),
        "rope.scaling.yarn_beta_slow": ("rope_scaling_yarn_beta_slow", float),
        "rope.scaling.attn_factor": ("rope_scaling_attn_factors", float),
    }  # fmt: skip
    for key, value in values.items():
        name, kind = names[key]
        adders[name] = kind(value)
    with tempfile.TemporaryDirectory() as folder:
        return read_gguf(write(Path(folder) / "a.gguf", "qwen3", layers=4, **adders))


def test_kinds_of_layers_go_only_where_they_can_be_said() -> None:
    gemma = read_huggingface(
        {"model_type": "gemma3_text", "head_dim": 64, "num_hidden_layers": 6, "sliding_window": 64,
         "max_position_embeddings": 8192}, "f")  # fmt: skip
    again = {"model_type": "gemma3_text", "head_dim": 64, "num_hidden_layers": 6, "sliding_window": 64}
    assert compare(gemma, read_huggingface({**again, **json.loads(convert(gemma, "hf5"))}, "f")) is None
    assert (
        compare(gemma, read_huggingface({**again, **json.loads(convert(gemma, "hf4"))}, "f", "transformers4")) is None
    )
    for form in ("vllm", "gguf", "llama.cpp"):
        with pytest.raises(ConfigError, match="one rotation for all layers"):
            convert(gemma, form)


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
