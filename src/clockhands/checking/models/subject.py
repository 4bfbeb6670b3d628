"""A subject: an adapter, what is known about how it encodes position, and how to build it again."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from clockhands.checking.models.adapter import Adapter, accepts, device_of
from clockhands.checking.models.copies import copy_sharing, from_files, is_large
from clockhands.checking.models.facts import Facts
from clockhands.errors import UsageError

Rebuild = Callable[[int, torch.dtype], Adapter]


@dataclass
class Subject:
    """A model under check. ``seed`` draws the texts; ``rebuild(seed, dtype)`` gives the model again.

    ``redraw(seed, dtype)`` gives it with other weights, in which position is audible; None where they are already.
    """

    name: str
    adapter: Adapter
    rebuild: Rebuild
    facts: Facts = field(default_factory=Facts)
    seed: int = 0
    side: str = ""
    redraw: Rebuild | None = None

    @property
    def module(self) -> nn.Module | None:
        """The PyTorch module behind the adapter, if there is one."""
        return getattr(self.adapter, "module", None)

    def get_module(self) -> nn.Module:
        """Return the PyTorch module behind the adapter. Raises UsageError if there is none."""
        if self.module is None:
            raise UsageError(f"{self.name}: this adapter has no PyTorch module; set its attribute module")
        return self.module

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the weights; float32 where there are none."""
        parameters = self.module.parameters() if self.module is not None else iter(())
        return next((p.dtype for p in parameters if p.is_floating_point()), torch.float32)

    @property
    def causal(self) -> bool:
        """Whether a token may see only those before it."""
        return bool(getattr(self.adapter, "causal", True))

    @property
    def aligned(self) -> bool:
        """Whether output i belongs to input token i (not so for the source side of an encoder-decoder)."""
        return bool(getattr(self.adapter, "per_token", True))

    def takes(self, argument: str) -> bool:
        """Return whether the model accepts ``mask``, ``positions`` or ``cache``."""
        return accepts(self.adapter, argument)

    def tokens(self, rows: int, length: int, salt: int = 0) -> Tensor:
        """Return random text [rows, length] without special tokens, drawn from the subject's seed.

        No token stands twice in a row if they suffice: equal tokens make equal scores, and a model that keeps
        the best few then chooses by chance.
        """
        generator = torch.Generator().manual_seed(1000 * self.seed + salt)
        special: set[int] = getattr(self.adapter, "special", set())
        usable = torch.tensor([n for n in range(self._first_token(), self.adapter.vocabulary) if n not in special])
        if length <= len(usable):
            chosen = torch.stack([torch.randperm(len(usable), generator=generator)[:length] for _ in range(rows)])
        else:
            chosen = torch.randint(0, len(usable), (rows, length), generator=generator)
        return usable[chosen].to(device_of(self.adapter))

    def other(self, ids: Tensor) -> Tensor:
        """Return ids of the same shape with another token at every place."""
        low = self._first_token()
        return low + (ids - low + 1 + (self.adapter.vocabulary - low) // 3) % (self.adapter.vocabulary - low)

    def _first_token(self) -> int:
        return 10 if self.adapter.vocabulary > 30 else 0

    def logits(
        self, ids: Tensor, mask: Tensor | None = None, positions: Tensor | None = None, cache: Any = None
    ) -> Tensor:
        """Return the logits [B, S, V] of one call; arguments that are None are left out."""
        with torch.no_grad():
            return self.adapter.logits(ids, mask, positions, cache)

    def packed(self, ids: Tensor, mask: Tensor | None, positions: Tensor, cache: Any, documents: Tensor) -> Tensor:
        """Return the logits of several documents in a row, by their numbers where the model takes them."""
        if "documents" not in getattr(self.adapter, "takes", ()):
            return self.logits(ids, mask, positions, cache)
        with torch.no_grad():
            return self.adapter.logits(ids, mask, positions, cache, documents)  # type: ignore[call-arg]

    def positions(self, mask: Tensor) -> Tensor:
        """Return the position of every token by its mask: the first real token has the number the model starts at."""
        return (mask.long().cumsum(-1) - 1).clamp(min=0) + self.facts.first

    def arange(self, rows: int, length: int, start: int = 0) -> Tensor:
        """Return the default positions [rows, length], from ``start``."""
        line = torch.arange(start, start + length, device=device_of(self.adapter)) + self.facts.first
        return line.repeat(rows, 1)

    def copy_model(self, seed: int, dtype: torch.dtype) -> Subject:
        """Return the same subject with other texts, in another precision, from a model that nothing has touched."""
        return replace(self, adapter=self.rebuild(seed, dtype), seed=seed)

    def copy_audible(self, seed: int, dtype: torch.dtype) -> Subject:
        """Return the same subject with weights in which position is audible: other ones if ``redraw`` can give them.

        The laws hold for any weights.
        """
        if self.redraw is None:
            return self.copy_model(seed, dtype)
        return replace(self, adapter=self.redraw(seed, dtype), seed=seed, rebuild=self.redraw, redraw=None)

    def copy_untouched(self) -> Subject:
        """Return the same subject as it was before its first call; itself where it cannot be copied.

        A check that changes the model (tables that grow, frequencies that stretch) then changes no other check.
        """
        try:
            return self.copy_model(self.seed, self.dtype)
        except Exception:  # an adapter may hold what cannot be copied: a process, a connection
            return self


def copied(adapter: Adapter) -> Rebuild:
    """Return a function that copies the model as it is now: the weights stay (shared in the same precision).

    Call it before the model is. Of a large model there is no second set of weights: another precision is streamed from
    its files.
    """
    has_module = getattr(adapter, "module", None) is not None
    untouched = copy_sharing(adapter) if has_module else _copy_if_possible(adapter)

    def rebuild(seed: int, dtype: torch.dtype) -> Adapter:
        del seed  # the weights are given
        if not has_module:
            return copy.deepcopy(untouched)
        if is_large(untouched) and dtype != next(untouched.module.parameters()).dtype:
            return cast(Adapter, from_files(untouched, dtype))
        return cast(Adapter, copy_sharing(untouched, dtype))

    return rebuild


def _copy_if_possible(adapter: Adapter) -> Any:
    try:
        return copy.deepcopy(adapter)
    except Exception:  # rebuild will raise it where it is told
        return adapter
