"""The KV cache: what it must keep for a scheme, and how positions are stored with the keys.

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
class KVCache(Protocol):
    """What a layer needs of a cache of keys and values: the caches of transformers have it."""

    layers: list[Any]

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int) -> tuple[Tensor, Tensor]:
        """Append keys and values [B, H, S, K] of a layer, and return all that it now holds."""
        ...

    def get_seq_length(self, layer_idx: int = 0) -> int | Tensor:
        """Return the number of tokens that a layer holds."""
        ...


def keeps_positions(scheme: Scheme) -> bool:
    """Whether a scheme needs the positions of cached keys again at every step."""
    hooks = scheme.active_hooks()
    rotates_again = scheme.declares.cache == "raw" and "rotate" in hooks
    return rotates_again or bool(hooks & {"locate", "bias", "logits", "weigh", "values"})


def refuse_quantized(scheme: Scheme, cache: KVCache, layer: int) -> None:
    """Raise PositionError if a cache would round the positions stored with the keys, as quantized caches do."""
    if layer < len(cache.layers) and hasattr(cache.layers[layer], "_quantize") and keeps_positions(scheme):
        raise PositionError(
            f"{type(scheme).__name__} needs the positions of earlier keys again, and a quantized cache "
            f"({type(cache.layers[layer]).__name__}) would round them; generate with the default cache or a static one"
        )


def refuse_sliding(stored_BHTK: Float[Tensor, "B H T K"], length: int) -> None:
    """Raise PositionError if a cache gave back fewer keys than there were, as sliding windows do."""
    if stored_BHTK.shape[2] < length:
        raise PositionError(
            f"of {length} keys the cache kept {stored_BHTK.shape[2]}, and this model attends to all of them; generate "
            f"with the default cache or a static one, not with a sliding window"
        )


def carrier_dtype(k_dtype: torch.dtype, pos_dtype: torch.dtype) -> torch.dtype:
    """Choose the float that stores a position: float32 holds integers to 16,777,216; float64 where it is in use."""
    return torch.float64 if torch.float64 in (k_dtype, pos_dtype) else torch.float32


def append_positions(k_BHTK: Float[Tensor, "B H T K"], kpos_BT: KeyPositions) -> Float[Tensor, "B H T Kp"]:
    """Append the bits of their positions to keys, as more channels of the keys' own dtype."""
    batch, heads, length, _ = k_BHTK.shape
    pos = kpos_BT[..., None] if kpos_BT.dim() == 2 else kpos_BT
    pos = pos[:, None] if pos.dim() == 3 else pos
    bits = pos.detach().to(carrier_dtype(k_BHTK.dtype, kpos_BT.dtype)).contiguous().view(k_BHTK.dtype)
    return torch.cat([k_BHTK, bits.expand(batch, heads, length, -1)], dim=-1)


def split_positions(
    stored_BHTK: Float[Tensor, "B H T Kp"], width: int, like_BS: Num[Tensor, "*any"]
) -> tuple[Float[Tensor, "B H T K"], KeyPositions]:
    """Split stored keys into ``width`` channels of keys and their positions, in the form and dtype of ``like_BS``."""
    dtype = carrier_dtype(stored_BHTK.dtype, like_BS.dtype)
    pos_BHTA = stored_BHTK[..., width:].contiguous().view(dtype).to(like_BS.dtype)
    if like_BS.dim() == 4:
        return stored_BHTK[..., :width], pos_BHTA
    pos_BTA = pos_BHTA[:, 0]
    return stored_BHTK[..., :width], pos_BTA[..., 0] if like_BS.dim() == 2 else pos_BTA


def read_coordinates(cache: KVCache, layer: int, width: int) -> Float[Tensor, "B H T A"] | None:
    """Read the coordinates that the cached tokens of a layer gave themselves; None before the first.

    ``width`` is the head's: a scheme that places its tokens itself does not widen its keys.
    """
    length = int(cache.get_seq_length(layer))
    if length == 0:
        return None
    stored_BHTK = cache.layers[layer].keys[..., :length, :]
    like = stored_BHTK.new_empty((1, 1, 1, 1), dtype=torch.float32)
    return split_positions(stored_BHTK, width, like)[1]
