"""Tiny models written as GGUF on the spot, as llama.cpp's converter does, or with one mistake that conversions make."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

PERMUTED = ("llama", "mistral3", "granite", "smollm3", "olmo", "arcee")
"""Architectures whose queries and keys its converter reorders, from halves to neighbours."""


def write_gguf(model: Any, path: Path, fault: str = "sound", quantised: bool = False) -> Path:
    """Write a Llama; ``fault`` is "unpermuted", "no yarn" or "another base"."""
    import gguf

    rope = model.config.rope_parameters
    entries: dict[str, Any] = {} if fault == "another base" else {"rope.freq_base": float(rope["rope_theta"])}
    if rope["rope_type"] == "yarn" and fault != "no yarn":
        length = rope["original_max_position_embeddings"]
        entries |= {"rope.scaling.type": gguf.RopeScalingType.YARN.value, "rope.scaling.factor": float(rope["factor"]),
                    "rope.scaling.original_context_length": length}  # fmt: skip
    return write_model(model, path, "llama", entries, permute=fault != "unpermuted", quantised=quantised)


def write_model(
    model: Any, path: Path, name: str, entries: Mapping[str, Any], *, permute: bool = True, quantised: bool = False
) -> Path:
    """Write a decoder of transformers as the architecture ``name``; ``entries``: settings without it, and tensors."""
    import gguf

    config, writer = model.config, gguf.GGUFWriter(path, name)
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_layer_norm_rms_eps(getattr(config, "rms_norm_eps", 1e-5))
    writer.add_layer_norm_eps(getattr(config, "layer_norm_eps", None) or getattr(config, "norm_eps", 1e-5))
    if hasattr(config, "logit_scale"):
        writer.add_logit_scale(config.logit_scale)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("none")
    for key, value in entries.items():
        _add(writer, key if key.endswith(".weight") else f"{name}.{key}", value)
    architecture = next(number for number, known in gguf.MODEL_ARCH_NAMES.items() if known == name)
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for place, tensor in model.state_dict().items():
        if place == "lm_head.weight" and config.tie_word_embeddings:
            continue
        array = tensor.detach().numpy()
        count = next((heads[part] for part in heads if part in place), 0)
        if count and permute and name in PERMUTED:
            array = array.reshape(count, 2, -1, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)
        if name.startswith("gemma") and "norm" in place:
            array = array + 1  # its converter adds it: transformers does so in each norm
        kind = gguf.GGMLQuantizationType.Q8_0 if quantised and array.ndim == 2 else gguf.GGMLQuantizationType.F32
        data = gguf.quants.quantize(np.ascontiguousarray(array), kind)
        written = names.get_name(place.replace("gate_up_proj", "up_proj"), try_suffixes=(".weight", ".bias"))
        writer.add_tensor(written, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: Any, key: str, value: Any) -> None:
    """Add a setting by the type that its value has, or a tensor."""
    if key.endswith(".weight"):
        writer.add_tensor(key, np.asarray(value, dtype=np.float32))
    elif isinstance(value, list):
        writer.add_array(key, value)
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_string(key, value)
