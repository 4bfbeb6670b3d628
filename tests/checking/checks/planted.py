"""A small correct decoder in plain PyTorch, and the same with one bug each.

``Correct`` handles padding, a cache, packing, gaps and low precision as it should. Each subclass overrides one method
with one classical mistake and names the checks that fail on it. ``Absolute`` is correct too, with a learned table in
place of rotation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

VOCABULARY, WIDTH, HEADS, HEAD = 60, 32, 2, 16
STEPS = {"cache.steps", "cache.chunks"}
REUSED = {*STEPS, "cache.rollback", "cache.prefix", "cache.reorder"}
UNEVEN = {"cache.mask", "cache.left_mask", "cache.prefill", "cache.padded"}
LEFT = {"padding.left.mask", "padding.left.positions", "padding.content", "cache.padded"}

PLANTED: dict[type[Correct], set[str]] = {}
"""Each bug with the checks that must fail on it; no other check may."""


def fails(*checks: str) -> Callable[[type[Correct]], type[Correct]]:
    """Plant a bug: the checks named fail on the decorated model, and no others."""

    def plant(bug: type[Correct]) -> type[Correct]:
        PLANTED[bug] = set(checks)
        return bug

    return plant


class Cache:
    """Keys and values of every layer, with the position and the document of every key."""

    def __init__(self) -> None:
        self.layers: dict[int, tuple[Tensor, Tensor]] = {}
        self.positions: Tensor | None = None
        self.documents: Tensor | None = None

    @property
    def length(self) -> int:
        return 0 if self.positions is None else self.positions.shape[1]


class Correct(nn.Module):
    causal = True
    max_length = 64
    packs = True

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.qkv = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(2))
        self.out = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.make_tables()

    def make_tables(self) -> None:
        self.register_buffer("inv_freq", 1000.0 ** (-torch.arange(0, HEAD, 2).float() / HEAD))

    def _apply(self, function, recurse: bool = True):  # type: ignore[no-untyped-def]
        """Frequencies stay in float32 whatever the weights are cast to."""
        super()._apply(function, recurse)
        if "inv_freq" in self._buffers:
            self.inv_freq = self.inv_freq.float()
        return self

    def new_cache(self) -> Cache:
        return Cache()

    def roll_back(self, cache: Cache, tokens: int) -> None:
        cache.layers = {i: (k[:, :, :-tokens], v[:, :, :-tokens]) for i, (k, v) in cache.layers.items()}
        cache.positions, cache.documents = cache.positions[:, :-tokens], cache.documents[:, :-tokens]

    def reorder(self, cache: Cache, rows: Tensor) -> None:
        cache.layers = {i: (k[rows], v[rows]) for i, (k, v) in cache.layers.items()}
        cache.positions, cache.documents = cache.positions[rows], cache.documents[rows]

    def forward(
        self, ids: Tensor, mask: Tensor | None = None, positions: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        cache = Cache() if cache is None else cache
        start = cache.length
        places = self.positions_of(ids, mask, positions, start)
        documents = self.documents_of(ids, places, positions, cache)
        self.remember(cache, places, documents)
        allowed = self.allowed(ids, mask, documents, cache)
        hidden = self.enter(ids, places)
        for index in range(2):
            hidden = hidden + self.attend(index, hidden, places, allowed, cache)
        return self.head(hidden)

    def enter(self, ids: Tensor, places: Tensor) -> Tensor:
        return self.embed(ids)

    def positions_of(self, ids: Tensor, mask: Tensor | None, positions: Tensor | None, start: int) -> Tensor:
        if positions is not None:
            return positions
        if mask is not None and mask.dim() == 2:
            return (mask.long().cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        return torch.arange(start, start + ids.shape[1], device=ids.device).repeat(ids.shape[0], 1)

    def documents_of(self, ids: Tensor, places: Tensor, positions: Tensor | None, cache: Cache) -> Tensor:
        """A document begins where the position falls."""
        before = places[:, :1] if cache.positions is None else cache.positions[:, -1:]
        falls = torch.cat([before, places], 1).diff(dim=1) < 0
        base = 0 if cache.documents is None else cache.documents[:, -1:]
        return base + falls.long().cumsum(1)

    def remember(self, cache: Cache, places: Tensor, documents: Tensor) -> None:
        joined = (places, documents)
        if cache.positions is not None:
            joined = (torch.cat([cache.positions, places], 1), torch.cat([cache.documents, documents], 1))
        cache.positions, cache.documents = joined

    def allowed(self, ids: Tensor, mask: Tensor | None, documents: Tensor, cache: Cache) -> Tensor:
        new, total = ids.shape[1], cache.length
        seen = torch.ones(new, total, dtype=torch.bool, device=ids.device).tril(total - new)
        if not self.causal:
            seen = torch.ones_like(seen)
        together = documents[:, :, None] == cache.documents[:, None]
        allowed = (seen & together)[:, None]
        if mask is not None:
            allowed = allowed & (mask if mask.dim() == 4 else mask[:, None, None].bool())
        return allowed

    def attend(self, index: int, hidden: Tensor, places: Tensor, allowed: Tensor, cache: Cache) -> Tensor:
        q, k, v = (self.split(x) for x in self.qkv[index](hidden).chunk(3, -1))
        q, k = self.rotate(q, places), self.rotate(k, places)
        if index in cache.layers:
            k, v = (torch.cat([old, new], 2) for old, new in zip(cache.layers[index], (k, v), strict=True))
        cache.layers[index] = self.keep(k, v)
        logits = self.score(q, k, cache)
        logits = logits.masked_fill(~allowed, torch.finfo(logits.dtype).min)
        mixed = logits.softmax(-1) @ v
        return self.out[index](mixed.transpose(1, 2).flatten(2))

    def score(self, q: Tensor, k: Tensor, cache: Cache) -> Tensor:
        return q @ k.transpose(-1, -2) / math.sqrt(HEAD)

    def keep(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return k, v

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (HEADS, HEAD)).transpose(1, 2)

    def angles(self, places: Tensor, x: Tensor) -> Tensor:
        return places[:, None, :, None].float() * self.inv_freq.float()

    def rotate(self, x: Tensor, places: Tensor) -> Tensor:
        angles = self.lay_out(self.angles(places, x))
        return self.turn(x, angles.cos().to(x.dtype), angles.sin().to(x.dtype))

    def lay_out(self, angles: Tensor) -> Tensor:
        return angles.repeat(1, 1, 1, 2)

    def turn(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat([-second, first], -1) * sin


class Absolute(Correct):
    """A learned table, added to the tokens; every length beyond it is refused by name."""

    def make_tables(self) -> None:
        self.position_embedding = nn.Embedding(self.max_length, WIDTH)

    def enter(self, ids: Tensor, places: Tensor) -> Tensor:
        if int(places.max()) >= self.max_length:
            raise ValueError(f"position {int(places.max())} is beyond the maximum length {self.max_length}")
        return self.embed(ids) + self.position_embedding(places)

    def rotate(self, x: Tensor, places: Tensor) -> Tensor:
        return x


class Alibi(Correct):
    """A bias by distance in place of rotation, made in float32."""

    max_length = 600

    def make_tables(self) -> None:
        self.register_buffer("steep", torch.tensor([0.5, 0.25]))

    def score(self, q: Tensor, k: Tensor, cache: Cache) -> Tensor:
        return super().score(q, k, cache) + self.bias(cache.positions, q.shape[2]).to(q.dtype)

    def bias(self, positions: Tensor, new: Tensor) -> Tensor:
        distance = positions[:, None, -new:, None] - positions[:, None, None]
        return -self.steep.float()[:, None, None] * distance

    def rotate(self, x: Tensor, places: Tensor) -> Tensor:
        return x


class Encoder(Correct):
    causal = False

    new_cache = None  # type: ignore[assignment]


@fails(*REUSED, *UNEVEN, "causal.future", "causal.prefix", "packing.block_mask", "length.short")
class NoCausalMask(Correct):
    """Every token of a document sees all of it."""

    def allowed(self, ids, mask, documents, cache):  # type: ignore[no-untyped-def]
        together = (documents[:, :, None] == cache.documents[:, None])[:, None]
        return together if mask is None else together & (mask if mask.dim() == 4 else mask[:, None, None].bool())


class SeesTheNext(Correct):
    """In the last layer one token sees the one after it: a leak into a single place."""

    place = 5

    def attend(self, index, hidden, places, allowed, cache):  # type: ignore[no-untyped-def]
        if index == 1 and allowed.shape[2] == allowed.shape[3] > self.place + 1:
            allowed = allowed.clone()
            allowed[:, :, self.place, self.place + 1] = True
        return super().attend(index, hidden, places, allowed, cache)


class DropoutLeftOn(Correct):
    def enter(self, ids, places):  # type: ignore[no-untyped-def]
        return nn.functional.dropout(self.embed(ids), 0.2, training=True)


@fails("precision.order")
class KeepsTheFirstPrecision(Correct):
    def rotate(self, x, places):  # type: ignore[no-untyped-def]
        tables = self.__dict__.setdefault("tables", {})
        key = (places.shape, int(places[0, 0]), int(places.sum()))
        if key not in tables:
            angles = self.lay_out(self.angles(places, x))
            tables[key] = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        return self.turn(x, *tables[key]).to(x.dtype)


@fails("packing.positions")
class OneDocument(Correct):
    def documents_of(self, ids, places, positions, cache):  # type: ignore[no-untyped-def]
        return torch.zeros_like(places)


class OneRowPacked(Correct):
    """Documents are taken in one row alone, as kernels for texts of unequal length want them: no mistake."""

    def forward(self, ids, mask=None, positions=None, cache=None):  # type: ignore[no-untyped-def]
        restarts = positions is not None and (positions.diff(dim=1) < 0).any()
        if len(ids) > 1 and (restarts or (mask is not None and mask.dim() == 4)):
            raise ValueError("packed documents are taken in one row")
        return super().forward(ids, mask, positions, cache)


@fails("packing.positions")
class OneRowOfOneDocument(OneDocument, OneRowPacked):
    pass


@fails("packing.gaps")
class GapsAreBorders(Correct):
    def documents_of(self, ids, places, positions, cache):  # type: ignore[no-untyped-def]
        if positions is None or cache.positions is not None:
            return super().documents_of(ids, places, positions, cache)
        borders = torch.cat([places[:, :1], places], 1).diff(dim=1) != 1
        borders[:, 0] = False
        return borders.long().cumsum(1)


@fails("precision.to")
class TableFollowsTheCast(Correct):
    def _apply(self, function, recurse: bool = True):  # type: ignore[no-untyped-def]
        return nn.Module._apply(self, function, recurse)


@fails("precision.distance", "precision.autocast")
class AnglesInLowPrecision(Correct):
    def angles(self, places, x):  # type: ignore[no-untyped-def]
        return places[:, None, :, None].to(x.dtype) * self.inv_freq.to(x.dtype)


@fails("precision.distance", "precision.autocast")
class AnglesOfLongTextsInLowPrecision(AnglesInLowPrecision):
    max_length = 20_000

    def angles(self, places, x):  # type: ignore[no-untyped-def]
        low = int(places.max()) > 8192
        return super().angles(places, x) if low else Correct.angles(self, places, x)


@fails("load.meta")
class TableNotSaved(Correct):
    def make_tables(self) -> None:
        super().make_tables()
        table = self.inv_freq
        del self._buffers["inv_freq"]
        self.register_buffer("inv_freq", table, persistent=False)


@fails("load.state")
class GrowingTable(Correct):
    def make_tables(self) -> None:
        super().make_tables()
        self.register_buffer("seen", torch.zeros(4))

    def enter(self, ids, places):  # type: ignore[no-untyped-def]
        if ids.shape[1] > self.seen.shape[0]:
            self.seen = torch.zeros(ids.shape[1])
        return super().enter(ids, places)


@fails("state.short", "state.medium", "length.mask")
class StretchedForGood(Correct):
    """Frequencies are lowered by a long text and never come back."""

    def enter(self, ids, places):  # type: ignore[no-untyped-def]
        if ids.shape[1] > 50:
            self.inv_freq = self.inv_freq * 0.5
        return super().enter(ids, places)


class BareIndexError(Absolute):
    def enter(self, ids, places):  # type: ignore[no-untyped-def]
        return self.embed(ids) + self.position_embedding(places)


class BeginsAgain(Absolute):
    def enter(self, ids, places):  # type: ignore[no-untyped-def]
        return super().enter(ids, places % self.max_length)


class TurnsAgain(Correct):
    def angles(self, places, x):  # type: ignore[no-untyped-def]
        return super().angles(places % self.max_length, x)


class StaysAtTheLast(Absolute):
    def enter(self, ids, places):  # type: ignore[no-untyped-def]
        return super().enter(ids, places.clamp(max=self.max_length - 1))


class TableTooShortForItsClaim(Absolute):
    max_length = 5000

    def make_tables(self) -> None:
        self.position_embedding = nn.Embedding(4096, WIDTH)


@fails("cache.rollback_rows")
class OnlyLeadingPadsAreMasked(Correct):
    """Of a mask only where the text begins is read: holes in it are attended to."""

    packs = False

    def documents_of(self, ids, places, positions, cache):  # type: ignore[no-untyped-def]
        return torch.zeros_like(places)

    def allowed(self, ids, mask, documents, cache):  # type: ignore[no-untyped-def]
        if mask is not None and mask.dim() == 2 and mask[:, -1].all():
            mask = mask.long().cummax(1).values.bool()
        return super().allowed(ids, mask, documents, cache)


@fails("length.mask")
class MaskCutAtTheEnd(Correct):
    """The mask is made one shorter than the longest text."""

    def allowed(self, ids, mask, documents, cache):  # type: ignore[no-untyped-def]
        if mask is not None and mask.dim() == 2 and mask.shape[1] == self.max_length:
            mask = mask.clone()
            mask[:, 0] = False
        return super().allowed(ids, mask, documents, cache)


@fails("precision.long", "precision.autocast", "precision.distance")
class BiasInLowPrecision(Alibi):
    """A column of slope times position, as large as the text is long, in the precision of the weights."""

    def bias(self, positions, new):  # type: ignore[no-untyped-def]
        dtype = self.head.weight.dtype
        return self.steep.to(dtype)[:, None, None] * positions[:, None, None].to(dtype)


def plant(name: str, parent: type[Correct], method: str, change: Callable[..., Tensor], *checks: str) -> None:
    """Plant a bug in one method: ``change`` is given the model, the method as it was, and its arguments."""

    def changed(self: Any, *given: Any) -> Any:
        return change(self, partial(getattr(parent, method), self), *given)

    PLANTED[type(name, (parent,), {method: changed})] = set(checks)


def read_pads(model: Any, old: Any, ids: Tensor, mask: Tensor | None, *rest: Any) -> Tensor:
    return old(ids, mask if mask is not None and mask.dim() == 4 else None, *rest)


def share_mask(model: Any, old: Any, ids: Tensor, mask: Tensor | None, *rest: Any) -> Tensor:
    return old(ids, mask if mask is None or mask.dim() == 4 else mask.any(0, keepdim=True).expand_as(mask), *rest)


def share_places(model: Any, old: Any, ids: Tensor, *rest: Any) -> Tensor:
    """One position for all rows at a decoding step."""
    places = old(ids, *rest)
    return places.amax(0, keepdim=True).expand_as(places) if ids.shape[1] == 1 else places


def count_pads(model: Any, old: Any, ids: Tensor, mask: Tensor | None, positions: Tensor | None, start: int) -> Tensor:
    return old(ids, None if start and ids.shape[1] == 1 else mask, positions, start)


def start_at_one(
    model: Any, old: Any, ids: Tensor, mask: Tensor | None, positions: Tensor | None, start: int
) -> Tensor:
    return old(ids, mask, None if positions is None else positions + 1, start)


def hold_places(model: Any, old: Any, ids: Tensor, places: Tensor) -> Tensor:
    """Tokens from the 17th on share a vector, though the claim is 64."""
    return old(ids, places) - model.position_embedding(places) + model.position_embedding(places.clamp(max=16))


def add_row(model: Any, old: Any, ids: Tensor, places: Tensor) -> Tensor:
    """A position table indexed by the row of the batch, as with axes exchanged."""
    return model.embed(ids) + model.embed.weight[: len(ids), None]


def exchange_axes(model: Any, old: Any, ids: Tensor, places: Tensor) -> Tensor:
    """Where there are as many rows as tokens, the axes are exchanged."""
    return old(ids, places).transpose(0, 1) if ids.shape == (2, 2) else old(ids, places)


BY_ROW = ("batch.alone", "batch.order", "batch.unequal", "cache.prefill", "cache.reorder", "padding.beside")
EXPLICIT = ("positions.explicit", "padding.left.positions", "cache.padded", "cache.prefill")
LONGER = type("Longer", (Absolute,), {"max_length": 66})  # a table with room for what begins at 1
plant("PadsRead", Correct, "allowed", read_pads, *LEFT, "cache.prefill")
plant("PadsReadByEncoder", Encoder, "allowed", read_pads, *(LEFT - {"cache.padded"}), "padding.right", "batch.unequal")
plant("OneMaskForAllRows", Correct, "allowed", share_mask, "cache.padded", "cache.prefill")
plant("OneMaskForAllRowsOfAnEncoder", Encoder, "allowed", share_mask, "batch.unequal")
plant("OnePositionForAllRows", Correct, "positions_of", share_places, "cache.padded", "cache.left_mask")
plant("CountsPadsWhenDecoding", Correct, "positions_of", count_pads, "cache.left_mask")
plant("ExplicitOffByOne", LONGER, "positions_of", start_at_one, *EXPLICIT)
plant("HoldsThePlaces", Absolute, "enter", hold_places, "length.claimed")
plant("AxesGuessedByShape", Correct, "enter", exchange_axes, "length.short")
plant("RowTable", Correct, "enter", add_row, *BY_ROW, "packing.positions", "packing.block_mask")
plant("BagOfWords", Encoder, "rotate", lambda model, old, x, places: x, "order.matters", "positions.matter")
plant("MismatchedPairs", Correct, "lay_out", lambda model, old, angles: angles.repeat_interleave(2, -1), "shift")
