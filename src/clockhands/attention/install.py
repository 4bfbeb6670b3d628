"""A scheme in a loaded model of transformers: its attention runs through ours, until it is taken out again.

transformers lets anybody register an attention function, and hands it queries, keys and values of every layer after
they have been rotated. There a scheme acts; the model's own rotation is kept, or undone by the cosine 1 and the sine 0.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import re
import sys
from collections.abc import Collection
from contextlib import AbstractContextManager
from typing import Any, Literal

import torch
from torch import nn

from clockhands.attention.dispatch import attend
from clockhands.attention.reference import attend_reference
from clockhands.errors import MissingPackageError, UsageError, show_value
from clockhands.positions import count_from_mask
from clockhands.schemes.absolute.none import NoPosition
from clockhands.schemes.arguments import explain_call
from clockhands.schemes.scheme import Scheme
from clockhands.shapes import Tensor

NAME = "clockhands-installed"
"""The name under which our attention function is registered with transformers."""
_MARK = "_clockhands_installed"
"""An attribute of the stack and the attention layers of a model in which something is installed, and of its caches; of
a layer what is installed there, or None, in a tuple, in which no module registers a scheme to be saved."""
_PLACES = "clockhands_places"
"""The argument by which the layers of a forward pass are told where its tokens stand."""
_ALWAYS = {"module", "query", "key", "value", "attention_mask", "scaling", "dropout", "is_causal", "kwargs"}
_ALWAYS |= {"sliding_window", "deterministic"}
"""What attention functions of transformers are given that changes nothing here: the mask has the window in it."""
_EXTRAS = {
    "softcap": "limits its logits by a hyperbolic tangent", "s_aux": "has sinks of its own",
    "sinks": "has sinks of its own", "position_bias": "adds a bias of its own to its logits",
}  # fmt: skip
"""What some are given that changes the result, in words."""
_Places = tuple[Tensor, bool]
"""Where the tokens of one forward pass stand, [B or 1, tokens], those in the cache too, and whether it has one."""
_NUMBERS, _IN_PLACE = itertools.count(), set[int]()
"""Numbers of what was installed, by which a cache knows under which schemes it was filled, and of what still is."""


@explain_call
def install(
    model: Any, scheme: Scheme, *, rotary: Literal["keep", "off"] = "off", layers: Collection[int] | None = None
) -> Installed:
    """Put a scheme into the attention of a loaded model of transformers, at once, until it is taken out.

    ::

        with install(llama, Alibi(32)):                          # ALiBi in place of the rotation, in all layers
            llama.generate(**tokens, max_new_tokens=50)
        window = install(llama, Window(32, left=511), rotary="keep", layers=range(0, 32, 2))    # a window beside it
        window.remove()

    Works with any model of one stack whose attention runs through the attention interface of transformers, with its
    caches, left padding and gradients. What is learned of the scheme is its own: ``save_pretrained`` writes the model
    as it was. A cache that was filled under a scheme takes no more tokens when that is gone, until it is emptied.

    Args:
        model: a model of transformers, or what wraps one (PEFT, ``torch.compile``).
        scheme: made for its heads; it is moved to the model's device.
        rotary: ``off``: the scheme takes the place of the model's own rotation in these layers; ``keep``: it acts
            beside that, and must not rotate too. A table or a temperature of the model's own stays in both.
        layers: indices of layers, from 0; None: all that have attention.

    Raises UsageError for a model or a scheme with which that is not possible, with the reason.
    """
    return Installed(model, scheme, rotary, layers)


class Installed(AbstractContextManager["Installed"]):
    """A scheme in a model (``install``). ``remove`` takes it out, as does the end of a ``with`` block."""

    def __init__(self, model: Any, scheme: Scheme, rotary: str, layers: Collection[int] | None) -> None:
        self.model, self.scheme, self.rotary, self.number = _find_model(model), scheme, rotary, -1
        self.stack = _find_stack(self.model)
        rotates = getattr(self.model.config.get_text_config(), "rope_parameters", None) is not None
        _check(self.model, self.stack, scheme, rotary, rotates)
        attentions = _list_attentions(self.stack)
        wanted = list(attentions if layers is None else layers if isinstance(layers, Collection) else [layers])
        if not wanted or not all(type(layer) is int and layer in attentions for layer in wanted):
            name = type(self.model).__name__
            raise UsageError(f"layers are {show_value(wanted)}, and {name} has the attention layers {list(attentions)}")
        indices = sorted(set(wanted))
        taken = [layer for layer in indices if any(_read_mark(module) for module in attentions[layer])]
        if taken:
            raise UsageError(f"a scheme is installed in layers {taken} already; take it out first, or choose others")
        self._modules, self._hooks = [module for layer in indices for module in attentions[layer]], []
        undone = rotary == "off" and rotates
        for module in self._modules:
            _check_layer(module, scheme, undone)
        for module in self._modules if undone else ():
            self._hooks.append(module.register_forward_pre_hook(_undo_rotation, with_kwargs=True))
        device = next(self.model.parameters()).device
        if device.type != "meta":
            scheme.to(device)
        if not hasattr(self.stack, _MARK):
            setattr(self.stack, _MARK, _Watch(self.model, self.stack))
        for module in self._modules:
            setattr(module, _MARK, (self,))
        self.__setstate__({})

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take a number of its own, so that the scheme in a copy of a model stays when the other one is taken out."""
        vars(self).update(state, number=next(_NUMBERS))
        _IN_PLACE.add(self.number)

    def remove(self) -> None:
        """Take the scheme out, so that the model is as it was."""
        for hook in self._hooks:
            hook.remove()
        for module in self._modules:
            setattr(module, _MARK, (None,))
        watch = getattr(self.stack, _MARK, None)
        if self._modules and watch is not None and not watch.list_installed():
            watch.remove()
        self._hooks, self._modules = [], []
        _IN_PLACE.discard(self.number)

    def __exit__(self, *fault: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"Installed({self.scheme!r} in {len(self._modules)} layers of {type(self.model).__name__})"


class _Watch:
    """A stack in whose layers something is installed: its attention is ours, and it tells them where tokens stand."""

    def __init__(self, model: Any, stack: Any) -> None:
        self.__setstate__({})
        self.stack = stack
        self.modules = [module for module in stack.modules() if _attends(module)]  # those that read an image too
        self.places: _Places | None = None
        # What reads images beside the stack has a configuration of its own, and keeps its attention.
        configs = {id(config): config for config in (model.config, stack.config)}.values()
        self.before = [(config, config._attn_implementation) for config in configs]
        for config, _ in self.before:
            config._attn_implementation_internal = NAME
        for module in self.modules:
            setattr(module, _MARK, (None,))
        self.hooks = [
            stack.register_forward_pre_hook(self.note_places, with_kwargs=True),
            stack.register_forward_hook(self.note_cache, with_kwargs=True),
        ]

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Tell transformers of our attention, in a process too that reads an installed model from a file."""
        from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

        ALL_ATTENTION_FUNCTIONS.register(NAME, _attend)
        ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
        vars(self).update(state)

    def list_installed(self) -> list[Installed]:
        """Return what is installed, once each, in the order of the layers."""
        return list(dict.fromkeys(filter(None, map(_read_mark, self.modules))))

    def remove(self) -> None:
        """Give the model its own attention back."""
        for hook in self.hooks:
            hook.remove()
        for config, name in self.before:
            if config._attn_implementation == NAME:
                config._attn_implementation_internal = name
        for module in (*self.modules, self.stack):
            delattr(module, _MARK)

    def note_places(self, stack: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Find where the tokens of this forward pass stand, and hand it to the layers.

        Raises UsageError where the model has been given another attention since, which would not know the scheme.
        """
        now = stack.config._attn_implementation
        if now != NAME:
            names = self.list_installed()
            raise UsageError(f"attention has been set to {now!r} since, which does not know {names}; take it out first")
        self.places = self.find_places(_bind(stack, args, named))
        if any(p.kind is p.VAR_KEYWORD for p in inspect.signature(stack.forward).parameters.values()):
            named = {**named, _PLACES: self.places}
        return args, named

    def find_places(self, arguments: dict[str, Any]) -> _Places:
        """Return where the tokens stand that a forward pass with these arguments reads, those in its cache too.

        Without ``position_ids`` tokens count from the first column, as in transformers. Of a cache it is known from the
        passes that filled it; the compiler, which cannot keep it, counts again from the mask.
        Raises UsageError for a cache that was filled without what is installed now.
        """
        tokens = arguments.get("input_ids")
        tokens = arguments.get("inputs_embeds") if tokens is None else tokens
        if tokens is None:
            raise UsageError(f"{type(self.stack).__name__} was given no tokens as input_ids or inputs_embeds")
        cache = _find_cache(arguments)
        past = int(cache.get_seq_length()) if cache is not None else 0
        own = arguments.get("position_ids")
        if not isinstance(own, Tensor):
            own = torch.arange(past, past + tokens.shape[1])
        if own.dim() == 3:
            own = own[-3:]  # of four the first makes masks
            if not torch.compiler.is_compiling() and bool((own != own[:1]).any()):
                shape = list(own.shape)
                raise UsageError(f"position_ids are {shape} with axes that differ, and an installed scheme reads one")
            own = own[0]
        own = (own[None] if own.dim() == 1 else own).to(tokens.device)
        if not past:
            return own, cache is not None
        if torch.compiler.is_compiling():
            mask, total = arguments.get("attention_mask"), past + tokens.shape[1]
            if isinstance(mask, Tensor) and mask.dim() == 2 and mask.shape[1] >= total:
                return count_from_mask(mask[:, :total].to(tokens.device)), True
            return own[:, :1] - past + torch.arange(total, device=tokens.device), True
        (known, numbers), own_schemes = getattr(cache, _MARK, (None, [])), self.list_installed()
        if known is None or numbers != [entry.number for entry in own_schemes] or known.shape[1] < past:
            raise UsageError(f"the cache holds {past} tokens read without {own_schemes}; begin with a new cache")
        rows = max(len(known), len(own))
        if rows % len(known) or rows % len(own):
            raise UsageError(f"the cache was filled for {len(known)} texts, and this pass reads {len(own)}")
        known, own = (x.repeat_interleave(rows // len(x), 0) for x in (known[:, :past].to(own), own))
        return torch.cat([known, own], 1), True

    def note_cache(self, stack: Any, args: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:
        """Keep at the cache where its tokens stand, and under which schemes they were read."""
        places = named.get(_PLACES, self.places)  # those of this pass: another thread may run the same model
        made = output if isinstance(output, tuple) else getattr(output, "values", tuple)()
        if torch.compiler.is_compiling() or places is None:
            return
        for cache in (_find_cache(_bind(stack, args, named)), *made):
            if hasattr(cache, "get_seq_length"):
                setattr(cache, _MARK, (places[0], [entry.number for entry in self.list_installed()]))
                cache.update = functools.partial(_update, cache)


def _find_model(model: Any) -> Any:
    """Return the model of transformers, which PEFT, the compiler or a model of one's own may have wrapped."""
    try:
        from transformers import PreTrainedModel
    except ModuleNotFoundError as fault:
        raise MissingPackageError("clockhands.attention.install", "transformers") from fault
    modules = model.modules() if isinstance(model, nn.Module) else ()
    inner = next((module for module in modules if isinstance(module, PreTrainedModel)), None)
    if inner is None:
        raise UsageError(f"install takes a model of transformers that is loaded, and was given {type(model).__name__}")
    return inner


def _check(model: Any, stack: Any, scheme: Scheme, rotary: str, rotates: bool) -> None:
    """Refuse what cannot be installed, with the reason."""
    name, kind = type(model).__name__, type(scheme).__name__
    if not isinstance(scheme, Scheme):
        raise UsageError(f"install takes a scheme that is made, such as Alibi(32), and was given {kind}")
    hooks, decodes = scheme.active_hooks(), getattr(stack.config, "is_decoder", False)
    both_ways = any(not getattr(own, "is_causal", True) for own in itertools.chain(*_list_attentions(stack).values()))
    served, unmasked = model._can_set_attn_implementation(), not model._supports_sdpa and both_ways and decodes
    where = "at the embedding" if "encode" in hooks else "on the input of each layer"
    turns_twice = "rotate" in hooks and not scheme.scales_queries and rotary == "keep" and rotates
    advice = "; make it with causal=False" if "causal" in type(scheme).__init__.__code__.co_varnames else ""
    in_order = scheme.declares.causal_only and both_ways and not decodes
    for holds, reason in (
        (rotary not in ("keep", "off"), f"rotary is {rotary!r}, but must be 'keep' or 'off'"),
        (not served, f"{name} does not run through the attention interface of transformers"),
        (model.config.is_encoder_decoder, f"{name} has an encoder and a decoder; install knows models of one stack"),
        (unmasked, f"{name} does not run through SDPA, whose masks are needed"),
        (in_order, f"{name} reads in both directions, and {kind} is defined for keys up to the query alone{advice}"),
        (hooks & {"encode", "locate"}, f"{kind} acts {where}, which the attention of a loaded model does not see"),
        (turns_twice, f"{name} rotates queries and keys, and {kind} would rotate them again; set rotary='off'"),
        (scheme.widening != 1, f"{kind} makes queries and keys wider, and caches of {name} hold them as they are"),
    ):  # fmt: skip
        if holds:
            raise UsageError(reason)


def _check_layer(module: nn.Module, scheme: Scheme, undone: bool) -> None:
    """Refuse other heads than the scheme's, as far as a layer tells, and a rotation to undo that is its own."""
    names = inspect.unwrap(type(module).forward).__code__.co_names
    handed = "position_embeddings" in inspect.signature(module.forward).parameters
    if undone and not handed and any("rotary" in name for name in names):
        raise UsageError(f"{type(module).__name__} rotates by itself, which cannot be undone; set rotary='keep'")
    owners, name = (module, getattr(module, "config", None)), type(scheme).__name__
    counts = [getattr(owner, name, None) for owner in owners for name in ("num_heads", "num_attention_heads")]
    widths = [getattr(module, name, None) for name in ("qk_head_dim", "head_dim", "head_size", "attention_head_size")]
    for made, sizes, size in zip(scheme.made_for, (counts, widths), ("num_heads", "head_dim"), strict=True):
        own = next((number for number in sizes if type(number) is int), made)
        if made not in (None, own):
            hint = " (to rotate some channels alone, RoPE has fraction)" if size == "head_dim" else ""
            raise UsageError(
                f"{name} was made with {size}={made}, and {type(module).__name__} has {own}; set {size}={own}{hint}"
            )


def _update(cache: Any, *inputs: Any, **named: Any) -> Any:
    """Stand for the ``update`` of a cache, or of a copy, and refuse tokens beside those that a lost scheme read."""
    if not torch.compiler.is_compiling() and not _IN_PLACE.issuperset(getattr(cache, _MARK)[1]):
        if cache.get_seq_length():
            raise UsageError("this cache was filled under a scheme that has been taken out; begin with a new cache")
        del cache.update  # it was emptied since
        return cache.update(*inputs, **named)
    return type(cache).update(cache, *inputs, **named)


def _find_stack(model: Any) -> Any:
    """Return the part of a model that is given the tokens and runs the layers."""
    for part in (model.get_decoder(), model.base_model):
        if hasattr(part, "config") and any(_attends(module) for module in part.modules()):
            return part
    return model


def _attends(module: nn.Module) -> bool:
    """Return whether the code of a module asks transformers for an attention function."""
    code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
    return code is not None and "ALL_ATTENTION_FUNCTIONS" in code.co_names


def _list_attentions(stack: Any) -> dict[int, list[nn.Module]]:
    """Return the modules that attend to the stack's own tokens by the index of their layer.

    It is the first number in their name. A layer may have several; those of another configuration read images or sound.
    """
    attentions: dict[int, list[nn.Module]] = {}
    for name, module in stack.named_modules():
        number = re.search(r"(?:^|\.)(\d+)(?:\.|$)", name)
        own = isinstance(getattr(module, "config", None), type(stack.config))
        if number and own and _attends(module) and not re.search("cross|encoder_attn", name.lower()):
            attentions.setdefault(int(number[1]), []).append(module)
    return dict(sorted(attentions.items()))


def _read_mark(module: nn.Module) -> Installed | None:
    return getattr(module, _MARK, (None,))[0]


def _bind(module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``forward`` by name."""
    arguments = dict(inspect.signature(module.forward).bind_partial(*args, **named).arguments)
    return {**arguments.pop("kwargs", {}), **arguments}


def _find_cache(arguments: dict[str, Any]) -> Any:
    """Return the cache among the arguments of a stack, which is called ``cache`` from transformers 5.24 on, or None."""
    return next((arguments[name] for name in ("cache", "past_key_values") if arguments.get(name) is not None), None)


def _undo_rotation(module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], Any]:
    """Give a layer the cosine 1 and the sine 0, of the shape of its own."""
    waves = _bind(module, args, named).get("position_embeddings")
    if waves is None:
        return args, named
    if isinstance(waves, tuple) and len(waves) == 2:
        still: Any = (torch.ones_like(waves[0]), torch.zeros_like(waves[1]))
    elif isinstance(waves, Tensor) and waves.is_complex():
        still = torch.ones_like(waves)
    else:
        raise UsageError(f"{type(module).__name__} is given positions in a form in which they cannot be undone")
    others = {name: still if value is waves else value for name, value in named.items()}
    return tuple(still if value is waves else value for value in args), others


@functools.cache
def _list_extras(kind: Any) -> dict[str, str]:
    """Return what the layers of a class give their attention that changes the result, by name and in words."""
    own = getattr(sys.modules.get(kind.__module__), "eager_attention_forward", None)
    names = set() if own is None else {*inspect.signature(own).parameters} - _ALWAYS
    return {name: _EXTRAS.get(name, "gives its attention more") for name in sorted({*names, "softcap", "s_aux"})}


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, *,
    scaling: float | None = None, dropout: float = 0.0, is_causal: bool | None = None, **options: Any,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Compute a layer's attention as transformers asks for it, with the installed scheme if it has one."""
    kind: Any = type(module)
    if not hasattr(module, _MARK):
        raise UsageError(
            f"this {kind.__name__} has no scheme: its model was made from the configuration of one in which a "
            f"scheme was installed; install it here too, or call set_attn_implementation('sdpa')"
        )
    for name, what in _list_extras(kind).items():
        if options.get(name) is not None:
            raise UsageError(f"{kind.__name__} {what} ({name}), with which no scheme can be installed")
    installed = _read_mark(module)
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    width, scale = query.shape[-1], query.shape[-1] ** -0.5 if scaling is None else scaling
    causal = bool(causal) and attention_mask is None and query.shape[2] > 1
    if causal:
        # SDPA aligns at the top left, ``attend`` at the bottom right: without a mask the places of a static cache
        # behind the queries are empty.
        key, value = key[:, :, : query.shape[2]], value[:, :, : query.shape[2]]
    scheme: Scheme = NoPosition()
    if installed is None:
        # A layer without a scheme computes as SDPA does, through ``attend``, so that ``record`` hears of it too.
        qpos = torch.zeros(1, query.shape[2], dtype=torch.int64, device=query.device)
        kpos = torch.zeros(1, key.shape[2], dtype=torch.int64, device=query.device)
    else:
        # A scheme's own factor is one on 1/√d, for which the model may have another number.
        scheme = installed.scheme
        scale = scale * scheme.scale(width) * width**0.5
        qpos, kpos = _take_places(installed, options.get(_PLACES), query, key)
    attention = (scheme, query, key, value, qpos, kpos, attention_mask)
    if options.get("output_attentions"):
        attended = attend_reference(*attention, causal=causal, scale=scale, dropout=dropout)
        return attended.out_BHSK.transpose(1, 2).contiguous(), attended.weights_BHST
    out = attend(*attention, causal=causal, scale=scale, dropout=dropout)
    return out.transpose(1, 2).contiguous(), None


def _take_places(installed: Installed, places: _Places | None, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Return positions of queries [B, S] and keys [B, T] of a layer."""
    stack, queries, keys = installed.stack, query.shape[2], key.shape[2]
    if places is None:
        # These layers are not handed what their stack was given: the last pass is theirs, unless one is done again.
        if stack.training and torch.is_grad_enabled() and getattr(stack, "is_gradient_checkpointing", False):
            raise UsageError(
                f"the layers of {type(stack).__name__} are not told where their tokens stand when gradient "
                f"checkpointing computes them again; call gradient_checkpointing_disable()"
            )
        places = getattr(stack, _MARK).places
    if places is None:
        raise UsageError(f"{type(installed.model).__name__} runs its layers without {type(stack).__name__}")
    counted, cached = places[0].to(query.device), places[1]
    total = counted.shape[1]
    if keys > total and cached:  # a static cache has empty places behind, a window's the last tokens alone
        counted = torch.nn.functional.pad(counted, (0, keys - total))
    elif keys > total or queries > total:
        raise UsageError(
            f"{type(stack).__name__} reads {total} tokens, and a layer attends with {queries} queries to {keys} keys, "
            f"of which nobody says where they stand"
        )
    return counted[:, total - queries : total], counted[:, max(0, total - keys) :]


def list_installed(model: nn.Module) -> dict[int, Installed | None]:
    """Return what is installed in each attention layer of a model, by its index; empty where nothing is."""
    layers = _list_attentions(_find_stack(_find_model(model))) if is_installed(model) else {}
    return {index: _read_mark(modules[0]) for index, modules in layers.items()}


def is_installed(model: nn.Module) -> bool:
    """Return whether a scheme is installed in an attention layer of a model, or of this layer's model."""
    return any(hasattr(module, _MARK) for module in model.modules())
