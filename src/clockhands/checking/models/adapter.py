"""The four-argument face through which every model is checked, and what is derived from it."""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn

from clockhands.errors import UsageError, describe_unknown
from clockhands.models.streaming import find_device

OPTIONAL = (
    *("causal", "max_length", "packs", "module", "new_cache", "roll_back", "reorder", "fresh", "audible"),
    *("absolute", "stretches", "per_token", "special", "takes"),
)
"""What an adapter may have besides ``vocabulary`` and ``logits``."""
_TRIED = 8


@runtime_checkable
class Adapter(Protocol):
    """What a model must offer to be checked. Shapes: B rows, S new tokens, T keys (cached ones included).

    ``logits(ids_BS, mask_BT, positions_BS, cache)`` returns logits_BSV. ``mask`` is true where a token may be looked
    at and covers the cached tokens too (or is the four-dimensional ``mask_B1ST``, added to nothing else);
    ``positions`` are integers. A module or function may call these as transformers does (``attention_mask``,
    ``position_ids``, ``past_key_values``), and return an object with ``logits``. A model that takes no mask, positions
    or cache raises NotImplementedError, or leaves the parameter out; those checks then do not apply.

    Optional attributes: ``causal`` (default true), ``max_length``, ``packs`` (falling positions begin a document),
    ``module`` (the ``nn.Module``, for precision and saving), ``new_cache()``, ``roll_back(cache, tokens)``,
    ``reorder(cache, rows)`` (row i becomes a copy of ``rows[i]``), ``fresh()`` (a new model of the same configuration),
    ``audible`` (its weights make position audible, so that the laws need not be tried with others too), ``absolute``
    (every place has a vector of its own), ``stretches`` (the frequencies depend on the length of the text, as in
    dynamic NTK), ``per_token`` (default true: output i belongs to token i), ``special``
    (token ids that are not used as text), ``takes`` (which of "mask", "positions" and "cache" are supported).
    """

    vocabulary: int

    def logits(
        self, ids: Tensor, mask: Tensor | None = None, positions: Tensor | None = None, cache: Any = None
    ) -> Tensor:
        """Logits of every token of ``ids``; a given ``cache`` is used and extended in place."""
        ...


class _FunctionAdapter:
    """A plain function ``logits(ids, mask=None, positions=None, cache=None)`` as an adapter."""

    aliases: Mapping[str, str] = {"mask": "attention_mask", "positions": "position_ids", "cache": "past_key_values"}

    def __init__(self, function: Callable[..., Tensor], vocabulary: int, **optional: Any) -> None:
        self.function, self.vocabulary = function, vocabulary
        vars(self).update(optional)

    def logits(
        self, ids: Tensor, mask: Tensor | None = None, positions: Tensor | None = None, cache: Any = None
    ) -> Tensor:
        """Call the function with what is given; an argument it lacks is not supported."""
        arguments = {"mask": mask, "positions": positions, "cache": cache}
        return self.function(ids, **{self.rename(name) or name: x for name, x in arguments.items() if x is not None})

    def rename(self, argument: str) -> str:
        """Return what a parameter is called, here or in transformers; empty where it is not taken."""
        module = getattr(self, "module", None)
        names = inspect.signature(self.function if module is None else module.forward).parameters
        open_ended = any(p.kind is p.VAR_KEYWORD for p in names.values())
        known = (name for name in (argument, self.aliases.get(argument, argument)) if name in names)
        return next(known, argument if open_ended else "")


class ModuleAdapter(_FunctionAdapter):
    """A PyTorch module whose ``forward(ids, mask=None, positions=None, cache=None)`` returns logits.

    Of a tuple the first is taken, as of (logits, loss).
    """

    def __init__(self, module: nn.Module, vocabulary: int | None = None, **optional: Any) -> None:
        self.module = module.eval()
        super().__init__(self._forward, vocabulary or _vocabulary(module), **optional)
        for name in ("new_cache", "roll_back", "reorder", "max_length", "causal", "packs", "stretches"):
            if name not in optional and getattr(module, name, None) is not None:
                setattr(self, name, getattr(module, name))

    def _forward(self, ids: Tensor, **arguments: Any) -> Any:
        output = self.module(ids, **arguments)
        output = getattr(output, "logits", output)
        return output[0] if isinstance(output, tuple) else output

    def __deepcopy__(self, memo: dict[int, Any]) -> ModuleAdapter:
        skip = ("module", "function", "vocabulary", "new_cache", "roll_back", "reorder")
        rest = {name: value for name, value in vars(self).items() if name not in skip}
        return type(self)(copy.deepcopy(self.module, memo), self.vocabulary, **rest)


class _TargetAdapter(ModuleAdapter):
    """The target side of an encoder-decoder ``forward(source, target, ...)``, over one source ``other`` that stays.

    ``mask``, ``positions`` and ``cache``, where ``forward`` has such parameters, are about the target.
    """

    other: Tensor
    aliases: Mapping[str, str] = {}  # of which side they are is not known

    def _forward(self, ids: Tensor, **arguments: Any) -> Any:
        return self.call(self.other.to(ids.device).expand(len(ids), -1), ids, **arguments)

    def call(self, source: Tensor, target: Tensor, **arguments: Any) -> Any:
        """Return the logits of every token of the target, also of a module that joins rows and tokens."""
        output = self.module(source, target, **arguments)
        output = output[0] if isinstance(output, tuple) else output
        return output.view(*target.shape, -1) if output.dim() == 2 else output


class _SourceAdapter(_TargetAdapter):
    """The source side: what one target ``other`` is answered as the source changes, under ``source_mask`` if taken."""

    per_token = False

    def _forward(self, ids: Tensor, **arguments: Any) -> Any:
        renamed = {f"source_{name}": value for name, value in arguments.items()}
        return self.call(ids, self.other.to(ids.device).expand(len(ids), -1), **renamed)


def adapt_sides(model: Any, source: Any, **optional: Any) -> tuple[Adapter, Adapter]:
    """Return the target side and the source side of an encoder-decoder ``forward(source, target, ...)``.

    ``source`` is a text for its encoder, token ids [S]. How many tokens a side has is read from the embedding that
    looks its text up; ``vocabulary`` says it of the target. Raises UsageError for what is no such module or text.
    """
    if not isinstance(model, nn.Module) or isinstance(model, Adapter):
        raise UsageError(f"source= is about a torch module forward(source, target), not about a {type(model).__name__}")
    call, needed = _read_call(model, optional)
    if len(needed) != 2:
        raise UsageError(f"{call} takes {len(needed)} required arguments; source= is about two texts")
    text = torch.as_tensor(source)
    if text.is_floating_point() or text.dtype == torch.bool or text.numel() < 2 or text.numel() != text.shape[-1]:
        raise UsageError(f"source= must be one text of at least two token ids, not {str(source)[:80]}")
    text = text.reshape(1, -1).long()
    target = text.flip(1)[:, 1:]
    read = written = 0  # by the embeddings that look up the source and the target; one where both are one
    for _, size, ids in list_lookups(model, lambda: model.eval()(text, target)):
        read = size if torch.equal(ids, text[0]) else read
        written = size if torch.equal(ids, target[0]) else written
    read = read or _vocabulary(model)
    count = int(optional.pop("vocabulary", written or read))
    if int(text.min()) < 0 or int(text.max()) >= read:
        raise UsageError(
            f"source= has token ids {int(text.min())} to {int(text.max())}; the encoder has 0 to {read - 1}"
        )
    answered = torch.randint(min(10, count // 2), count, (1, 8), generator=torch.Generator().manual_seed(99))
    about_both = {name: value for name, value in optional.items() if name in ("max_length", "special")}
    takes = ("mask",) if "source_mask" in inspect.signature(model.forward).parameters else ()
    sides = _SourceAdapter(model, read, other=answered, causal=False, takes=takes, **about_both)
    return _TargetAdapter(model, count, other=text, **optional), sides


def list_lookups(module: nn.Module, run: Callable[[], Any]) -> list[tuple[str, int, Tensor]]:
    """Return what ``run()`` looks up, until it raises anything: the embedding's name, its rows, the ids in a line."""
    looked_up = []

    def look(name: str, part: nn.Module, arguments: tuple[Any, ...]) -> None:
        ids = arguments[0] if arguments else None
        if isinstance(ids, Tensor):
            looked_up.append((name, int(cast(nn.Embedding, part).num_embeddings), ids.flatten()))

    with contextlib.ExitStack() as stack, torch.no_grad(), contextlib.suppress(Exception):
        for name, part in module.named_modules():
            if isinstance(part, nn.Embedding):
                stack.callback(part.register_forward_pre_hook(partial(look, name)).remove)
        run()
    return looked_up


def adapt(model: Any, **optional: Any) -> Adapter:
    """Return an adapter for whatever was handed in: an adapter, a module, or a function with ``vocabulary=``.

    Raises UsageError for anything else, for a function or module that needs more than one text of token ids, and for
    an attribute that no adapter has: the checks would never read it.
    """
    call, needed = _read_call(model, optional)
    if isinstance(model, Adapter):
        return model
    if len(needed) > 1:
        raise UsageError(
            f"{call} cannot read a text alone: it needs {', '.join(needed[1:])} too. If it is an "
            "encoder-decoder, give one text for its encoder as token ids: check(model, source=[11, 12, 13, 14]). "
            "Otherwise give these arguments a default."
        )
    if isinstance(model, nn.Module):
        return ModuleAdapter(model, **optional)
    if callable(model) and "vocabulary" in optional:
        return _FunctionAdapter(model, **optional)
    raise UsageError(
        f"cannot check a {type(model).__name__}: give a model folder or name, a transformers model, a torch module, "
        "or an object with vocabulary and logits(ids, mask=None, positions=None, cache=None)"
    )


def _read_call(model: Any, optional: dict[str, Any]) -> tuple[str, list[str]]:
    """Return how a module or function is called, and the names of the arguments without which it cannot be.

    Raises UsageError for an optional attribute that no adapter has.
    """
    known = (*OPTIONAL, "vocabulary")
    unknown = [name for name in optional if name not in known]
    if unknown:
        raise UsageError(describe_unknown("attribute of a model", unknown[0], known))
    function = model.forward if isinstance(model, nn.Module) else model
    if isinstance(model, Adapter) or not callable(function):
        return "", []
    name = f"{type(model).__name__}.forward" if isinstance(model, nn.Module) else getattr(model, "__name__", "function")
    parameters = inspect.signature(function).parameters
    open_ended = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [p.name for p in parameters.values() if p.default is p.empty and p.kind not in open_ended]
    return f"{name}({', '.join(parameters)})", needed


def describe_raised(fault: Exception) -> str:
    """Return the kind and the beginning of what a model raised, in one line."""
    return f"{type(fault).__name__}: {' '.join(str(fault).split())[:200]}"


def try_reading(adapter: Adapter, label: str) -> None:
    """Let a model read eight tokens. Raises UsageError if it cannot, or returns anything but logits of every token."""
    ids = torch.arange(_TRIED, device=device_of(adapter)).add(max(0, min(10, adapter.vocabulary - _TRIED)))[None]
    try:
        with torch.no_grad():
            logits: Any = adapter.logits(ids % adapter.vocabulary)
    except Exception as fault:  # a model may raise anything
        message = describe_raised(fault)
        module = getattr(adapter, "module", None)
        inside = module.modules() if isinstance(module, nn.Module) else ()
        sideways = next((type(part).__name__ for part in inside if getattr(part, "batch_first", True) is False), "")
        if sideways and "batch" in message:
            message += (
                f". Its {sideways} has batch_first=False: it takes the first axis for tokens; set batch_first=True"
            )
        raise UsageError(f"{label} cannot read a text of eight tokens: {message}") from fault
    shape = tuple(logits.shape) if isinstance(logits, Tensor) else ()
    if len(shape) != 3 or (shape[1] != _TRIED and getattr(adapter, "per_token", True)):
        what = f"a tensor of shape {list(shape)}" if shape else f"a {type(logits).__name__}"
        raise UsageError(f"{label} returns {what} for one text of 8 tokens: logits [1, 8, vocabulary] are needed")


def accepts(adapter: Adapter, argument: str) -> bool:
    """Return whether the adapter declares an argument: ``mask``, ``positions`` or ``cache``."""
    declared = getattr(adapter, "takes", None)
    if declared is not None:
        return argument in declared
    if argument == "cache" and not hasattr(adapter, "new_cache"):
        return False
    if isinstance(adapter, _FunctionAdapter):
        return bool(adapter.rename(argument))
    names = inspect.signature(adapter.logits).parameters
    return argument in names or any(p.kind is p.VAR_KEYWORD for p in names.values())


def device_of(adapter: Adapter) -> torch.device:
    """Return the device of the token ids."""
    module = getattr(adapter, "module", None)
    return torch.device("cpu") if module is None else find_device(module)


def _vocabulary(module: nn.Module) -> int:
    embedding = next((m for m in module.modules() if isinstance(m, nn.Embedding)), None)
    if embedding is None:
        raise UsageError(f"{type(module).__name__} has no nn.Embedding: pass vocabulary=, the number of token ids")
    return embedding.num_embeddings
