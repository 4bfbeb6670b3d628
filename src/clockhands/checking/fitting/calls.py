"""The calls of a check, understood by their arguments and listened to."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from clockhands.checking.checks.check import CHECKS, Check, Measurement
from clockhands.checking.fitting.reading import ChangeLogits, ChangeState, Key, find_seen, listen
from clockhands.checking.models.subject import Subject
from clockhands.models.tap import TappedAttention


@dataclass(frozen=True)
class AttentionRead:
    """What one attention of a call was found to do. Shapes: B rows, S new tokens, J keys in the order of the cache.

    ``column_BJ`` is the column whose token a key is, -1 for none; ``stood_q_BS`` and ``stood_k_BJ`` are the places of
    queries and keys, NaN where they are at none.
    """

    key: Key
    attention: TappedAttention
    column_BJ: Tensor
    stood_q_BS: Tensor
    stood_k_BJ: Tensor
    seen_BSJ: Tensor

    @property
    def at_BJ(self) -> Tensor:
        """The column of each key, the first for those of none."""
        return self.column_BJ.clamp(min=0)


@dataclass
class Call:
    """One call, with the columns that are in the cache already. Shapes: B rows, S new tokens, T columns in all.

    ``places_BT`` is where each token is meant to stand, ``real_BT`` false for pads, ``kept_BST`` which keys each new
    token is meant to see as far as the arguments say. Of ``total`` columns the cache held ``past`` before; the others
    are the ``new`` ones, ``columns_S``. ``explicit``: positions came as an argument. ``undone``: tokens were taken back
    from the cache before; ``replaced`` has the ids and places of its rows before they were reordered. Listening fills
    in the rest: ``states`` has the state [B, S, D] that entered the first block, ``strange`` how it is that of no
    place, and ``reads`` the attentions.
    """

    ids_BT: Tensor
    places_BT: Tensor
    real_BT: Tensor
    kept_BST: Tensor
    total: int
    past: int
    new: int
    columns_S: Tensor
    new_places_BS: Tensor
    new_real_BS: Tensor
    explicit: bool
    cached: bool
    undone: bool
    replaced: tuple[Tensor, Tensor] | None
    states: list[Tensor] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)
    reads: dict[Key, AttentionRead] = field(default_factory=dict)

    @property
    def derailed(self) -> bool:
        """Whether some layer finds all its queries at known places and a later one does not.

        An earlier layer then passed on the wrong value, which says nothing of what that layer sees.
        """
        known = []
        for heard in self.reads.values():
            own = (heard.column_BJ[:, None] == self.columns_S[:, None]).any(-1)
            known.append(bool((own | ~heard.stood_q_BS.isnan())[self.new_real_BS].all()))
        return any(known[:1]) and not all(known)

    def name(self, check: str) -> str:
        """Say in words what kind of text this call reads."""
        if self.cached and self.past:
            return "each decode step" if self.new == 1 else "each later chunk"
        if check.startswith("packing."):
            return "a packed text"
        if self.explicit:
            return "a text whose positions are given"
        for side, real in (("behind", self.real_BT), ("before", self.real_BT.flip(1))):
            if pads := int((~real).long().cumprod(1).sum(1).max()):
                return f"{side} {pads} pads the text"
        batched = len(self.ids_BT) > 1 and (check.startswith("batch.") or not self.real_BT.all())
        return "a row of a batch" if batched else "a text"


def replay(
    subject: Subject,
    law: Check,
    entries: tuple[str, ...],
    listener: Callable[[Call], tuple[ChangeLogits, ChangeState]],
    by_column: bool = False,
) -> Measurement:
    """Measure a copy of a subject whose calls are told to a listener before they run. Raises what the model raises."""
    twin = subject.copy_untouched()
    adapter: Any = twin.adapter
    run = adapter.logits

    @functools.wraps(run)
    def logits(
        ids: Tensor, mask: Tensor | None = None, positions: Tensor | None = None, cache: Any = None, *rest: Any
    ) -> Tensor:
        call = _understand(twin, law.name.startswith("packing."), by_column, ids, mask, positions, cache)
        change, enter = listener(call)
        inside = functools.partial(run, ids, mask, positions, cache, *rest)
        answer: Tensor = listen(twin.get_module(), entries, len(ids), change, enter, inside)
        if cache is not None:
            vars(cache)["read_before"] = (call.ids_BT, call.places_BT, call.real_BT)
        return answer

    def follow(name: str, change: Callable[[Tensor, Any], Tensor]) -> None:
        """Do to what is known of a cache what the adapter does to it."""
        inner: Any = getattr(adapter, name, None)

        def outer(cache: Any, by: Any) -> None:
            inner(cache, by)
            before = vars(cache)["read_before"]
            vars(cache).update(read_before=tuple(change(part, by) for part in before), changed=(name, before[:2]))

        if inner is not None:
            setattr(adapter, name, outer)

    def make_cache() -> Any:
        cache = make()  # on which something can be noted, which a plain list or dict is not
        return cache if hasattr(cache, "__dict__") else type("Cache", (type(cache),), {})(cache)

    adapter.logits = logits
    make: Any = getattr(adapter, "new_cache", None)
    if make is not None:
        adapter.new_cache = make_cache
    follow("roll_back", lambda part, tokens: part[:, :-tokens])
    follow("reorder", lambda part, rows: part[rows])
    return law.measure(twin)


def _understand(
    subject: Subject,
    packs: bool,
    by_column: bool,
    ids: Tensor,
    mask: Tensor | None,
    positions: Tensor | None,
    cache: Any,
) -> Call:
    noted = {} if cache is None else vars(cache)
    before = noted.get("read_before")
    new, past = ids.shape[1], 0 if before is None else before[0].shape[1]
    total, flat = past + new, mask if mask is not None and mask.dim() == 2 else None
    columns = torch.arange(total, device=ids.device)
    real = torch.ones_like(ids, dtype=torch.bool) if flat is None else flat[:, -new:].bool()
    if positions is not None:
        places = positions - subject.facts.first
    elif flat is not None and not by_column:
        places = (flat.long().cumsum(1) - 1).clamp(min=0)[:, -new:]
    else:
        places = columns[past:].expand_as(ids)
    if before is not None:
        ids, places = torch.cat([before[0], ids], 1), torch.cat([before[1], places], 1)
        real = torch.cat([before[2], real], 1) if flat is None else flat.bool()
    kept = real[:, None, :].expand(-1, new, -1).clone()
    if subject.causal:
        kept &= columns <= columns[past:, None]
    if mask is not None and mask.dim() == 4:
        kept &= mask[:, 0, -new:, :total].bool()
    elif packs:
        document = (places.diff(prepend=places[:, :1]) < 0).cumsum(1)
        kept &= document[:, -new:, None] == document[:, None]
    change, rows = noted.get("changed", ("", None))
    replaced = rows if change == "reorder" else None
    own = (total, past, new, columns[past:], places[:, past:], real[:, past:])
    said = (positions is not None, cache is not None, change == "roll_back", replaced)
    return Call(ids, places, real, kept, *own, *said)


def mixes_documents(subject: Subject) -> bool:
    """Whether some attention of an author's own model sees one document from another where they are packed."""
    mixed = []

    def watch(call: Call) -> tuple[Any, Any]:
        def note(_: Key, attention: TappedAttention) -> None:
            seen = find_seen(attention.logits_BHST).any(1)
            mixed.append(seen.shape == call.kept_BST.shape and bool((seen & ~call.kept_BST).any()))

        return note, lambda *_: None

    if not hasattr(subject.adapter, "config") and getattr(subject.adapter, "packs", False):
        replay(subject, CHECKS["packing.positions"], (), watch)
    return any(mixed)
