"""Run a check again while every call that it makes of the model is listened to, and attention may be changed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from clockhands.checking.checks.check import Check, Measurement
from clockhands.checking.fitting.reading import ChangeLogits, ChangeState, Key, listen
from clockhands.checking.models.subject import Subject
from clockhands.models.tap import Attention


@dataclass(frozen=True)
class Read:
    """What one attention of a call was found to do. Shapes: B rows, S new tokens, J keys in the order of the cache.

    ``column_BJ`` is the column whose token a key is, -1 for none; ``stood_q_BS`` and ``stood_k_BJ`` are the places of
    queries and keys, NaN where they are at none. ``bias_BHSJ`` is what was added to the scaled products.
    """

    key: Key
    attention: Attention
    column_BJ: Tensor
    stood_q_BS: Tensor
    stood_k_BJ: Tensor
    seen_BSJ: Tensor
    bias_BHSJ: Tensor


@dataclass(frozen=True)
class Call:
    """One call, with the columns that are in the cache already. Shapes: B rows, S new tokens, T columns in all.

    ``places_BT`` is where each token is meant to stand, ``real_BT`` false for pads, ``kept_BST`` which keys each new
    token is meant to see as far as the arguments say. ``explicit``: positions came as an argument. ``states`` has the
    state [B, S, D] that entered the first block, and ``reads`` the attentions, once the call was listened to.
    """

    ids_BT: Tensor
    places_BT: Tensor
    real_BT: Tensor
    kept_BST: Tensor
    new: int
    explicit: bool
    cached: bool
    states: list[Tensor] = field(default_factory=list)
    reads: dict[Key, Read] = field(default_factory=dict)

    @property
    def past(self) -> int:
        """How many columns the cache held before."""
        return self.ids_BT.shape[1] - self.new

    @property
    def is_new(self) -> slice:
        """The columns of the new tokens."""
        return slice(self.past, None)


Listener = Callable[[Call], tuple[ChangeLogits, ChangeState]]


class Replay:
    """A copy of a subject whose calls are told to a listener before they run."""

    def __init__(self, subject: Subject, law: Check, entries: tuple[str, ...], listener: Listener) -> None:
        self.subject, self.law = subject.copy_untouched(), law
        self.entries, self.listener = entries, listener
        self.packs = law.name.startswith("packing.")
        adapter: Any = self.subject.adapter
        self.run = adapter.logits
        adapter.logits = functools.update_wrapper(functools.partial(self._logits), self.run)
        for name, change in (("roll_back", self._crop), ("reorder", self._select)):
            if getattr(adapter, name, None) is not None:
                setattr(adapter, name, functools.partial(change, getattr(adapter, name)))

    def measure(self) -> Measurement:
        """Return what the check measures. Raises whatever the model raises."""
        return self.law.measure(self.subject)

    def _logits(
        self, ids: Tensor, mask: Tensor | None = None, positions: Tensor | None = None, cache: Any = None, *rest: Any
    ) -> Tensor:
        call = self._understand(ids, mask, positions, cache)
        logits, state = self.listener(call)
        run = functools.partial(self.run, ids, mask, positions, cache, *rest)
        answer: Tensor = listen(self.subject.get_module(), self.entries, len(ids), logits, state, run)
        if cache is not None:
            vars(cache)["read_before"] = (call.ids_BT, call.places_BT, call.real_BT)
        return answer

    def _understand(self, ids: Tensor, mask: Tensor | None, positions: Tensor | None, cache: Any) -> Call:
        before = vars(cache).get("read_before") if cache is not None else None
        new, past = ids.shape[1], 0 if before is None else before[0].shape[1]
        total, flat = past + new, mask if mask is not None and mask.dim() == 2 else None
        real = torch.ones_like(ids, dtype=torch.bool) if flat is None else flat[:, -new:].bool()
        if positions is not None:
            places = positions - self.subject.facts.first
        elif flat is not None:
            places = (flat.long().cumsum(1) - 1).clamp(min=0)[:, -new:]
        else:
            places = torch.arange(past, total, device=ids.device).expand_as(ids)
        if before is not None:
            ids, places = torch.cat([before[0], ids], 1), torch.cat([before[1], places], 1)
            real = torch.cat([before[2], real], 1) if flat is None else flat.bool()
        columns = torch.arange(total, device=ids.device)
        kept = real[:, None, :].expand(-1, new, -1).clone()
        if self.subject.causal:
            kept &= columns[None, None] <= columns[past:, None]
        if mask is not None and mask.dim() == 4:
            kept &= mask[:, 0, -new:, :total].bool()
        elif self.packs:
            document = (places.diff(prepend=places[:, :1]) < 0).cumsum(1)
            kept &= document[:, -new:, None] == document[:, None]
        return Call(ids, places, real, kept, new, positions is not None, cache is not None)

    @staticmethod
    def _crop(run: Any, cache: Any, tokens: int) -> None:
        run(cache, tokens)
        vars(cache)["read_before"] = tuple(part[:, :-tokens] for part in vars(cache)["read_before"])

    @staticmethod
    def _select(run: Any, cache: Any, rows: Tensor) -> None:
        run(cache, rows)
        vars(cache)["read_before"] = tuple(part[rows] for part in vars(cache)["read_before"])
