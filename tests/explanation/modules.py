"""What the rotary modules of transformers compute, made in float64: the truth that explanations are compared with."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

OTHER_INPUTS = re.compile("Vision(?!Text)|Audio|Axial|Compressor|SaProt")


class InFloat64(TorchFunctionMode):
    """While it is on, what code asks for in float32 is made in float64: modules compute frequencies in float32."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.float:
            return args[0].double()
        args, kwargs = [_widen(value) for value in args], {key: _widen(value) for key, value in (kwargs or {}).items()}
        return func(*args, **kwargs)


def _widen(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value


def rotary_modules(config: Any) -> dict[str | None, tuple[list[float], float]]:
    """Return kind of layer (None: all) -> frequencies and amplitude, of the rotary modules of a configuration."""
    code = importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))
    found: dict[str | None, tuple[list[float], float]] = {}
    for name, kind in vars(code).items():
        if not inspect.isclass(kind) or not name.endswith("RotaryEmbedding") or OTHER_INPUTS.search(name):
            continue
        torch.set_default_dtype(torch.float64)
        try:
            with InFloat64():
                module = kind(config)
        finally:
            torch.set_default_dtype(torch.float32)
        for buffer, value in module.named_buffers():
            if buffer.endswith("inv_freq") and "original" not in buffer:
                layer = buffer.removesuffix("inv_freq").rstrip("_") or None
                scale = getattr(module, f"{layer}_attention_scaling" if layer else "attention_scaling", 1.0)
                found[layer] = value.tolist(), float(scale)
    return found
