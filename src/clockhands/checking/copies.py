"""Copies of a model that take no more memory than they must: a checkpoint is loaded once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import psutil
import torch
from torch import nn


def is_large(adapter: Any) -> bool:
    """Whether a second set of weights, in float64 at that, would take more than half of the memory that is free."""
    module = getattr(adapter, "module", None)
    if module is None:
        return False
    weights = {id(p): p for p in module.parameters()}.values()
    device = next((p.device for p in weights), torch.device("cpu"))
    return 8 * sum(p.numel() for p in weights) > free_memory(device) / 2


def free_memory(device: torch.device) -> int:
    """Bytes that can still be had there."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return int(psutil.virtual_memory().available)


def sharing(thing: Any, dtype: torch.dtype | None = None) -> Any:
    """A copy of a module or adapter with the same parameters, not copied; buffers and all else are its own.

    With ``dtype`` floating parameters of another precision are converted, one by one. Nothing may write into the
    parameters of the copy: they are those of the original.
    """

    def kept(parameter: nn.Parameter) -> nn.Parameter:
        if dtype is None or not parameter.is_floating_point() or parameter.dtype == dtype:
            return parameter
        return nn.Parameter(parameter.detach().to(dtype), requires_grad=parameter.requires_grad)

    twin = _with_parameters(thing, kept)
    if dtype is not None:
        _module(twin).to(dtype)  # the buffers; the parameters are there already
    return twin


def reloaded(module: Any, folder: str, dtype: torch.dtype) -> Any:
    """The model of transformers that ``folder`` holds, on the device of ``module`` and of its class, in ``dtype``."""
    loaded = type(module).from_pretrained(folder, dtype=dtype, use_safetensors=True)
    return loaded.to(next(module.parameters()).device).eval()


def hollow(module: nn.Module) -> nn.Module:
    """A copy with parameters that have a shape and no storage: enough to see what a cast does to buffers."""
    return _with_parameters(module, lambda p: nn.Parameter(p.detach().to("meta"), requires_grad=p.requires_grad))


def _with_parameters(thing: Any, change: Callable[[nn.Parameter], nn.Parameter]) -> Any:
    memo = {id(parameter): change(parameter) for parameter in _module(thing).parameters()}
    return copy.deepcopy(thing, memo)


def _module(thing: Any) -> nn.Module:
    return thing if isinstance(thing, nn.Module) else thing.module
