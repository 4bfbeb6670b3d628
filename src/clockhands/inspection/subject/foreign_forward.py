"""What has to be known to run a model of transformers: its arguments, its encoder and output layer, its states."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from clockhands.shapes import Float, Int, Tensor


def list_arguments(model: nn.Module) -> frozenset[str]:
    """Return the names of the arguments that a model's forward pass takes."""
    return frozenset(inspect.signature(model.forward).parameters)


def join_streams(state: Any, shape: torch.Size, model: Any) -> Float[Tensor, "B T D"]:
    """Return the hidden state of a layer as one vector per token, B × T × D, where a model keeps several.

    ``shape`` is that of the token ids, B × T.
    """
    if isinstance(state, tuple):  # Pegasus X keeps the states of its global tokens beside those of the text
        return join_streams(state[0], shape, model)
    if state.ndim == 4 and state.shape[1:3] == shape:  # Gemma 3n keeps parallel streams, of which attention reads one
        return state[getattr(model.config, "altup_active_idx", 0)]
    return state.flatten(2) if state.ndim == 4 and state.shape[:2] == shape else state  # hyper-connections


def encode_source(encoder_decoder: Any, source_BS: Int[Tensor, "B S"]) -> dict[str, Tensor]:
    """Run the encoder over a source (-1 for padding), and return the arguments with which the decoder reads it."""
    mask_BS = (source_BS >= 0).long()
    output = encoder_decoder.get_encoder()(input_ids=source_BS.clamp_min(0), attention_mask=mask_BS, return_dict=True)
    return {"encoder_hidden_states": output.last_hidden_state, "encoder_attention_mask": mask_BS}


def find_output_layer(model: Any) -> nn.Module | None:
    """Return the layer that predicts tokens; None where a model has none."""
    layer = getattr(model, "get_output_embeddings", lambda: None)()
    return layer if isinstance(layer, nn.Module) else None


@contextmanager
def keep_attention_type(model: Any) -> Iterator[None]:
    """Set the attention of a model back after the block: BigBird gives up its sparse one for good on a short text."""
    before = getattr(model, "attention_type", None)
    try:
        yield
    finally:
        if hasattr(model, "set_attention_type") and model.attention_type != before:
            model.set_attention_type(before)
