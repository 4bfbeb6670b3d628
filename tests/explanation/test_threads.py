"""Reports of configurations that were misread, each rebuilt from its text as two readings: the field must be named."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import pytest

from clockhands.explanation import Positions, compare, read_positions
from tests.explanation.test_llama_cpp import write

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 2,
    "max_position_embeddings": 131072,
}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}  # fmt: skip
QWEN = {**LLAMA, "model_type": "qwen3", "head_dim": 128, "rope_theta": 1e6, "max_position_embeddings": 40960}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
MOE = {**QWEN, "model_type": "qwen3_moe", "rope_scaling": YARN}
MINISTRAL = {
    **LLAMA, "model_type": "ministral3", "head_dim": 128, "max_position_embeddings": 262144,
    "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                        "original_max_position_embeddings": 16384},
}  # fmt: skip
GEMMA3 = {
    "model_type": "gemma3_text", "head_dim": 256, "num_hidden_layers": 12, "sliding_window": 1024,
    "sliding_window_pattern": 6,
    "rope_theta": 1e6, "rope_local_base_freq": 1e4, "max_position_embeddings": 131072,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
}  # fmt: skip
GEMMA4 = {
    "model_type": "gemma4_text", "head_dim": 256, "num_hidden_layers": 2, "sliding_window": 512,
    "layer_types": ["sliding_attention", "full_attention"], "max_position_embeddings": 131072,
    "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                                           "rope_theta": 1e6}},
}  # fmt: skip
DEEPSEEK = {
    "model_type": "deepseek_v2", "qk_rope_head_dim": 64, "num_hidden_layers": 2, "max_position_embeddings": 163840,
    "rope_theta": 1e4,
    "rope_scaling": {"type": "yarn", "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707, "beta_fast": 32,
                     "beta_slow": 1,
                     "original_max_position_embeddings": 4096},
}  # fmt: skip


def without(raw: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in raw.items() if key not in keys}


@dataclass(frozen=True)
class Thread:
    """Where it was told, what the file said and what was read instead, the field that must be named, and its layer."""

    told: str
    file: dict[str, Any] | str
    read: dict[str, Any] | str
    field: str | None
    program: str = "transformers5"
    read_by: str = "transformers5"
    layer: int = 0
    what: str = ""


GEMMA3_ONE_BASE = without(GEMMA3, "rope_local_base_freq", "rope_scaling") | {
    "rope_parameters": {
        kind: {"rope_type": "default", "rope_theta": 1e6} for kind in ("full_attention", "sliding_attention")
    }
}
THREADS = [
    Thread("vllm-project/vllm#28542: theta moved into rope_parameters",
           {**LLAMA, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
           {**LLAMA, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, "base", read_by="transformers4"),
    Thread("sgl-project/sglang#14745: Qwen 3, theta at the top level, lost when the table is made",
           QWEN, without(QWEN, "rope_theta") | {"rope_parameters": {"rope_type": "default"}}, "base"),
    Thread("vllm-project/vllm#48621: Ministral 3, amplitude 1.0 against 1.277",
           MINISTRAL, MINISTRAL, "amplitude", read_by="vllm", what="1.0000 against 1.6314"),
    Thread("ml-explore/mlx-lm#1507: Olmo 3 gives the factor that the rule would give, so nothing is lost",
           {**LLAMA, "rope_theta": 5e5,
            "rope_scaling": {**YARN, "factor": 8.0, "attention_factor": 1.2079441541679836}},
           {**LLAMA, "rope_theta": 5e5, "rope_scaling": {**YARN, "factor": 8.0}}, None),
    Thread("turboderp-org/exllamav3#259: mscale and mscale_all_dim of 1.0 turn the amplitude off",
           {**QWEN, "rope_scaling": YARN}, {**QWEN, "rope_scaling": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}},
           "amplitude"),
    Thread("Blaizzy/mlx-vlm#1709: Gemma 3's factor 8 on global layers dropped",
           GEMMA3, {**GEMMA3, "rope_scaling": None}, "rule", layer=5),
    Thread("huggingface/transformers#45910: one base for both kinds of layer",
           {**GEMMA3, "rope_scaling": None}, GEMMA3_ONE_BASE, "base", layer=0),
    Thread("pegainfer#758: Gemma 4's proportional rule read as partial rotation",
           GEMMA4, {**GEMMA4, "rope_parameters": {**GEMMA4["rope_parameters"], "full_attention": {
               "rope_type": "linear", "factor": 1.0, "partial_rotary_factor": 0.25, "rope_theta": 1e6}}},
           "channels", layer=1),
    Thread("ggml-org/llama.cpp#7118: DeepSeek V2's amplitude 1.0 against 1.369",
           DEEPSEEK, "deepseek2 without its log multiplier", "amplitude"),
    Thread("ggml-org/llama.cpp#17945: Mistral 3's amplitude, read from the file",
           MINISTRAL, "mistral3 with its log multiplier", None),
    Thread("ggml-org/llama.cpp#2768: CodeLlama's base not written by the converter",
           {**LLAMA, "rope_theta": 1e6}, "llama without a base", "base"),
    Thread("ggml-org/llama.cpp#8676: Llama 3.1's factors not written by the converter",
           {**LLAMA, "rope_theta": 5e5, "rope_scaling": LLAMA3}, "llama without factors", "rule"),
    Thread("ggml-org/llama.cpp#13322: YaRN of Qwen 3 MoE not written by the converter",
           MOE, "qwen3moe without its rule", "rule"),
    Thread("deepspeedai/Megatron-DeepSpeed#351: Mixtral's base is 1,000,000, Megatron's default 10,000",
           {**LLAMA, "model_type": "mixtral", "rope_theta": 1e6}, "megatron arguments without a base", "base"),
]  # fmt: skip


def make(described: dict[str, Any] | str, folder: Path, program: str) -> Positions:
    """Write the file of a thread and read it."""
    if isinstance(described, dict):
        path = folder / "config.json"
        path.write_text(json.dumps(described))
        return read_positions(path, program)
    if described.startswith("megatron"):
        path = folder / "arguments.sh"
        path.write_text(
            "--num-layers 2 --hidden-size 4096 --num-attention-heads 32 \\\n --position-embedding-type rope "
            "--max-position-embeddings 131072 --bf16  # and more\n"
        )
        return read_positions(path)
    yarn = {"rope_scaling_type": gguf.RopeScalingType.YARN}
    values: dict[str, dict[str, Any]] = {
        "llama without a base": {"key_length": 128, "context": 131072},
        "llama without factors": {"key_length": 128, "context": 131072, "rope_freq_base": 5e5},
        "qwen3moe without its rule": {"key_length": 128, "context": 40960, "rope_freq_base": 1e6},
        "mistral3 with its log multiplier": {
            **yarn, "key_length": 128, "context": 262144, "rope_freq_base": 1e6, "rope_scaling_factor": 16.0,
            "rope_scaling_orig_ctx_len": 16384, "rope_scaling_yarn_log_mul": 1.0},
        "deepseek2 without its log multiplier": {
            **yarn, "rope_dimension_count": 64, "context": 163840, "rope_freq_base": 1e4, "rope_scaling_factor": 40.0,
            "rope_scaling_orig_ctx_len": 4096},
    }  # fmt: skip
    return read_positions(write(folder / "model.gguf", described.split(" ")[0], **values[described]))


@pytest.mark.parametrize("thread", THREADS, ids=lambda thread: thread.told.split(":")[0])
def test_the_field_of_the_thread_is_named(thread: Thread, tmp_path: Path) -> None:
    for name in ("file", "read"):
        (tmp_path / name).mkdir()
    file = make(thread.file, tmp_path / "file", thread.program)
    read = make(thread.read, tmp_path / "read", thread.read_by)
    difference = compare(file, read)
    if thread.field is None:
        assert difference is None, difference
        return
    assert difference is not None
    assert difference.layer == thread.layer
    assert thread.field in [cause[0] for cause in difference.causes], difference
    assert thread.what in difference.what
