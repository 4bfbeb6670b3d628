"""A subject: an adapter, what is known about how it encodes position, and copies of it that share its weights."""

from __future__ import annotations

import contextlib
import copy
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from clockhands.checking.models.adapter import Adapter, accepts, device_of
from clockhands.checking.models.facts import Facts
from clockhands.errors import UsageError
from clockhands.machine import measure_free_memory
from clockhands.models.streaming import find_device, is_streamed, open_streamed
from clockhands.pretrained import load_model


def is_large(adapter: Any) -> bool:
    """Return whether a second set of weights, in float64 at that, would take more than half of the memory that is free.

    Not of a model whose weights are streamed: its copies have none.
    """
    module = getattr(adapter, "module", None)
    if module is None or is_streamed(module):
        return False
    weights = {id(p): p for p in module.parameters()}.values()
    return 8 * sum(p.numel() for p in weights) > measure_free_memory(find_device(module)) / 2


def copy_sharing(thing: Any, dtype: torch.dtype | None = None) -> Any:
    """Return a copy of a module or adapter with the same parameters, not copied; buffers and all else are its own.

    With ``dtype`` floating parameters of another precision are converted, one by one. Nothing may write into the
    parameters of the copy: they are those of the original.
    """

    def keep(parameter: nn.Parameter) -> nn.Parameter:
        if dtype is None or not parameter.is_floating_point() or parameter.dtype == dtype:
            return parameter
        return nn.Parameter(parameter.detach().to(dtype), requires_grad=parameter.requires_grad)

    twin = _copy_with(thing, keep)
    if dtype is not None:
        (twin if isinstance(twin, nn.Module) else twin.module).to(
            dtype
        )  # the buffers; the parameters are there already
    return twin


def copy_without_weights(module: nn.Module) -> nn.Module:
    """Return a copy with parameters that have a shape and no storage: enough to see what a cast does to buffers."""
    return _copy_with(module, lambda p: nn.Parameter(p.detach().to("meta"), requires_grad=p.requires_grad))


def _copy_with(thing: Any, change: Callable[[nn.Parameter], nn.Parameter]) -> Any:
    module = thing if isinstance(thing, nn.Module) else thing.module
    memo: dict[int, Any] = {id(parameter): change(parameter) for parameter in module.parameters()}
    # Most of what a module holds are empty tables of hooks, of which deepcopy takes each apart and puts it together.
    held = [value for part in module.modules() for value in vars(part).values()]
    memo |= {id(value): type(value)() for value in held if type(value) in (dict, OrderedDict) and not value}
    return copy.deepcopy(thing, memo)


def reload(module: Any, folder: str, dtype: torch.dtype, streamed: bool = False) -> Any:
    """Return the model that ``folder`` holds, on the device of ``module`` and of its class, in ``dtype``.

    ``streamed``, and of a streamed module: without its weights in memory.
    """
    if streamed or is_streamed(module):
        return open_streamed(type(module), folder, find_device(module), dtype=dtype)
    with _NothingByLuck():
        loaded = load_model(type(module), folder, dtype=dtype)
    return loaded.to(find_device(module)).eval()


class _NothingByLuck(TorchFunctionMode):
    """Memory that nobody fills holds 0.37: a buffer that is lost must not find its old values in what was freed."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func in (torch.empty, torch.empty_like) and made.is_floating_point() and not made.is_meta:
            made.detach().fill_(0.37)
        return made


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
    its files, and MemoryError raised where there are none.
    """
    has_module = getattr(adapter, "module", None) is not None
    untouched: Any = copy_sharing(adapter) if has_module else adapter
    if not has_module:
        with contextlib.suppress(Exception):  # rebuild raises it where it is told
            untouched = copy.deepcopy(adapter)

    def rebuild(seed: int, dtype: torch.dtype) -> Adapter:
        del seed  # the weights are given
        if not has_module:
            return cast(Adapter, copy.deepcopy(untouched))
        if not is_large(untouched) or dtype == next(untouched.module.parameters()).dtype:
            return cast(Adapter, copy_sharing(untouched, dtype))
        if getattr(untouched, "source", None) is None:
            precision = str(dtype).removeprefix("torch.")
            raise MemoryError(f"too large for a copy in {precision}, and no files to stream it from")
        module = reload(untouched.module, untouched.source, dtype, streamed=True)
        return cast(Adapter, type(untouched)(module, untouched.task, untouched.source))

    return rebuild
