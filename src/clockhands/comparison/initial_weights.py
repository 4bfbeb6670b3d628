"""The same initial weights in every variant, wherever names and shapes agree.

A model draws its weights from one stream, so that one parameter more shifts all that follow. Here each module draws
from a stream of its own, seeded by the trial's seed and the module's name.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch
from torch import nn

from clockhands.model.transformer import Transformer, initialise_embedding, initialise_linear, zero_bias
from clockhands.schemes import Scheme

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@torch.no_grad()
def draw_by_name(model: PreTrainedModel, seed: int) -> None:
    """Draw the weights of a new model again, each module from a stream of its own."""
    core = model.model
    assert isinstance(core, Transformer)
    schemes = {name for name, module in core.named_modules() if isinstance(module, Scheme)}
    tied = {name.rpartition(".")[0] for name in core.tied()}
    for name, module in core.named_modules():
        torch.manual_seed(stream(seed, name))
        if name in schemes:
            reset = getattr(module, "reset_parameters", None)
            if reset is not None:
                reset()
        elif any(name.startswith(f"{scheme}.") for scheme in schemes):
            continue
        elif name in tied:
            zero_bias(module)
        elif isinstance(module, nn.Embedding):
            initialise_embedding(module, core.config)
        elif isinstance(module, nn.Linear):
            initialise_linear(module, core.config)
    torch.manual_seed(seed)


def stream(seed: int, name: str) -> int:
    """The seed of a module's own stream."""
    return int.from_bytes(hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=7).digest(), "big")
