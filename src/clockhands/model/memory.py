"""Keys that remember where they stand: what a cache of keys and values must keep for a scheme, and how.

Positions (or the coordinates a scheme gave its tokens) ride as extra channels of the keys, bit for bit, so that any
cache that can hold, reorder, crop or move keys holds, reorders, crops and moves positions with them.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch

from clockhands.errors import PositionError
from clockhands.schemes import Scheme
from clockhands.schemes.scheme import KeyPositions
from clockhands.shapes import Float, Num, Tensor


@runtime_checkable
class KeyCache(Protocol):
    """What a layer asks of a cache: the caches of transformers have it."""

    layers: list[Any]

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int) -> tuple[Tensor, Tensor]: ...

    def get_seq_length(self, layer_idx: int = 0) -> int | Tensor: ...


def keeps_positions(scheme: Scheme) -> bool:
    """Whether a scheme needs the positions of earlier keys again at every step."""
    hooks = scheme.active_hooks()
    turns_again = scheme.declares.cache == "raw" and "rotate" in hooks
    return turns_again or bool(hooks & {"locate", "bias", "logits", "weigh", "values"})


def check_exact(scheme: Scheme, cache: KeyCache, layer: int) -> None:
    """Raise PositionError if a cache would round the positions that ride with the keys, as quantized caches do."""
    if layer < len(cache.layers) and hasattr(cache.layers[layer], "_quantize") and keeps_positions(scheme):
        raise PositionError(
            f"{type(scheme).__name__} needs the positions of earlier keys again, and a quantized cache "
            f"({type(cache.layers[layer]).__name__}) would round them; generate with the default cache or a static one"
        )


def check_whole(stored_BHTK: Float[Tensor, "B H T K"], length: int) -> None:
    """Raise PositionError if a cache gave back fewer keys than there were, as sliding windows do."""
    if stored_BHTK.shape[2] < length:
        raise PositionError(
            f"of {length} keys the cache kept {stored_BHTK.shape[2]}, and this model looks at all of them; generate "
            f"with the default cache or a static one, not with a sliding window"
        )


def carrier(k_dtype: torch.dtype, pos_dtype: torch.dtype) -> torch.dtype:
    """The float that carries a position: float32 holds integers to 16,777,216; float64 only where it is in use."""
    return torch.float64 if torch.float64 in (k_dtype, pos_dtype) else torch.float32


def attach(k_BHTK: Float[Tensor, "B H T K"], kpos_BT: KeyPositions) -> Float[Tensor, "B H T Kp"]:
    """Keys with the bits of their positions appended as channels of the keys' own dtype."""
    batch, heads, length, _ = k_BHTK.shape
    pos = kpos_BT[..., None] if kpos_BT.dim() == 2 else kpos_BT
    pos = pos[:, None] if pos.dim() == 3 else pos
    bits = pos.detach().to(carrier(k_BHTK.dtype, kpos_BT.dtype)).contiguous().view(k_BHTK.dtype)
    return torch.cat([k_BHTK, bits.expand(batch, heads, length, -1)], dim=-1)


def detach(
    stored_BHTK: Float[Tensor, "B H T Kp"], width: int, like_BS: Num[Tensor, ...]
) -> tuple[Float[Tensor, "B H T K"], KeyPositions]:
    """Keys of ``width`` channels and their positions again, in the form and dtype of the new tokens' positions."""
    dtype = carrier(stored_BHTK.dtype, like_BS.dtype)
    pos_BHTA = stored_BHTK[..., width:].contiguous().view(dtype).to(like_BS.dtype)
    if like_BS.dim() == 4:
        return stored_BHTK[..., :width], pos_BHTA
    pos_BTA = pos_BHTA[:, 0]
    return stored_BHTK[..., :width], pos_BTA[..., 0] if like_BS.dim() == 2 else pos_BTA


def past_coordinates(cache: KeyCache, layer: int, width: int) -> Float[Tensor, "B H T A"] | None:
    """The coordinates that the cached tokens of a layer gave themselves; None before the first.

    ``width`` is the head's: a scheme that places its tokens itself does not widen its keys.
    """
    length = int(cache.get_seq_length(layer))
    if length == 0:
        return None
    stored_BHTK = cache.layers[layer].keys[..., :length, :]
    like = stored_BHTK.new_empty((1, 1, 1, 1), dtype=torch.float32)
    return detach(stored_BHTK, width, like)[1]
