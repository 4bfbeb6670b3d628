"""All hooks of a scheme in one object, for a stack of layers of one's own: none can be forgotten."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import torch
from torch import nn

from clockhands.attention.dispatch import attend
from clockhands.attention.request import GivenPositions, Mask, check_inputs, share_heads
from clockhands.errors import UsageError
from clockhands.schemes.arguments import explain_call
from clockhands.schemes.position_checks import check_position_tensor
from clockhands.schemes.scheme import Scheme
from clockhands.shapes import Float, Tensor


class _Kept(NamedTuple):
    """What a layer keeps of the tokens so far: keys and values, and where the tokens stand."""

    k: Tensor
    v: Tensor
    places: Tensor


@dataclass
class Cache:
    """Keys, values and positions of the tokens so far, layer by layer; empty to begin with."""

    layers: dict[int, _Kept] = field(default_factory=dict)

    @property
    def length(self) -> int:
        """The number of tokens that are kept; the next one stands at this position."""
        return next((kept.k.shape[2] for kept in self.layers.values()), 0)


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
        schemes = [scheme] if isinstance(scheme, Scheme) else list(scheme)
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
        self.schemes = nn.ModuleList(schemes)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Refuse a call: a stack calls ``embed`` once and ``attend`` in each layer."""
        raise UsageError(
            "Positioning is not called itself: write position.embed(x, pos), and position.attend in each layer"
        )

    def get_scheme(self, layer: int) -> Scheme:
        """Return the scheme of a layer. Raises UsageError for a layer that has none."""
        if len(self.schemes) == 1:
            return cast(Scheme, self.schemes[0])
        if not isinstance(layer, int) or not 0 <= layer < len(self.schemes):
            raise UsageError(
                f"there are schemes for {len(self.schemes)} layers, counted from 0, and none for {layer!r}"
            )
        return cast(Scheme, self.schemes[layer])

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
        ``attention.attend``. Raises UsageError where ``x`` is missing.
        """
        scheme = self.get_scheme(layer)
        kept = None if cache is None else cache.layers.get(layer)
        places = check_position_tensor(pos, "positions")
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
        scale, rotated = scheme.scale(q_BHSK.shape[-1]), scheme.declares.cache == "rotated"
        if rotated:
            if q_BHSK.shape[1] != k_BGSK.shape[1] and scheme.rotates_by_head:
                k_BGSK, v_BGSK = share_heads(q_BHSK.shape[1], k_BGSK), share_heads(q_BHSK.shape[1], v_BGSK)
            q_BHSK, k_BGSK = scheme.rotate(q_BHSK, k_BGSK, places, places)
            v_BGSK = scheme.rotate_values(v_BGSK, places, places)
        new = _Kept(k_BGSK, v_BGSK, places)
        if kept is not None:
            old, now = kept.k.shape, new.k.shape
            if (old[0], old[1], old[3]) != (now[0], now[1], now[3]):
                raise UsageError(
                    f"the cache of layer {layer} holds keys {list(old)}, and the new ones are {list(now)}; begin each "
                    f"text with a new Cache()"
                )
            axis, rows = (2 if places.dim() == 4 else 1), max(len(kept.places), len(places))
            both = [own.expand(rows, *own.shape[1:]) for own in (kept.places, places)]  # one row stands for all texts
            new = _Kept(torch.cat([kept.k, new.k], 2), torch.cat([kept.v, new.v], 2), torch.cat(both, axis))
        cache.layers[layer] = new
        return attend(
            scheme, q_BHSK, new.k, new.v, places, new.places, mask_BHST,
            causal=causal, scale=scale, rotated=rotated, dropout=dropout,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """Show nothing of its own: the schemes are shown."""
        return ""
