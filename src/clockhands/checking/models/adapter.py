"""The four-argument face through which every model is checked, and what is derived from it."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from clockhands.errors import UsageError, describe_unknown
from clockhands.runs.streaming import find_device

OPTIONAL = (
    *("causal", "max_length", "packs", "module", "new_cache", "roll_back", "reorder", "fresh", "audible"),
    *("absolute", "stretches", "per_token", "special", "takes"),
)
"""What an adapter may have besides ``vocabulary`` and ``logits``."""


@runtime_checkable
class Adapter(Protocol):
    """What a model must offer to be checked. Shapes: B rows, S new tokens, T keys (cached ones included).

    ``logits(ids_BS, mask_BT, positions_BS, cache)`` returns logits_BSV. ``mask`` is true where a token may be looked
    at and covers the cached tokens too (or is the four-dimensional ``mask_B1ST``, added to nothing else);
    ``positions`` are integers. A model that takes no mask, positions or cache raises NotImplementedError, or leaves
    the parameter out; those checks then do not apply.

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


class FunctionAdapter:
    """A plain function ``logits(ids, mask=None, positions=None, cache=None)`` as an adapter."""

    def __init__(self, function: Callable[..., Tensor], vocabulary: int, **optional: Any) -> None:
        self.function = function
        self.vocabulary = vocabulary
        for name, value in optional.items():
            setattr(self, name, value)

    def logits(
        self, ids: Tensor, mask: Tensor | None = None, positions: Tensor | None = None, cache: Any = None
    ) -> Tensor:
        """Call the function with what is given; an argument it lacks is not supported."""
        arguments = {"mask": mask, "positions": positions, "cache": cache}
        return self.function(ids, **{name: value for name, value in arguments.items() if value is not None})


class ModuleAdapter(FunctionAdapter):
    """A PyTorch module whose ``forward(ids, mask=None, positions=None, cache=None)`` returns logits."""

    def __init__(self, module: nn.Module, vocabulary: int | None = None, **optional: Any) -> None:
        self.module = module.eval()
        super().__init__(self._forward, vocabulary or _vocabulary(module), **optional)
        for name in ("new_cache", "roll_back", "reorder", "max_length", "causal", "packs", "stretches"):
            if name not in optional and getattr(module, name, None) is not None:
                setattr(self, name, getattr(module, name))

    def _forward(self, ids: Tensor, **arguments: Any) -> Tensor:
        return self.module(ids, **arguments)

    def __deepcopy__(self, memo: dict[int, Any]) -> ModuleAdapter:
        skip = ("module", "function", "vocabulary", "new_cache", "roll_back", "reorder")
        rest = {name: value for name, value in vars(self).items() if name not in skip}
        return type(self)(copy.deepcopy(self.module, memo), self.vocabulary, **rest)


def adapt(model: Any, **optional: Any) -> Adapter:
    """Return an adapter for whatever was handed in: an adapter, a module, or a function with ``vocabulary=``.

    Raises UsageError for anything else, and for an attribute that no adapter has: the checks would never read it.
    """
    unknown = [name for name in optional if name not in (*OPTIONAL, "vocabulary")]
    if unknown:
        raise UsageError(describe_unknown("attribute of a model", unknown[0], (*OPTIONAL, "vocabulary")))
    if isinstance(model, Adapter):
        return model
    if isinstance(model, nn.Module):
        return ModuleAdapter(model, **optional)
    if callable(model) and "vocabulary" in optional:
        return FunctionAdapter(model, **optional)
    raise UsageError(
        f"cannot check a {type(model).__name__}: give a model folder or name, a transformers model, a torch module, "
        "or an object with vocabulary and logits(ids, mask=None, positions=None, cache=None)"
    )


def accepts(adapter: Adapter, argument: str) -> bool:
    """Return whether the adapter declares an argument: ``mask``, ``positions`` or ``cache``."""
    declared = getattr(adapter, "takes", None)
    if declared is not None:
        return argument in declared
    function: Callable[..., Any] = adapter.logits
    if isinstance(adapter, FunctionAdapter):
        module = getattr(adapter, "module", None)
        function = adapter.function if module is None else module.forward
    if argument == "cache" and not hasattr(adapter, "new_cache"):
        return False
    names = inspect.signature(function).parameters
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
