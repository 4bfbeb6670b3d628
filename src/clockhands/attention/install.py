"""A scheme in a loaded model of transformers: its attention runs through ours, until it is taken out again.

transformers lets anybody register an attention function, and hands it queries, keys and values of every layer after
they have been rotated. There a scheme takes their place; the model's own rotation is left as it is, or undone by
giving the layers the cosine 1 and the sine 0. Masks, caches and projections stay the model's own.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection
from types import TracebackType
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import nn

from clockhands.attention.dispatch import attend
from clockhands.errors import MissingPackageError, UsageError
from clockhands.positions import count_from_mask
from clockhands.schemes.absolute.none import NoPosition
from clockhands.schemes.scheme import Scheme
from clockhands.shapes import Tensor

NAME = "clockhands-installed"
"""The name under which our attention function is registered with transformers."""
_MARK = "_clockhands_installed"
"""An attribute of the attention layers of models in which something is installed: what is in the layer, or None.

It is a tuple, in which no module registers a scheme: what is saved is the model as it was. A copy of a model copies it,
and has a scheme of its own.
"""
_BEFORE = "_clockhands_before"
"""An attribute of such models: how they computed their attention before the first scheme was installed."""


class _Layer(NamedTuple):
    """A scheme in one attention layer, and the installation that knows where the tokens stand."""

    scheme: Scheme
    installed: Installed


def install(
    model: Any, scheme: Scheme, *, rotary: Literal["keep", "off"] = "off", layers: Collection[int] | None = None
) -> Installed:
    """Put a scheme into the attention of a loaded model of transformers, at once, until it is taken out.

    ::

        with install(llama, Alibi(32)):                          # ALiBi in place of the rotation, in all layers
            llama.generate(**tokens, max_new_tokens=50)
        with install(llama, Window(32, left=511), rotary="keep", layers=range(0, 32, 2)):    # a window beside it
            ...
        undo = install(llama, NoPosition(), layers=range(3, 32, 4))     # no position in every fourth layer
        undo.remove()

    Works with any causal or bidirectional model whose attention runs through the attention interface of transformers,
    with its caches, left padding and gradients; the learned parameters of the scheme are the scheme's own, and what
    ``save_pretrained`` writes is the model as it was. Several schemes may be installed in different layers.

    Args:
        model: a model of transformers.
        scheme: made for its heads; it is moved to the model's device.
        rotary: ``off``: the model's own rotation is undone in these layers, and the scheme takes its place; ``keep``:
            it stays, and the scheme, which must not rotate too, acts beside it. For a model that has none they are the
            same.
        layers: indices of layers, from 0; None: all.

    Raises UsageError for a model or a scheme with which that is not possible, with the reason.
    """
    return Installed(model, scheme, rotary, layers)


class Installed:
    """A scheme in a model (``install``). ``remove`` takes it out, as does the end of a ``with`` block."""

    def __init__(self, model: Any, scheme: Scheme, rotary: str, layers: Collection[int] | None) -> None:
        _check(model, scheme, rotary)
        self.model, self.scheme, self.rotary = model, scheme, rotary
        self.whole = _find_stack(model)
        attentions = _list_attentions(self.whole)
        indices = set(attentions) if layers is None else set(layers)
        if not attentions or not indices <= set(attentions):
            known = f"0 to {max(attentions)}" if attentions else "none"
            raise UsageError(
                f"layers are {sorted(indices)}, and {type(model).__name__} has the attention layers {known}"
            )
        chosen = {layer: attentions[layer] for layer in sorted(indices)}
        taken = [layer for layer, module in chosen.items() if getattr(module, _MARK, None)]
        if taken:
            raise UsageError(f"a scheme is installed in layers {taken} already; take it out first, or choose others")
        scheme.to(next(model.parameters()).device)
        self._positions: _Standing | None = None
        self._hooks = [self.whole.register_forward_pre_hook(self._note_positions, with_kwargs=True)]
        for module in chosen.values():
            if rotary == "off" and "position_embeddings" in inspect.signature(module.forward).parameters:
                self._hooks.append(module.register_forward_pre_hook(_undo_rotation, with_kwargs=True))
        for module in attentions.values():
            own = _Layer(scheme, self) if module in chosen.values() else getattr(module, _MARK, None)
            setattr(module, _MARK, own)
        self._modules = list(chosen.values())
        _use_our_attention(model)

    def _note_positions(self, module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Keep where the tokens of this forward pass stand, which attention layers are not told.

        Raises UsageError where the model has been given another attention since, which would not know the scheme.
        """
        now = cast(Any, self.whole).config._attn_implementation
        if now != NAME:
            names = f"{type(self.scheme).__name__} is installed in {type(self.model).__name__}"
            raise UsageError(
                f"{names}, whose attention has been set to {now!r} since, which does not know it; take the scheme out "
                f"first"
            )
        arguments = inspect.signature(module.forward).bind_partial(*args, **named).arguments
        self._positions = _Standing(arguments)

    def compute(self, scheme: Scheme, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **options: Any) -> Tensor:
        """Compute the attention of a layer with its scheme: [B, H, S, Kv]."""
        if self._positions is None:
            raise UsageError(f"{type(self.model).__name__} runs its layers without {type(self.whole).__name__}")
        qpos, kpos = self._positions.find(q.shape[2], k.shape[2], q.device)
        return attend(scheme, q, k, v, qpos, kpos, mask, **options)

    def remove(self) -> None:
        """Take the scheme out, so that the model is as it was."""
        for hook in self._hooks:
            hook.remove()
        for module in self._modules:
            setattr(module, _MARK, None)
        attentions = list(_list_attentions(self.whole).values())
        if self._modules and not any(getattr(module, _MARK, None) for module in attentions):
            self.model.set_attn_implementation(getattr(self.model, _BEFORE))
            delattr(self.model, _BEFORE)
            for module in attentions:
                delattr(module, _MARK)
        self._hooks, self._modules = [], []

    def __enter__(self) -> Installed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"Installed({self.scheme!r} in {len(self._modules)} layers of {type(self.model).__name__})"


class _Standing:
    """Where the tokens of one forward pass stand, those in the cache too."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        tokens = arguments.get("input_ids")
        tokens = arguments.get("inputs_embeds") if tokens is None else tokens
        # The cache is called ``cache`` from transformers 5.24 on.
        named = {**arguments.get("kwargs", {}), **arguments}
        cache = next((named[name] for name in ("cache", "past_key_values") if named.get(name) is not None), None)
        self.past = int(cache.get_seq_length()) if cache is not None else 0
        mask = arguments.get("attention_mask")
        self.mask = mask if isinstance(mask, Tensor) and mask.dim() == 2 else None
        own = arguments.get("position_ids")
        if isinstance(own, Tensor) and own.dim() != 2:
            raise UsageError(
                f"position_ids are {list(own.shape)}, and an installed scheme reads one axis: [rows, tokens]"
            )
        self.own = own if isinstance(own, Tensor) else None
        self.new = 0 if tokens is None else tokens.shape[1]

    def find(self, queries: int, keys: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return positions of queries [B, S] and keys [B, T]. Raises UsageError where those of the cache are not known.

        Without ``position_ids`` tokens count from the first column, as in transformers; with them, from the first
        token that the mask shows. A window's cache holds the last tokens alone, a static one has empty places behind.
        """
        total = self.past + queries
        counted = torch.arange(total, device=device)[None]
        if self.own is not None:
            own = self.own.to(device)
            if not self.past:
                counted = own
            elif self.mask is not None and self.mask.shape[1] >= total:
                real = self.mask[:, :total].to(device)
                counted = count_from_mask(real)
                if not bool(((counted[:, self.past :] == own) | (real[:, self.past :] == 0)).all()):
                    raise UsageError(
                        "position_ids of the new tokens do not go on from the attention_mask, so that the positions of "
                        "the cached tokens are not known; give no position_ids, or no cache"
                    )
            else:
                counted = own[:, :1] - self.past + counted
        qpos = counted[:, total - queries :]
        if keys > total:
            return qpos, torch.nn.functional.pad(counted, (0, keys - total))
        return (qpos, counted) if keys == total else (qpos, counted[:, total - keys :])


def _check(model: Any, scheme: Scheme, rotary: str) -> None:
    """Refuse what cannot be installed, with the reason."""
    name, kind = type(model).__name__, type(scheme).__name__
    if not isinstance(scheme, Scheme):
        raise UsageError(f"install takes a scheme that is made, such as Alibi(32), and was given {kind}")
    if rotary not in ("keep", "off"):
        raise UsageError(f"rotary is {rotary!r}, but must be 'keep' or 'off'")
    if not getattr(type(model), "_can_set_attn_implementation", lambda: False)():
        raise UsageError(
            f"{name} does not run through the attention interface of transformers, so that no scheme can be installed"
        )
    if model.config.is_encoder_decoder:
        raise UsageError(f"{name} has an encoder and a decoder, and install knows models of one stack")
    hooks = scheme.active_hooks()
    if hooks & {"encode", "locate"}:
        where = "at the embedding" if "encode" in hooks else "on the input of each layer"
        raise UsageError(f"{kind} acts {where}, which the attention of a loaded model does not see")
    if "rotate" in hooks and not scheme.scales_queries and rotary == "keep" and _rotates(model):
        raise UsageError(f"{name} rotates queries and keys, and {kind} would rotate them again; set rotary='off'")
    if scheme.widening != 1:
        raise UsageError(f"{kind} makes queries and keys wider, and caches of {name} hold them as they are")


def _rotates(model: Any) -> bool:
    """Return whether the configuration of a model has a rotation."""
    return getattr(model.config.get_text_config(), "rope_parameters", None) is not None


def _find_stack(model: Any) -> nn.Module:
    """Return the module that is given the tokens and runs the layers."""
    base = getattr(model, "base_model", model)
    inner = getattr(base, "language_model", None)
    return inner if isinstance(inner, nn.Module) else base


def _list_attentions(stack: nn.Module) -> dict[int, nn.Module]:
    """Return the attention modules of a stack by the index of their layer, which is the first number in their name."""
    attentions: dict[int, nn.Module] = {}
    for name, module in stack.named_modules():
        number = re.search(r"(?:^|\.)(\d+)(?:\.|$)", name)
        attends = "Attention" in type(module).__name__ and hasattr(module, "config")
        # The outermost that has a configuration: of BERT's two, that which computes is inside.
        if number and attends:
            attentions[int(number[1])] = module
    return attentions


def _undo_rotation(module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], Any]:
    """Give a layer the cosine 1 and the sine 0, of the shape of its own."""
    waves = named.get("position_embeddings")
    if waves is None:
        return args, named
    if isinstance(waves, tuple) and len(waves) == 2:
        still: Any = (torch.ones_like(waves[0]), torch.zeros_like(waves[1]))
    elif isinstance(waves, Tensor) and waves.is_complex():
        still = torch.ones_like(waves)
    else:
        raise UsageError(f"{type(module).__name__} is given positions in a form in which they cannot be undone")
    return args, {**named, "position_embeddings": still}


def _use_our_attention(model: Any) -> None:
    """Let a model compute its attention by ours, with the masks of SDPA; how it did before is kept."""
    try:
        from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
    except ModuleNotFoundError as fault:
        raise MissingPackageError("clockhands.attention.install", "transformers") from fault
    ALL_ATTENTION_FUNCTIONS.register(NAME, _attend)
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
    if model.config._attn_implementation != NAME:
        setattr(model, _BEFORE, str(model.config._attn_implementation))
        model.set_attn_implementation(NAME)


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, *,
    scaling: float | None = None, dropout: float = 0.0, is_causal: bool | None = None, **options: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """Compute a layer's attention as transformers asks for it, with the installed scheme if it has one."""
    if not hasattr(module, _MARK):
        raise UsageError(
            f"this {type(module).__name__} has no scheme: its model was made from the configuration of one in which a "
            f"scheme was installed; install it here too, or call set_attn_implementation('sdpa')"
        )
    layer = getattr(module, _MARK)
    for name, what in (("softcap", "limits its logits by a hyperbolic tangent"), ("s_aux", "has sinks of its own")):
        if options.get(name) is not None:
            raise UsageError(f"{type(module).__name__} {what} ({name}), with which no scheme can be installed")
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    width, scale = query.shape[-1], query.shape[-1] ** -0.5 if scaling is None else scaling
    named: dict[str, Any] = {"causal": bool(causal) and attention_mask is None and query.shape[2] > 1}
    named["dropout"] = dropout
    if named["causal"]:
        # SDPA aligns at the top left, ``attend`` at the bottom right: without a mask the places of a static cache
        # behind the queries are empty.
        key, value = key[:, :, : query.shape[2]], value[:, :, : query.shape[2]]
    if query.dtype != value.dtype:
        # Under autocast the model's rotation leaves queries and keys in float32, and SDPA would lower them.
        query, key = query.to(value.dtype), key.to(value.dtype)
    if layer is None:
        # A layer without a scheme computes as SDPA does, through ``attend``, so that ``record`` hears of it too.
        qpos = torch.zeros(1, query.shape[2], dtype=torch.int64, device=query.device)
        kpos = torch.zeros(1, key.shape[2], dtype=torch.int64, device=query.device)
        out = attend(NoPosition(), query, key, value, qpos, kpos, attention_mask, scale=scale, **named)
    else:
        # A scheme's own factor is one on 1/√d, for which the model may have another number.
        named["scale"] = scale * layer.scheme.scale(width) * width**0.5
        out = layer.installed.compute(layer.scheme, query, key, value, attention_mask, **named)
    return out.transpose(1, 2).contiguous(), None


def list_installed(model: nn.Module) -> dict[int, Installed | None]:
    """Return what is installed in each attention layer of a model, by its index; empty where nothing is."""
    if not is_installed(model):
        return {}
    layers = {index: getattr(module, _MARK) for index, module in _list_attentions(_find_stack(model)).items()}
    return {index: layer and layer.installed for index, layer in layers.items()}


def is_installed(model: nn.Module) -> bool:
    """Return whether a scheme is installed in an attention layer of a model, or of this layer's model."""
    return any(hasattr(module, _MARK) for module in model.modules())
