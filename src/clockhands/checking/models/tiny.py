"""Small models of every text architecture: which there are, their configurations shrunk by rules, audible weights."""

from __future__ import annotations

import copy
import functools
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import torch
from torch import nn
from transformers import (
    CONFIG_MAPPING,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForMaskedLM,
    AutoModelForMultimodalLM,
    AutoModelForSeq2SeqLM,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.models.auto import modeling_auto

from clockhands import pretrained
from clockhands.errors import UsageError, describe_unknown
from clockhands.models import find_task, read_checked_config
from clockhands.models.door import HeadTask
from clockhands.pretrained import load_configuration

_LISTS = {
    "causal": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    "masked": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    "seq2seq": modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
}
_MULTIMODAL = {
    **modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    **modeling_auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
}


@dataclass(frozen=True)
class Build:
    """One architecture to build: its transformers name, its task (which head it has), what is set besides the rules."""

    type: str
    task: HeadTask
    variant: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """``llama`` for the usual task of a type, ``bert:masked``, ``falcon+alibi``."""
        return self.type + (f"+{self.variant}" if self.variant else "") + f":{self.task}"


@functools.cache
def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath(name).read_text("utf8"))


def overrides() -> dict[str, Any]:
    """Return the shrinking rules and the exceptions of single models, from ``overrides.toml``."""
    return _read("overrides.toml")


def multimodal() -> dict[str, Any]:
    """Return the same for models that read more than text, from ``multimodal.toml``."""
    return _read("multimodal.toml")


def architectures() -> Iterator[Build]:
    """Yield every text architecture of the installed transformers, then its variants, in alphabetical order by task.

    Among them are models that read images or sound too, where they can be given text alone.
    """
    decoders, pairs = set(multimodal()["decoders"]["types"]), set(multimodal()["seq2seq"]["types"])
    listed = {name for names in _LISTS.values() for name in names}
    wrappers = (set(_MULTIMODAL) - listed) | (decoders & listed)
    reading_more: dict[HeadTask, set[str]] = {"causal": wrappers - pairs, "masked": set(), "seq2seq": wrappers & pairs}
    for task, names in reading_more.items():
        for name in sorted({*_LISTS[task], *names}):
            if name in CONFIG_MAPPING and not _find_reason(name, task):
                yield Build(name, task)
    for full, variant in overrides().get("variant", {}).items():
        base, _, label = full.partition("+")
        yield Build(base, variant["task"], label, variant["set"])


def _find_reason(name: str, task: str) -> str:
    if task == "seq2seq" and name in multimodal()["decoders"]["types"]:
        return "a causal decoder listed under seq2seq as well"
    skipped = {**overrides()["skip"], **multimodal()["skip"]}
    return str(skipped.get(f"{name}:{task}") or skipped.get(name) or "")


def find(type_name: str) -> list[Build]:
    """Return the builds of one architecture by its transformers name, optionally ``bert:masked`` or ``falcon+alibi``.

    Raises UsageError for a name that transformers does not know or that is not a text model.
    """
    every = list(architectures())
    if matching := [build for build in every if type_name in (build.name, build.name.partition(":")[0])]:
        return matching
    name, _, task = type_name.partition(":")
    if reason := _find_reason(name, task):
        raise UsageError(f"architecture {type_name!r} is not checked: {reason}")
    raise UsageError(describe_unknown("architecture", type_name, {build.name.partition(":")[0] for build in every}))


_DEPTHS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "num_blocks")
_SEEN = ("vision", "audio", "vq", "visual", "qformer", "projector", "adaptor", "adapter")  # parts that read no text
_HEADS = ("num_attention_heads", "n_heads", "n_head", "num_heads", "swa_num_attention_heads")


def tiny_config(build: Build) -> PretrainedConfig:
    """Return the shrunk default configuration of an architecture."""
    initial = {**overrides()["initial"], **multimodal()["initial"]}.get(build.type, {})
    return shrink(CONFIG_MAPPING[build.type](**copy.deepcopy(initial)), build)


def shrink_published(name: str, trust_remote_code: bool) -> tuple[Build, Any]:
    """Return the shrunk configuration of a folder or hub name."""
    read_checked_config(name, trust_remote_code=trust_remote_code)
    config = load_configuration(name, trust_remote_code=trust_remote_code)
    build = Build(config.model_type, find_task(config)[0])
    return build, shrink(config, build)


def shrink(config: PretrainedConfig, build: Build) -> PretrainedConfig:
    """Return the same architecture with few, narrow layers: every kind of layer kept, rotary settings untouched.

    ``config`` may be a default or a published one; its theta, scaling type, factors and layer pattern survive.
    """
    raw = config.to_dict()
    _shrink_dict(raw)
    if build.task == "causal" and "is_decoder" in raw:
        raw["is_decoder"] = True
    known = {**overrides()["set"], **multimodal()["set"]}
    settings = {**known.get(build.type, {}), **known.get(f"{build.type}:{build.task}", {}), **build.settings}
    for path, value in settings.items():
        *parents, last = path.split(".")
        functools.reduce(lambda level, name: level.setdefault(name, {}), parents, raw)[last] = copy.deepcopy(value)
    for key in ("architectures", "auto_map", "quantization_config", "dtype", "torch_dtype"):
        raw.pop(key, None)
    return type(config).from_dict(raw)


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
        # Where attention is split in a rotated and a plain part, head_dim may mean either, or their sum.
        rotated, plain, width = raw.get("qk_rope_head_dim"), raw.get("qk_nope_head_dim"), sizes["head_dim"]
        if rotated and raw["head_dim"] == rotated:
            width = sizes["qk_rope_head_dim"]
        elif rotated and plain and raw["head_dim"] == rotated + plain:
            width = sizes["qk_head_dim"]
        raw["head_dim"] = _Exact(width)
    for key, value in raw.items():
        if isinstance(value, dict) and key not in ("id2label", "label2id", "rope_parameters"):
            _shrink_dict(value, str(key))
        elif key in sizes and type(value) is int and value > 0:
            raw[key] = sizes[key]
        elif str(key).endswith(("_token_id", "_token_index")):
            raw[key] = _token(key, value)
    _shrink_rope(raw.get("rope_parameters"))


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
    depth_name = next((name for name in _DEPTHS if isinstance(raw.get(name), int)), "")
    if not depth_name:
        return
    depth = raw[depth_name]
    lists = {key: value for key, value in raw.items() if isinstance(value, list) and len(value) == depth > 2}
    kinds = lists.get("layer_types") or lists.get("layers_block_type") or lists.get("attention_layers")
    first = {str(kind): index for index, kind in reversed([*enumerate(kinds or ())])}  # of each kind
    chosen = sorted(first.values()) if len(first) > 1 else [0, depth - 1]
    for key, value in lists.items():
        raw[key] = [value[index] for index in chosen]
    if kinds:
        raw[depth_name] = _Exact(len(chosen))
    if isinstance(raw.get("per_layer_config"), dict):
        layers = {int(index): value for index, value in raw["per_layer_config"].items()}
        raw["per_layer_config"] = {new: layers[old] for new, old in enumerate(chosen) if old in layers}


class _Exact(int):
    """A number that the size rules leave alone."""


def _token(key: str, value: Any) -> Any:
    """A special token inside the shrunk vocabulary; what was there and small stays (RoBERTa pads with 1)."""
    if isinstance(value, list):
        return [_token(key, item) for item in value][:1]
    if not isinstance(value, int) or 0 <= value < 10:
        return value
    rules = overrides()["special"]
    return next((number for name, number in rules.items() if key.startswith(name)), rules["other"])


_AUTO = {"causal": AutoModelForCausalLM, "masked": AutoModelForMaskedLM, "seq2seq": AutoModelForSeq2SeqLM}
_TABLE = re.compile(r"(^|\.)(pos|position|positional|rel|relative)_?(emb|enc|table|bias)\w*$")


def build_model(
    config: PretrainedConfig,
    task: HeadTask,
    seed: int = 0,
    attention: str | None = None,
    cls: type[PreTrainedModel] | None = None,
) -> PreTrainedModel:
    """Return a model of that configuration in float32 evaluation mode, with weights in which position is audible.

    ``cls`` is given where the configuration is a part of another (the text part of a wrapper).
    """
    config = copy.deepcopy(config)
    torch.manual_seed(seed)
    arguments: dict[str, Any] = {"dtype": torch.float32}
    if attention is not None:
        arguments["attn_implementation"] = attention
    if cls is None:
        model = pretrained.build_model(_choose_opener(config.model_type, task), config, **arguments)
    else:
        model = cls._from_config(config, **arguments)
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")
    return make_position_audible(model.eval(), seed)


def _choose_opener(type_name: str, task: HeadTask) -> Any:
    if type_name in multimodal()["axes"]["types"] or type_name not in _LISTS[task]:
        if type_name in modeling_auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES:
            return AutoModelForMultimodalLM
        if type_name in _MULTIMODAL:
            return AutoModelForImageTextToText
    return _AUTO["seq2seq" if type_name in multimodal()["decoders"]["types"] else task]


@torch.no_grad()
def make_position_audible(model: Any, seed: int = 0) -> Any:
    """Redraw the weights so that attention is peaked and position matters.

    Matrices get std 1.2/√fan_in, embeddings std 1, gains 1 ± 0.2, biases ± 0.2. With the library's initialisation
    (std 0.02) position hardly reaches the logits, and a leak of the future stays below any tolerance.
    """
    generator = torch.Generator().manual_seed(seed)
    owners = {id(p): module for module in model.modules() for p in module.parameters(recurse=False)}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad or not parameter.is_floating_point():
            continue
        owner = owners[id(parameter)]
        noise = torch.randn(parameter.shape, generator=generator).to(parameter)
        if isinstance(owner, nn.Embedding) or (parameter.dim() >= 2 and _TABLE.search(name)):
            parameter.copy_(noise)
            if getattr(owner, "padding_idx", None) is not None:
                parameter[owner.padding_idx] = 0
        elif parameter.dim() >= 2 and "A_log" not in name:
            inputs = parameter.shape[-1]
            if type(owner).__name__ == "Conv1D":  # GPT-2's transposed linear layer
                inputs = parameter.shape[0]
            elif isinstance(owner, (nn.Conv1d, nn.Conv2d)):
                inputs = math.prod(parameter.shape[1:])
            parameter.copy_(noise * 1.2 / math.sqrt(inputs))
        elif parameter.dim() == 1 and bool((parameter == 1).all()):
            parameter.add_(0.2 * noise)
        elif parameter.dim() == 1 and bool((parameter == 0).all()):
            parameter.copy_(0.2 * noise)
    return model
