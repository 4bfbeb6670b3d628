"""The KV caches of lean mode: buffers that grow, and the keys and values of a source."""

from __future__ import annotations

import torch

from clockhands.shapes import Float, Int, Tensor

__all__ = ["SMALLEST_BUFFER", "GrowingCache", "LayerCache", "SourceCache"]

SMALLEST_BUFFER = 16
"""A new buffer has room for this many tokens, or for twice the tokens that it begins with if that is more."""


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

    @property
    def keys(self) -> Float[Tensor, "B H T Kp"]:
        """Keys of all tokens of the source, which fill the buffer."""
        return self._keys

    @property
    def values(self) -> Float[Tensor, "B H T Kv"]:
        """Values of all tokens of the source."""
        return self._values


class SourceCache(GrowingCache):
    """The KV cache of cross-attention: keys and values of the source, which the first step computes."""

    layer_type = _SourceLayer


def _enlarge(
    new_BHNK: Float[Tensor, "B H N K"], old_BHTK: Float[Tensor, "_B _H T _K"], length: int
) -> Float[Tensor, "B H T2 K"]:
    """Return a buffer that begins with ``length`` old tokens, with room for twice as many as old and new ones.

    The old buffer of a layer without tokens has size 0 on every axis.
    """
    batch, heads, new, width = new_BHNK.shape
    buffer = new_BHNK.new_empty(batch, heads, max(SMALLEST_BUFFER, 2 * (length + new)), width)
    if length:
        buffer[:, :, :length] = old_BHTK[:, :, :length]
    return buffer
