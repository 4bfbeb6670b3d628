"""Positions in a KV cache: whether it must store them for a scheme, how it stores them, and which caches cannot.

Positions, or the coordinates that a scheme gave its tokens, are stored in the key tensor: their bits in float32, or in
float64 if keys or positions are float64, are read as numbers of the keys' dtype (``Tensor.view``) and are further
channels. So any cache that only stores, reorders, crops or moves keys keeps positions exactly.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch

from clockhands.errors import PositionError
from clockhands.model.masks import has_padding_after_tokens
from clockhands.schemes import Chunks, Composition, Scheme, Sinks, Window
from clockhands.schemes.composition_rules import AFTER_ROTATE
from clockhands.schemes.distance import DistanceBias
from clockhands.schemes.scheme import KeyPositions
from clockhands.shapes import Bool, Float, Num, Tensor

OUTSIDE_OF_WEIGHTS = frozenset({"encode", "rotate", "rotate_values", "rotate_back"})
"""Hooks that read no keys to which a query does not attend."""


@runtime_checkable
class KVCache(Protocol):
    """What a layer needs of a KV cache; the caches of transformers have it."""

    layers: list[Any]  # of transformers' classes of layers

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int) -> tuple[Tensor, Tensor]:
        """Append keys and values [B, H, S, K] of a layer, and return all that it now holds."""
        ...

    def get_seq_length(self, layer_idx: int = 0) -> int | Tensor:
        """Return the number of tokens that a layer holds."""
        ...


def needs_stored_positions(scheme: Scheme) -> bool:
    """Return whether the cache must store positions with the keys: the scheme needs them again at every step."""
    hooks = scheme.active_hooks()
    rotates_again = scheme.declares.cache == "raw" and "rotate" in hooks
    return rotates_again or "locate" in hooks or bool(hooks & AFTER_ROTATE)


def acts_in_attention(scheme: Scheme) -> bool:
    """Return whether attention calls any hook of a scheme, ``rotate`` included."""
    return needs_stored_positions(scheme) or "rotate" in scheme.active_hooks()


def may_share_keys(scheme: Scheme) -> bool:
    """Return whether the query heads of a group may share one cached key head.

    They may not where a scheme rotates the keys of each head in its own way, or gives each head coordinates of its own.
    """
    return not scheme.rotates_by_head and "locate" not in scheme.active_hooks()


def find_window(scheme: Scheme) -> int | None:
    """Return how many tokens before its own a query can attend to, so that older keys need not be kept; None: all.

    Also None if a part of the scheme has a hook that may read the keys of tokens to which nobody attends.
    """
    parts = scheme.parts if isinstance(scheme, Composition) else (scheme,)
    for part in parts:
        # A bias by distance (a window is one), chunks and ``Sinks`` (learned logits that stand for no token) change
        # only the weights of keys to which the query attends.
        if not isinstance(part, (Chunks, DistanceBias, Sinks)) and not part.active_hooks() <= OUTSIDE_OF_WEIGHTS:
            return None
    windows = [part.left for part in parts if isinstance(part, Window)]
    windows += [part.size - 1 for part in parts if isinstance(part, Chunks)]
    return min(windows, default=None)


def keeps_window(cache: KVCache, layer: int) -> bool:
    """Return whether a layer of a cache keeps the keys of the layer's window alone (``window_cache``)."""
    # Some caches of transformers have no entry for a layer before its first tokens.
    return layer < len(cache.layers) and getattr(cache.layers[layer], "is_window_layer", False)


def refuse_padding_after_tokens(cache: KVCache, mask_BT: Bool[Tensor, "B T"] | None) -> None:
    """Raise PositionError if padding follows a token and the cache keeps only the keys of the last places of a row.

    Padding counts as a place but not as a position, so that a window may reach keys that such a cache has dropped.
    """
    if mask_BT is None or not any(keeps_window(cache, layer) for layer in range(len(cache.layers))):
        return
    if has_padding_after_tokens(mask_BT):
        raise PositionError(
            "the attention_mask has padding after tokens, and this cache keeps only the keys of the last places of a "
            "row, so that keys within the window may be missing; pad on the left, or pass "
            "a DynamicCache() of your own, or EncoderDecoderCache(DynamicCache(), DynamicCache()) to an "
            "encoder-decoder"
        )


def refuse_quantized_cache(scheme: Scheme, cache: KVCache, layer: int) -> None:
    """Raise PositionError if a cache would round the positions stored with the keys, as quantized caches do."""
    # Quantized layers are known by a method of theirs, since this module does not import transformers.
    if layer < len(cache.layers) and hasattr(cache.layers[layer], "_quantize") and needs_stored_positions(scheme):
        raise PositionError(
            f"{type(scheme).__name__} needs the positions of earlier keys again, and a quantized cache "
            f"({type(cache.layers[layer]).__name__}) would round them; generate with the default cache or a static one"
        )


def refuse_sliding_cache(stored_BHTKp: Float[Tensor, "B H T Kp"], length: int) -> None:
    """Raise PositionError if a cache returned fewer than ``length`` keys, as one with a sliding window does."""
    if stored_BHTKp.shape[2] < length:
        raise PositionError(
            f"of {length} keys the cache kept {stored_BHTKp.shape[2]}, and this model attends to all of them; generate "
            f"with the default cache or a static one, not with a sliding window"
        )


def _choose_position_dtype(k_dtype: torch.dtype, pos_dtype: torch.dtype) -> torch.dtype:
    """Return the dtype that stores positions: float32, exact to 16,777,216; float64 if keys or positions have it."""
    return torch.float64 if torch.float64 in (k_dtype, pos_dtype) else torch.float32


def append_positions(k_BHTK: Float[Tensor, "B H T K"], kpos: KeyPositions) -> Float[Tensor, "B H T Kp"]:
    """Append the bits of positions [B, T], [B, T, A] or [B, H, T, A] to keys, as channels of the keys' dtype."""
    batch, heads, length, _ = k_BHTK.shape
    pos = kpos[..., None] if kpos.dim() == 2 else kpos
    pos = pos[:, None] if pos.dim() == 3 else pos
    # Detached, because the coordinates of ``locate`` may carry a gradient, which bits cannot.
    bits = pos.detach().to(_choose_position_dtype(k_BHTK.dtype, kpos.dtype)).contiguous().view(k_BHTK.dtype)
    return torch.cat([k_BHTK, bits.expand(batch, heads, length, -1)], dim=-1)


def split_positions(
    stored_BHTKp: Float[Tensor, "B H T Kp"], k_width: int, like: Num[Tensor, "*any"]
) -> tuple[Float[Tensor, "B H T K"], KeyPositions]:
    """Split stored keys into keys and positions.

    ``k_width``: the width of a key as it is cached, which is that after ``rotate`` if it was cached rotated. The
    positions get the dtype and the axes of ``like``, which is [B, S], [B, S, A] or [B, H, S, A]; its sizes are not
    read.
    """
    dtype = _choose_position_dtype(stored_BHTKp.dtype, like.dtype)
    pos_BHTA = stored_BHTKp[..., k_width:].contiguous().view(dtype).to(like.dtype)
    if like.dim() == 4:
        return stored_BHTKp[..., :k_width], pos_BHTA
    pos_BTA = pos_BHTA[:, 0]
    return stored_BHTKp[..., :k_width], pos_BTA[..., 0] if like.dim() == 2 else pos_BTA


def read_coordinates(scheme: Scheme, cache: KVCache, layer: int, head_dim: int) -> Float[Tensor, "B H T A"] | None:
    """Read the coordinates that ``locate`` gave the cached tokens of a layer: [B, H, T, A]; None if none is cached.

    ``head_dim``: the width of a key before ``rotate``, which may widen it (``Scheme.widening``).
    """
    length = int(cache.get_seq_length(layer))
    if length == 0:
        return None
    stored_BHTKp = cache.layers[layer].keys[..., :length, :]
    like = stored_BHTKp.new_empty((1, 1, 1, 1), dtype=torch.float32)
    k_width = head_dim * scheme.widening if scheme.declares.cache == "rotated" else head_dim
    return split_positions(stored_BHTKp, k_width, like)[1]


def count_cached_tokens(cache: KVCache | None) -> int | Tensor:
    """Return the number of cached tokens; while a static cache is traced, it is known only as a tensor."""
    past = 0 if cache is None else cache.get_seq_length()
    return past if isinstance(past, int) or torch.compiler.is_compiling() else int(past)
