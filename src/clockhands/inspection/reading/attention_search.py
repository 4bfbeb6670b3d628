"""Find the attention layers of a model that can be run again alone, and say why others cannot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from clockhands.errors import CheckpointError
from clockhands.inspection.reading.attention_hooks import listen
from clockhands.inspection.reading.computed_attention import ComputedAttention, ignore_attention
from clockhands.inspection.reading.layer import Layer, find_input
from clockhands.model.cross_attention import CrossAttention
from clockhands.pretrained import first_line
from clockhands.shapes import Tensor


@dataclass(frozen=True)
class ModuleCall:
    """The arguments with which an attention module was called."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def record_calls(
    model: nn.Module, run: Callable[[], object], shape: tuple[int, int]
) -> tuple[list[ModuleCall], list[nn.Module], str]:
    """Run the model, and return the calls of its self-attention in order, and the modules of cross-attention.

    It runs twice: to see which modules compute attention, and to record the arguments of their calls. Each layer is
    then replayed, to see whether it can be run alone. The third value says why the attention of some module, self- or
    cross-attention, could not be read; it is empty if all could. Raises CheckpointError if no attention was seen.
    """
    modules, unread_reason = _find_readable(model, run, shape)
    recorded: list[ModuleCall] = []

    def record(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # A cache would grow with every replay.
        named = {name: None if _is_cache(value) else value for name, value in kwargs.items()}
        recorded.append(ModuleCall(module, tuple(None if _is_cache(value) else value for value in args), named))

    hooks = [module.register_forward_pre_hook(record, with_kwargs=True) for module in modules]
    try:
        with listen(model, ignore_attention):
            run()
    finally:
        for hook in hooks:
            hook.remove()
    cross_modules = [call.module for call in recorded if is_cross_attention(call.module, call.kwargs)]
    faults = [(call, _explain_fault(call, model, shape)) for call in recorded if call.module not in cross_modules]
    readable = [call for call, fault in faults if not fault]
    fault = next((fault for _, fault in faults if fault), "")
    return readable, cross_modules, unread_reason or fault


def _find_readable(model: nn.Module, run: Callable[[], object], shape: tuple[int, int]) -> tuple[list[nn.Module], str]:
    """Return the modules whose attention is computed as logits of every query, and why others are left out.

    Raises CheckpointError if no attention was seen.
    """
    complete: dict[nn.Module, bool] = {}  # by module: are all its logits those of every text and of every query?
    entered: dict[str, None] = {}  # the classes that ran and have "attention" in their names, to name them in a message

    def note_shape(computed: ComputedAttention) -> None:
        # The keys of cross-attention are those of another text; ``_explain_fault`` looks at those of self-attention.
        has_all_queries = computed.logits_BHST.shape[0] == shape[0] and computed.logits_BHST.shape[2] == shape[1]
        complete[computed.module] = complete.get(computed.module, True) and has_all_queries

    hooks = [
        module.register_forward_pre_hook(lambda module, args: entered.setdefault(type(module).__name__))
        for module in model.modules()
        if "attention" in type(module).__name__.lower()
    ]
    unread_reason = ""
    try:
        with listen(model, note_shape):
            run()
    except CheckpointError as fault:
        unread_reason = str(fault)
        complete.clear()
    finally:
        for hook in hooks:
            hook.remove()
    if not complete and not entered and not unread_reason:
        raise CheckpointError(
            f"no attention was seen in {type(model).__name__}: it has none, or computes it in a way that neither the "
            "attention interface of transformers nor a softmax shows"
        )
    readable = [module for module, has_all_queries in complete.items() if has_all_queries]
    unread = {type(module).__name__ for module, has_all_queries in complete.items() if not has_all_queries}
    return readable, unread_reason or _explain_unread(unread if complete else set(entered))


def _explain_unread(names: set[str]) -> str:
    """Say that attention of classes of these names is computed in another way; empty without a name."""
    listed = ", ".join(sorted(names))
    return f"the attention of {listed} is not computed as logits of every token for every token" if names else ""


def _explain_fault(call: ModuleCall, model: nn.Module, shape: tuple[int, int]) -> str:
    """Return why a layer cannot be run again alone; empty if it can."""
    name = type(call.module).__name__
    hidden = find_input(call.args, call.kwargs)
    if hidden is None or tuple(hidden.shape[:-1]) not in (shape, shape[::-1]):
        return f"the attention of {name} is not given one vector per token"
    count, length = shape
    layer = Layer(0, call.module, hidden, model, call.args, call.kwargs, is_time_first(hidden, length, model))
    try:
        logits = layer.replay(hidden.transpose(0, 1) if layer.time_first else hidden).logits_BHST
    except Exception as fault:  # foreign code, run in a way that it was not written for
        return f"the attention of {name} cannot be run alone ({type(fault).__name__}: {first_line(fault)})"
    if logits.shape[0] != count or tuple(logits.shape[2:]) != (length, length):
        return _explain_unread({name})
    return ""


def _is_cache(value: object) -> bool:
    """Tell whether an argument is a KV cache of transformers, by the name of its class."""
    return type(value).__name__.endswith("Cache")


def is_cross_attention(module: nn.Module, kwargs: dict[str, Any]) -> bool:
    """Tell whether a call is one of cross-attention: the module reads the states of another text."""
    sources = ("key_value_states", "encoder_hidden_states")
    return isinstance(module, CrossAttention) or any(kwargs.get(name) is not None for name in sources)


def is_time_first(hidden: Tensor, length: int, model: nn.Module) -> bool:
    """Tell whether the first axis of an input is time. Where there are as many texts as tokens, the class decides."""
    return hidden.shape[0] == length and (hidden.shape[1] != length or "xlnet" in type(model).__name__.lower())
