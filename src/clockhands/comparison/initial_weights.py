"""The same initial weights in every variant, wherever names and shapes agree.

A model draws its weights from one stream, so that one parameter more shifts all that follow. Here each module draws
from a stream of its own, seeded by the trial's seed and the module's name.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from clockhands.model.huggingface_base import ClockhandsPreTrainedModel


@torch.no_grad()
def draw_by_name(model: ClockhandsPreTrainedModel, seed: int) -> None:
    """Draw the weights of a new model again, each module from a stream of its own."""
    for name, draw in model.transformer.list_initialisers(schemes=True):
        torch.manual_seed(derive_seed(seed, name))
        draw()
    torch.manual_seed(seed)


def derive_seed(seed: int, name: str) -> int:
    """Return the seed of the stream from which a module of this name is drawn."""
    return int.from_bytes(hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=7).digest(), "big")
