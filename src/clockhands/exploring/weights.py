"""The weights of a model as one row of numbers, with the place of each tensor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from clockhands.exploring.support import list_stacks
from clockhands.runs import Run
from clockhands.shapes import Tensor

__all__ = ["hold_packed", "pack_weights"]

_TABLES = {"learned": "table_LP", "t5": "table_HN"}
"""The parameter of a scheme that is its table."""


def pack_weights(run: Run, dtype: str = "float16") -> tuple[bytes, dict[str, Any]]:
    """Return the little-endian numbers of all weights, and where each tensor begins, in numbers, with its shape.

    Tensors have the names of the state dict without ``model.``, but the stack of a language model is called
    ``encoder``; tied ones share one place. The table of a side's scheme is called ``encoder.table`` or
    ``decoder.table``.
    """
    places: dict[str, Any] = {}
    kept: dict[int, dict[str, Any]] = {}
    numbers: list[np.ndarray[Any, Any]] = []
    offset = 0
    for name, tensor in _list_tensors(run).items():
        place = kept.get(tensor.data_ptr())
        if place is None or place["shape"] != list(tensor.shape):
            place = kept[tensor.data_ptr()] = {"offset": offset, "shape": list(tensor.shape)}
            numbers.append(tensor.detach().cpu().float().numpy().astype(f"<{np.dtype(dtype).str[1:]}").ravel())
            offset += tensor.numel()
        places[name] = place
    return b"".join(array.tobytes() for array in numbers), places


@contextmanager
@torch.no_grad()
def hold_packed(run: Run, dtype: torch.dtype = torch.float16) -> Iterator[None]:
    """Round the weights inside the block as ``pack_weights`` does, so that a run counts what a page counts.

    Where two tokens are nearly as likely, weights of half precision write another text than whole ones.
    """
    tensors = list(_list_tensors(run).values())
    trained = [tensor.detach().clone() for tensor in tensors]
    try:
        for tensor in tensors:
            tensor.copy_(tensor.to(dtype))
        yield
    finally:
        for tensor, values in zip(tensors, trained, strict=True):
            tensor.copy_(values)


def _list_tensors(run: Run) -> dict[str, Tensor]:
    """Return what the page multiplies by: all parameters of the layers, and the tables of the schemes."""
    model = run.model.transformer
    tensors: dict[str, Tensor] = {
        name: tensor for name, tensor in model.named_parameters(remove_duplicate=False) if ".schemes." not in name
    }
    config = run.model.config.transformer_config
    for side in list_stacks(config).values():
        parameter = _TABLES.get(config.get_position_config(side).scheme)
        if parameter:
            tensors[f"{side}.table"] = getattr(model.get_stack(side).schemes.at_input, parameter)
    # A learned scale of the tokens is told as a number, with the rules.
    named = {name: tensor for name, tensor in tensors.items() if isinstance(tensor, torch.Tensor) and tensor.dim()}
    if config.architecture != "decoder":
        return named
    return {name.replace("decoder.", "encoder.", 1): tensor for name, tensor in named.items()}
