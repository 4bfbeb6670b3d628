"""What has to be known to run a model of transformers: its arguments, its output layer, its streams of states."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from clockhands.shapes import Tensor


def arguments_of(model: nn.Module) -> frozenset[str]:
    """Return the names of the arguments that a model's forward pass takes."""
    return frozenset(inspect.signature(model.forward).parameters)


def one_stream(state: Any, shape: torch.Size, model: Any) -> Tensor:
    """Return one vector per token, B × T × D; streams side by side, of parallel ones that which attention reads."""
    if isinstance(state, tuple):  # Pegasus X keeps its global tokens beside the text's
        return one_stream(state[0], shape, model)
    if state.ndim == 4 and state.shape[1:3] == shape:  # Gemma 3n
        return state[getattr(model.config, "altup_active_idx", 0)]
    return state.flatten(2) if state.ndim == 4 and state.shape[:2] == shape else state  # hyper-connections


def output_layer(model: Any) -> nn.Module | None:
    """Return the layer that predicts tokens; None where a model has none."""
    found = getattr(model, "get_output_embeddings", lambda: None)()
    return found if isinstance(found, nn.Module) else None


@contextmanager
def attention_kept(model: Any) -> Iterator[None]:
    """Afterwards a model attends as before: BigBird gives up its sparse attention for good once a text is short."""
    before = getattr(model, "attention_type", None)
    try:
        yield
    finally:
        if hasattr(model, "set_attention_type") and model.attention_type != before:
            model.set_attention_type(before)
