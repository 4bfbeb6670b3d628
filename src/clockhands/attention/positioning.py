"""All hooks of a scheme in one object, for a stack of layers of one's own: none can be forgotten."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import torch
from torch import nn

from clockhands.attention.dispatch import attend
from clockhands.attention.request import GivenPositions, Mask, check_inputs, share_heads
from clockhands.errors import UsageError, show_value
from clockhands.schemes.arguments import explain_call
from clockhands.schemes.position_checks import can_read, check_position_tensor
from clockhands.schemes.scheme import Scheme
from clockhands.shapes import Float, Int, Num, Tensor


class _Kept(NamedTuple):
    """What a layer keeps of the tokens so far: keys and values, and where the tokens stand.

    ``owner``: the scheme under which they were kept, in words. ``first``: the least position of the first tokens of
    each text, or of all; ``last``: the largest of the newest. None where nobody knows.
    """

    k: Tensor
    v: Tensor
    places: Tensor
    rotated: bool
    owner: str
    first: list[float] | None
    last: list[float] | None


@dataclass
class Cache:
    """Keys, values and positions of the tokens so far, layer by layer; empty to begin with."""

    layers: dict[int, _Kept] = field(default_factory=dict)

    @property
    def length(self) -> int:
        """The number of tokens that are kept; the next one stands at this position."""
        return next((kept.k.shape[2] for kept in self.layers.values()), 0)

    def reorder(self, index: Int[Tensor, " B2"]) -> None:
        """Keep the texts of these indices, in their order, as a beam search does that goes on with some of them."""
        for layer, kept in self.layers.items():
            texts = torch.as_tensor(index, device=kept.k.device)
            places = kept.places if len(kept.places) == 1 else kept.places[texts]  # one row stands for all texts
            self.layers[layer] = kept._replace(k=kept.k[texts], v=kept.v[texts], places=places, first=None, last=None)

    def crop(self, length: int) -> None:
        """Keep the first tokens, so many, and forget those after them. Raises UsageError for more than there are."""
        if not isinstance(length, int) or not 0 <= length <= self.length:
            raise UsageError(
                f"length is {show_value(length)}, and the cache holds {self.length} tokens; give 0 to that"
            )
        for layer, kept in self.layers.items():
            k, v, places = kept.k[:, :, :length], kept.v[:, :, :length], kept.places
            places = places[:, :, :length] if places.dim() == 4 else places[:, :length]
            self.layers[layer] = kept._replace(k=k, v=v, places=places, last=_find_ends(places)[1])


class Positioning(nn.Module):
    """Calls every hook of a scheme where it belongs in a stack of layers: at the embedding, and in each attention.

    Args:
        scheme: one for all layers, or one for each of them.
        layers: their number; a scheme that learns for each layer (``per_layer``) is then copied for every one.

    Examples:
        >>> import torch
        >>> from clockhands.attention import Positioning
        >>> from clockhands.schemes import RoPE
        >>> position, pos = Positioning(RoPE(4)), torch.arange(3)
        >>> x = position.embed(torch.zeros(2, 3, 8), pos)
        >>> q = k = v = torch.ones(2, 2, 3, 4)
        >>> position.attend(0, q, k, v, pos, x=x, causal=True).shape
        torch.Size([2, 2, 3, 4])

    Raises UsageError for another number of schemes than ``layers``.
    """

    def __init__(self, scheme: Scheme | Sequence[Scheme], layers: int | None = None) -> None:
        super().__init__()
        schemes = [scheme] if isinstance(scheme, Scheme) else list(scheme) if isinstance(scheme, Iterable) else []
        if not schemes or not all(isinstance(entry, Scheme) for entry in schemes):
            raise UsageError("Positioning takes a scheme, such as RoPE(64), or a list of one for each layer")
        if layers is not None and not (isinstance(layers, int) and layers > 0):
            raise UsageError(f"layers is {layers!r}, but must be the number of layers, at least 1")
        if len(schemes) > 1 and layers not in (None, len(schemes)):
            raise UsageError(f"{len(schemes)} schemes were given for {layers} layers; give one, or one for each")
        if len(schemes) == 1 and layers is not None and schemes[0].per_layer:
            schemes += [copy.deepcopy(schemes[0]) for _ in range(layers - 1)]
            for copied in schemes[1:]:
                copied.reset_parameters()  # every layer begins with a draw of its own
        self.schemes, self.layers = nn.ModuleList(schemes), len(schemes) if len(schemes) > 1 else layers
        self._shown = [repr(entry) for entry in schemes]

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Refuse a call: a stack calls ``embed`` once and ``attend`` in each layer."""
        raise UsageError(
            "Positioning is not called itself: write position.embed(x, pos), and position.attend in each layer"
        )

    def get_scheme(self, layer: int) -> Scheme:
        """Return the scheme of a layer. Raises UsageError for a layer that has none."""
        if not isinstance(layer, int) or not 0 <= layer < (self.layers or layer + 1):
            most = "" if self.layers is None else f" to {self.layers - 1}"
            raise UsageError(f"layer is {show_value(layer)}, but must be the number of a layer, from 0{most}")
        schemes = self.schemes
        return cast(Scheme, schemes[layer if len(schemes) > 1 else 0])

    @explain_call
    def embed(self, x_BSD: Float[Tensor, "B S D"], pos: GivenPositions, layer: int = 0) -> Float[Tensor, "B S D"]:
        """Return embeddings with what the scheme adds to them, [B, S, D]: once, before the first layer.

        ``layer``: the layer before which it is added, for a scheme that adds again at every one (``universal``). Raises
        UsageError for vectors of another width than the embeddings, PositionError as ``encode`` does.
        """
        pos = check_position_tensor(pos, "positions")
        added = None
        for scheme in dict.fromkeys(self.schemes if layer == 0 else [self.get_scheme(layer)]):
            vectors = cast(Scheme, scheme).encode(pos, layer)
            if vectors is None:
                continue
            name = type(scheme).__name__
            fits = x_BSD.dim() == 3 and vectors.shape[-2:] == x_BSD.shape[-2:] and len(vectors) in (1, len(x_BSD))
            if not fits or not x_BSD.is_floating_point():
                raise UsageError(
                    f"{name} makes vectors {list(vectors.shape)}, and embeddings are {list(x_BSD.shape)} of "
                    f"{x_BSD.dtype}, but must be floats [batch, tokens, width]; give it their width, and one position "
                    f"for each token"
                )
            added = vectors if added is None else added + vectors
        return x_BSD if added is None else x_BSD + added.to(x_BSD.dtype)

    @explain_call
    def attend(
        self,
        layer: int,
        q_BHSK: Float[Tensor, "B H S K"],
        k_BGSK: Float[Tensor, "B G S K"],
        v_BGSK: Float[Tensor, "B G S Kv"],
        pos: GivenPositions,
        mask_BHST: Mask | None = None,
        *,
        x: Float[Tensor, "B S D"] | None = None,
        causal: bool = False,
        cache: Cache | None = None,
        dropout: float = 0.0,
    ) -> Float[Tensor, "B H S Kv"]:
        """Compute self-attention of one layer with its scheme: [B, H, S, Kv].

        ``x`` is the input of the layer, from which q, k and v were projected: some schemes place tokens by it.
        ``cache``: the tokens so far, to which these are added. The other arguments and the errors are those of
        ``attention.attend``. Raises UsageError where ``x`` is missing, and for a cache that was filled under another
        scheme or that, without a mask, holds tokens at later positions than these, or none but at theirs.
        """
        scheme = self.get_scheme(layer)
        places = counted = check_position_tensor(pos, "positions")
        owner = self._shown[layer if len(self._shown) > 1 else 0]
        kept = None if cache is None else _take(cache, layer, owner)
        if "locate" in scheme.active_hooks():
            if x is None:
                name = type(scheme).__name__
                raise UsageError(f"with {name} tokens place themselves, from the input of the layer: pass it as x=...")
            if x.shape[:2] != (q_BHSK.shape[0], q_BHSK.shape[-2]):
                raise UsageError(
                    f"x is {list(x.shape)}, and q {list(q_BHSK.shape)}; x is the input from which q was projected"
                )
            located = scheme.locate(x, places, None if kept is None else kept.places)
            places = places if located is None else located
        if cache is None:
            return attend(scheme, q_BHSK, k_BGSK, v_BGSK, places, places, mask_BHST, causal=causal, dropout=dropout)
        if not torch.compiler.is_compiling():
            check_inputs(scheme, q_BHSK, k_BGSK, v_BGSK, places, places, rotated=False)
        rotated = scheme.declares.cache == "rotated" if kept is None else kept.rotated
        q, k, v, scale = q_BHSK, k_BGSK, v_BGSK, scheme.scale(q_BHSK.shape[-1])
        if rotated:
            if q.shape[1] != k.shape[1] and (scheme.rotates_by_head or places.dim() == 4):
                k, v = share_heads(q.shape[1], k), share_heads(q.shape[1], v)
            q, k = scheme.rotate(q, k, places, places)
            v = scheme.rotate_values(v, places, places)
        first, last = _find_ends(counted)
        if kept is None:
            # The places are copied: a caller may count on in one tensor.
            new = _Kept(k, v, places.clone(), rotated, owner, first, last)
        else:
            _check_order(kept, k, layer, first if mask_BHST is None else None)
            # One row of places stands for all texts.
            rows = max(len(kept.places), len(places))
            rowwise = [own.expand(rows, *own.shape[1:]) for own in (kept.places, places)]
            joined = torch.cat(rowwise, 2 if places.dim() == 4 else 1)
            new = _Kept(torch.cat([kept.k, k], 2), torch.cat([kept.v, v], 2), joined, rotated, owner, kept.first, last)
        out_BHSK = attend(
            scheme, q, new.k, new.v, places, new.places, mask_BHST,
            causal=causal, scale=scale, rotated=rotated, dropout=dropout,
        )  # fmt: skip
        cache.layers[layer] = new
        return out_BHSK


def _take(cache: Any, layer: int, owner: str) -> _Kept | None:
    """Return what a layer keeps in a cache, if anything. Raises UsageError for no cache, or one of another scheme."""
    if not isinstance(cache, Cache):
        raise UsageError(f"cache is {show_value(cache)}, but must be a Cache() of clockhands.attention, one for a text")
    kept = cache.layers.get(layer)
    if kept is not None and kept.owner != owner:
        raise UsageError(
            f"the cache of layer {layer} was filled under {kept.owner}, and this layer has {owner}; begin each text "
            f"with a new Cache()"
        )
    return kept


def _check_order(kept: _Kept, k: Tensor, layer: int, first: list[Any] | None) -> None:
    """Raise UsageError for keys of another shape than those that are kept, and for tokens that go back.

    ``first``: their least position, of each text or of all; None where their order does not say who is behind whom.
    Bytes of a word and notes of a chord may share their position, but not all tokens since the first.
    """
    old, now = kept.k.shape, k.shape
    if (old[0], old[1], old[3]) != (now[0], now[1], now[3]):
        raise UsageError(
            f"the cache of layer {layer} holds keys {list(old)}, and the new ones are {list(now)}; begin each text "
            f"with a new Cache()"
        )
    if first is None or kept.last is None:
        return
    rows = max(len(kept.last), len(first))  # one row stands for all texts
    starts: list[Any] = kept.first or [None]
    lasts = kept.last
    for row in range(rows):
        start, last, place = starts[row % len(starts)], lasts[row % len(lasts)], first[row % len(first)]
        if place < last or place == last == start:
            raise UsageError(
                f"the cache of layer {layer} holds tokens up to position {last:g}, and the new ones begin at "
                f"{place:g}; give each layer its own index and each token the next position, begin a new Cache(), "
                f"or pass a mask that says who sees whom"
            )


def _find_ends(pos: Num[Tensor, "B S ..."]) -> tuple[list[Any], list[Any]] | tuple[None, None]:
    """Return the least and the largest position of each row; None where they are not on a line, or may not be read."""
    if pos.dim() != 2 or pos.device.type != "cpu" or not can_read(pos):
        return None, None
    if pos.shape[1] == 1:
        ends = [row[0] for row in pos.tolist()]
        return ends, ends
    return pos.amin(1).tolist(), pos.amax(1).tolist()
