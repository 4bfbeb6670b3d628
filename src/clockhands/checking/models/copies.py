"""Copies of a model that take no more memory than they must: a checkpoint is loaded once."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from clockhands.machine import measure_free_memory
from clockhands.models.streaming import find_device, is_streamed, open_streamed
from clockhands.pretrained import load_model


def is_large(adapter: Any) -> bool:
    """Return whether a second set of weights, in float64 at that, would take more than half of the memory that is free.

    Not of a model whose weights are streamed: its copies have none.
    """
    module = getattr(adapter, "module", None)
    if module is None or is_streamed(module):
        return False
    weights = {id(p): p for p in module.parameters()}.values()
    return 8 * sum(p.numel() for p in weights) > measure_free_memory(find_device(module)) / 2


def copy_sharing(thing: Any, dtype: torch.dtype | None = None) -> Any:
    """Return a copy of a module or adapter with the same parameters, not copied; buffers and all else are its own.

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


def reload(module: Any, folder: str, dtype: torch.dtype, streamed: bool = False) -> Any:
    """Return the model that ``folder`` holds, on the device of ``module`` and of its class, in ``dtype``.

    ``streamed``, and of a streamed module: without its weights in memory.
    """
    if streamed or is_streamed(module):
        return open_streamed(type(module), folder, find_device(module), dtype=dtype)
    with _NothingByLuck():
        loaded = load_model(type(module), folder, dtype=dtype)
    return loaded.to(find_device(module)).eval()


class _NothingByLuck(TorchFunctionMode):
    """Memory that nobody fills holds 0.37: a buffer that is lost must not find its old values in what was freed."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func in (torch.empty, torch.empty_like) and made.is_floating_point() and not made.is_meta:
            made.detach().fill_(0.37)
        return made


def from_files(adapter: Any, dtype: torch.dtype) -> Any:
    """Return the adapter of another precision around the weights as they stand in their files, streamed.

    Raises MemoryError if there are no files.
    """
    if getattr(adapter, "source", None) is None:
        raise MemoryError(
            f"too large for a copy in {str(dtype).removeprefix('torch.')}, and no files to stream it from"
        )
    module = reload(adapter.module, adapter.source, dtype, streamed=True)
    return type(adapter)(module, adapter.task, adapter.source)


def copy_without_weights(module: nn.Module) -> nn.Module:
    """Return a copy with parameters that have a shape and no storage: enough to see what a cast does to buffers."""
    return _with_parameters(module, lambda p: nn.Parameter(p.detach().to("meta"), requires_grad=p.requires_grad))


def _with_parameters(thing: Any, change: Callable[[nn.Parameter], nn.Parameter]) -> Any:
    module = _module(thing)
    memo: dict[int, Any] = {id(parameter): change(parameter) for parameter in module.parameters()}
    # Most of what a module holds are empty tables of hooks, of which deepcopy takes each apart and puts it together.
    held = [value for part in module.modules() for value in vars(part).values()]
    memo |= {id(value): type(value)() for value in held if type(value) in (dict, OrderedDict) and not value}
    return copy.deepcopy(thing, memo)


def _module(thing: Any) -> nn.Module:
    return thing if isinstance(thing, nn.Module) else thing.module
