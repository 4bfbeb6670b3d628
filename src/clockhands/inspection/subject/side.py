"""The side of an encoder-decoder that is inspected: its encoder or its decoder."""

from __future__ import annotations

from typing import Literal, TypeAlias

from clockhands.errors import UsageError

Side: TypeAlias = Literal["encoder", "decoder"]
"""One of the two stacks of an encoder-decoder."""


def choose_side(side: Side | None, is_encoder_decoder: bool, name: str) -> Side | None:
    """Return the side of the model ``name`` to inspect. Raises UsageError for a side that it does not have."""
    if side is not None and not is_encoder_decoder:
        raise UsageError(f"{name} is no encoder-decoder, so it has no {side} side to choose; leave the side out")
    return (side or "encoder") if is_encoder_decoder else None
