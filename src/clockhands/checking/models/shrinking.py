"""Shrink a configuration by rules: few, narrow layers, every kind of layer kept, rotary settings untouched."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from transformers import CONFIG_MAPPING, PretrainedConfig

from clockhands.checking.models.builds import Build, multimodal, overrides
from clockhands.models import find_task
from clockhands.pretrained import load_configuration

_DEPTHS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "num_blocks")
_SEEN = ("vision", "audio", "vq", "visual", "qformer", "projector", "adaptor", "adapter")  # parts that read no text
_HEADS = ("num_attention_heads", "n_heads", "n_head", "num_heads", "swa_num_attention_heads")


def tiny_config(build: Build) -> PretrainedConfig:
    """Return the shrunk default configuration of an architecture."""
    initial = {**overrides()["initial"], **multimodal()["initial"]}.get(build.type, {})
    return shrink(CONFIG_MAPPING[build.type](**copy.deepcopy(initial)), build)


def shrink_published(name: str, trust_remote_code: bool) -> tuple[Build, Any]:
    """Return the shrunk configuration of a folder or hub name."""
    config = load_configuration(name, trust_remote_code=trust_remote_code)
    task, _ = find_task(config)
    build = Build(config.model_type, task)
    return build, shrink(config, build)


def shrink(config: PretrainedConfig, build: Build) -> PretrainedConfig:
    """Return the same architecture with few, narrow layers: every kind of layer kept, rotary settings untouched.

    ``config`` may be a default or a published one; its theta, scaling type, factors and layer pattern survive.
    """
    raw = config.to_dict()
    _shrink_dict(raw)
    if build.task == "causal" and "is_decoder" in raw:
        raw["is_decoder"] = True
    for path, value in {**_settings(build), **build.settings}.items():
        _put(raw, path, copy.deepcopy(value))
    for key in ("architectures", "auto_map", "quantization_config", "dtype", "torch_dtype"):
        raw.pop(key, None)
    return type(config).from_dict(raw)


def _settings(build: Build) -> dict[str, Any]:
    settings = {**overrides()["set"], **multimodal()["set"]}
    return {**settings.get(build.type, {}), **settings.get(f"{build.type}:{build.task}", {})}


def _put(raw: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for parent in parents:
        raw = raw.setdefault(parent, {})
    raw[last] = value


def _shrink_dict(raw: dict[str, Any], part: str = "") -> None:
    """Apply the size rules to one level of a configuration and to those below; ``part`` is the name of this level."""
    sizes = overrides()["sizes"]
    if any(word in part for word in _SEEN):
        sizes = {**sizes, **multimodal()["sizes"]}
    _shrink_layer_lists(raw)
    heads = next((raw[name] for name in _HEADS if isinstance(raw.get(name), int)), None)
    for name in overrides()["groups"]["names"]:
        if isinstance(raw.get(name), int):
            raw[name] = 4 if raw[name] == heads else min(raw[name], 2)
    if "head_dim" in raw:
        raw["head_dim"] = _Exact(_head_width(raw))
    for key, value in raw.items():
        if isinstance(value, dict) and key not in ("id2label", "label2id", "rope_parameters"):
            _shrink_dict(value, str(key))
        elif key in sizes and type(value) is int and value > 0:
            raw[key] = sizes[key]
        elif str(key).endswith(("_token_id", "_token_index")):
            raw[key] = _token(key, value)
    _shrink_rope(raw.get("rope_parameters"))


def _head_width(raw: Mapping[str, Any]) -> int:
    """Where attention is split in a rotated and a plain part, head_dim may mean either, or their sum."""
    sizes = overrides()["sizes"]
    rotated, plain = raw.get("qk_rope_head_dim"), raw.get("qk_nope_head_dim")
    if rotated and raw["head_dim"] == rotated:
        return sizes["qk_rope_head_dim"]
    if rotated and plain and raw["head_dim"] == rotated + plain:
        return sizes["qk_head_dim"]
    return sizes["head_dim"]


def _shrink_rope(rope: Any) -> None:
    """Keep theta, type and factor; a stretched context keeps its ratio to the original one."""
    if not isinstance(rope, dict):
        return
    for inner in rope.values():
        _shrink_rope(inner)
    if isinstance(rope.get("original_max_position_embeddings"), int):
        rope["original_max_position_embeddings"] = 32
    for name in ("long_factor", "short_factor"):
        if isinstance(rope.get(name), list):
            rope[name] = rope[name][:8]


def _shrink_layer_lists(raw: dict[str, Any]) -> None:
    """Choose one layer of each kind (two at least) and cut every per-layer list to those layers."""
    depth_name = next((name for name in _DEPTHS if isinstance(raw.get(name), int)), None)
    if depth_name is None:
        return
    depth = raw[depth_name]
    lists = {key: value for key, value in raw.items() if isinstance(value, list) and len(value) == depth > 2}
    kinds = lists.get("layer_types") or lists.get("layers_block_type") or lists.get("attention_layers")
    chosen = _representatives(kinds, depth) if kinds else [0, depth - 1]
    for key, value in lists.items():
        raw[key] = [value[index] for index in chosen]
    if kinds:
        raw[depth_name] = _Exact(len(chosen))
    if isinstance(raw.get("per_layer_config"), dict):
        layers = {int(index): value for index, value in raw["per_layer_config"].items()}
        raw["per_layer_config"] = {new: layers[old] for new, old in enumerate(chosen) if old in layers}


class _Exact(int):
    """A number that the size rules leave alone."""


def _representatives(kinds: list[Any], depth: int) -> list[int]:
    first = sorted({str(kind): index for index, kind in reversed(list(enumerate(kinds)))}.values())
    return first if len(first) > 1 else [0, depth - 1]


def _token(key: str, value: Any) -> Any:
    """A special token inside the shrunk vocabulary; what was there and small stays (RoBERTa pads with 1)."""
    rules = overrides()["special"]
    limit = 10
    if isinstance(value, list):
        return [_token(key, item) for item in value][:1]
    if not isinstance(value, int) or 0 <= value < limit:
        return value
    return next((number for name, number in rules.items() if key.startswith(name)), rules["other"])
