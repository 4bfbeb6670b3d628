"""The KV cache: whether it must store positions for a scheme, how it stores them, and the caches of lean mode.

Positions, or the coordinates that a scheme gave its tokens, are stored in the key tensor: their float32 bits, read as
numbers of the keys' dtype (``Tensor.view``), are further channels. So any cache that only stores, reorders, crops or
moves keys keeps positions exactly.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch

from clockhands.errors import PositionError
from clockhands.schemes import Scheme
from clockhands.schemes.composition_rules import AFTER_ROTATE
from clockhands.schemes.scheme import KeyPositions
from clockhands.shapes import Float, Int, Num, Tensor

__all__ = [
    "SMALLEST_BUFFER",
    "GrowingCache",
    "KVCache",
    "LayerCache",
    "SourceCache",
    "acts_in_attention",
    "append_positions",
    "choose_position_dtype",
    "count_cached_tokens",
    "get_cache_capacity",
    "may_share_keys",
    "needs_stored_positions",
    "read_coordinates",
    "refuse_quantized_cache",
    "refuse_sliding_cache",
    "split_positions",
]

SMALLEST_BUFFER = 16
"""Tokens that the first buffer of a growing cache has room for."""


@runtime_checkable
class KVCache(Protocol):
    """What a layer needs of a KV cache: the caches of transformers have it, and so has ``GrowingCache``."""

    layers: list[Any]

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


def refuse_quantized_cache(scheme: Scheme, cache: KVCache, layer: int) -> None:
    """Raise PositionError if a cache would round the positions stored with the keys, as quantized caches do."""
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


def choose_position_dtype(k_dtype: torch.dtype, pos_dtype: torch.dtype) -> torch.dtype:
    """Return the dtype that stores positions: float32, exact to 16,777,216; float64 if keys or positions have it."""
    return torch.float64 if torch.float64 in (k_dtype, pos_dtype) else torch.float32


def append_positions(k_BHTK: Float[Tensor, "B H T K"], kpos_BT: KeyPositions) -> Float[Tensor, "B H T Kp"]:
    """Append the bits of positions [B, T], [B, T, A] or [B, H, T, A] to keys, as channels of the keys' dtype."""
    batch, heads, length, _ = k_BHTK.shape
    pos = kpos_BT[..., None] if kpos_BT.dim() == 2 else kpos_BT
    pos = pos[:, None] if pos.dim() == 3 else pos
    bits = pos.detach().to(choose_position_dtype(k_BHTK.dtype, kpos_BT.dtype)).contiguous().view(k_BHTK.dtype)
    return torch.cat([k_BHTK, bits.expand(batch, heads, length, -1)], dim=-1)


def split_positions(
    stored_BHTKp: Float[Tensor, "B H T Kp"], k_width: int, like: Num[Tensor, "*any"]
) -> tuple[Float[Tensor, "B H T K"], KeyPositions]:
    """Split stored keys into keys of ``k_width`` channels (of rotated keys the rotated width) and positions.

    The positions get the dtype and the axes of ``like``, which is [B, S], [B, S, A] or [B, H, S, A]; its sizes are not
    read.
    """
    dtype = choose_position_dtype(stored_BHTKp.dtype, like.dtype)
    pos_BHTA = stored_BHTKp[..., k_width:].contiguous().view(dtype).to(like.dtype)
    if like.dim() == 4:
        return stored_BHTKp[..., :k_width], pos_BHTA
    pos_BTA = pos_BHTA[:, 0]
    return stored_BHTKp[..., :k_width], pos_BTA[..., 0] if like.dim() == 2 else pos_BTA


def read_coordinates(cache: KVCache, layer: int, head_dim: int) -> Float[Tensor, "B H T A"] | None:
    """Read the coordinates that ``locate`` gave the cached tokens of a layer: [B, H, T, A]; None if none is cached.

    The cached keys are ``head_dim`` wide: no scheme with ``locate`` changes their width when it rotates.
    """
    length = int(cache.get_seq_length(layer))
    if length == 0:
        return None
    stored_BHTK = cache.layers[layer].keys[..., :length, :]
    like = stored_BHTK.new_empty((1, 1, 1, 1), dtype=torch.float32)
    return split_positions(stored_BHTK, head_dim, like)[1]


def count_cached_tokens(cache: KVCache | None) -> int | Tensor:
    """Return the number of cached tokens; while a static cache is traced, it is known only as a tensor."""
    past = 0 if cache is None else cache.get_seq_length()
    return past if isinstance(past, int) or torch.compiler.is_compiling() else int(past)


def get_cache_capacity(cache: KVCache | None) -> int:
    """Return how many tokens a cache of fixed size can hold; 0 without a cache."""
    return 0 if cache is None else int(cache.layers[0].max_cache_len)


class LayerCache:
    """Keys and values of one layer, in buffers with room for more tokens.

    The layout is [B, H, T, K], contiguous for each head, so that a kernel reads the keys of a head in one sweep.
    """

    def __init__(self) -> None:
        self.length = 0
        # Buffers [B, H, room, K], of which the first ``length`` tokens are in use.
        self._keys = self._values = torch.empty(0, 0, 0, 0)

    @property
    def keys(self) -> Float[Tensor, "B H T Kp"]:
        """Keys of all cached tokens; of sizes 0 before the first token."""
        return self._keys[:, :, : self.length]

    @property
    def values(self) -> Float[Tensor, "B H T Kv"]:
        """Values of all cached tokens; of sizes 0 before the first token."""
        return self._values[:, :, : self.length]

    def append(self, keys: Float[Tensor, "B H N Kp"], values: Float[Tensor, "B H N Kv"]) -> tuple[Tensor, Tensor]:
        """Write keys and values after the cached ones, and return all: [B, H, T, Kp] and [B, H, T, Kv]."""
        start, end = self.length, self.length + keys.shape[2]
        if end > self._keys.shape[2]:
            self._keys, self._values = _enlarge(keys, self._keys, start), _enlarge(values, self._values, start)
        self._keys[:, :, start:end] = keys
        self._values[:, :, start:end] = values
        self.length = end
        return self._keys[:, :, :end], self._values[:, :, :end]

    def select(self, rows: Int[Tensor, " N"]) -> None:
        """Keep these rows of the batch, in this order."""
        if self.length:
            # With the room after the cached tokens: without it the next step would copy everything once more.
            self._keys, self._values = self._keys[rows], self._values[rows]


class GrowingCache:
    """A KV cache whose buffers double when they are full, so that most steps write only their own tokens.

    ``select`` copies all that is cached, and keeps the room for further tokens.
    """

    layer_type: type[LayerCache] = LayerCache

    def __init__(self, num_layers: int) -> None:
        self.layers = [self.layer_type() for _ in range(num_layers)]

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int) -> tuple[Tensor, Tensor]:
        """Append keys and values [B, H, N, K] of one layer, and return all of that layer."""
        return self.layers[layer_idx].append(key_states, value_states)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return how many tokens are cached."""
        return self.layers[layer_idx].length

    def select(self, rows: Int[Tensor, " N"]) -> None:
        """Keep these rows of the batch, in this order."""
        for layer in self.layers:
            layer.select(rows)


class _SourceLayer(LayerCache):
    """Keys and values of the source in one layer, which are appended once: there is no room for more."""

    def append(self, keys: Float[Tensor, "B H N Kp"], values: Float[Tensor, "B H N Kv"]) -> tuple[Tensor, Tensor]:
        """Keep the keys and values of the whole source, and return them."""
        self._keys, self._values, self.length = keys.contiguous(), values.contiguous(), keys.shape[2]
        return self._keys, self._values


class SourceCache(GrowingCache):
    """The KV cache of cross-attention: keys and values of the source, which the first step computes."""

    layer_type = _SourceLayer


def _enlarge(
    new_BHNK: Float[Tensor, "B H N K"], old_BHTK: Float[Tensor, "_B _H T _K"], length: int
) -> Float[Tensor, "B H T2 K"]:
    """Return a buffer with room for the new tokens and as many again, which begins with ``length`` of the old ones."""
    batch, heads, new, width = new_BHNK.shape
    buffer = new_BHNK.new_empty(batch, heads, max(SMALLEST_BUFFER, 2 * (length + new)), width)
    if length:
        buffer[:, :, :length] = old_BHTK[:, :, :length]
    return buffer
