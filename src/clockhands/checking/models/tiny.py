"""Small models of every text architecture, with weights that make position audible."""

from __future__ import annotations

import copy
import math
import re
from typing import Any

import torch
from torch import nn
from transformers import (
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
from clockhands.checking.models.builds import LISTS, MULTIMODAL, Task, multimodal

_AUTO = {"causal": AutoModelForCausalLM, "masked": AutoModelForMaskedLM, "seq2seq": AutoModelForSeq2SeqLM}
_TABLE = re.compile(r"(^|\.)(pos|position|positional|rel|relative)_?(emb|enc|table|bias)\w*$")


def build_model(
    config: PretrainedConfig,
    task: Task,
    seed: int = 0,
    attention: str | None = None,
    cls: type[PreTrainedModel] | None = None,
) -> PreTrainedModel:
    """Return a model of that configuration in float32 evaluation mode, with weights in which position is audible.

    ``cls`` is given where the configuration is a part of another (the text part of a wrapper).
    """
    config = copy.deepcopy(config)
    torch.manual_seed(seed)
    options = {} if attention is None else {"attn_implementation": attention}
    arguments: dict[str, Any] = {"dtype": torch.float32, **options}
    opener = _choose_opener(config.model_type, task)
    model = (
        pretrained.build_model(opener, config, **arguments) if cls is None else cls._from_config(config, **arguments)
    )
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")
    return make_position_audible(model.eval(), seed)


def _choose_opener(type_name: str, task: Task) -> Any:
    """Return the Auto class of a type; those that read images are built with what reads them."""
    if type_name in multimodal()["axes"]["types"] or type_name not in LISTS[task]:
        if type_name in modeling_auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES:
            return AutoModelForMultimodalLM
        if type_name in MULTIMODAL:
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
        if parameter.requires_grad and parameter.is_floating_point():
            _redraw(name, parameter, owners[id(parameter)], generator)
    return model


def _redraw(name: str, parameter: nn.Parameter, owner: nn.Module, generator: torch.Generator) -> None:
    noise = torch.randn(parameter.shape, generator=generator).to(parameter)
    if isinstance(owner, nn.Embedding) or (parameter.dim() >= 2 and _TABLE.search(name)):
        parameter.copy_(noise)
        if getattr(owner, "padding_idx", None) is not None:
            parameter[owner.padding_idx] = 0  # type: ignore[index]
    elif parameter.dim() >= 2 and "A_log" not in name:
        parameter.copy_(noise * 1.2 / math.sqrt(_fan_in(owner, parameter)))
    elif parameter.dim() == 1 and bool((parameter == 1).all()):
        parameter.add_(0.2 * noise)
    elif parameter.dim() == 1 and bool((parameter == 0).all()):
        parameter.copy_(0.2 * noise)


def _fan_in(owner: nn.Module, parameter: nn.Parameter) -> int:
    if type(owner).__name__ == "Conv1D":  # GPT-2's transposed linear layer
        return parameter.shape[0]
    if isinstance(owner, (nn.Conv1d, nn.Conv2d)):
        return math.prod(parameter.shape[1:])
    return parameter.shape[-1]
