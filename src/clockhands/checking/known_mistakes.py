"""Give a reference model one known mistake at a time: those that ports of models make in every layer alike."""

from __future__ import annotations

import contextlib
import copy
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers.initialization import no_init_weights

from clockhands.checking.models.copies import copy_sharing
from clockhands.checking.models.subject import Subject
from clockhands.runs.streaming import find_device, is_streamed, open_streamed

Answer = Callable[[Tensor], Tensor]
_BASES = (1e4, 1e5, 5e5, 1e6, 1.6e5, 5e4, 2e6, 5e6, 1e7, 1e3, 100.0)
_QUERIES_AND_KEYS = ("q_proj", "k_proj", "q_b_proj", "query", "key")
_SLOPES = ("_get_alibi_slopes", "build_alibi_tensor", "build_mpt_alibi_tensor")


def alternatives(reference: Subject) -> Iterator[tuple[str, Answer]]:
    """Yield the reference with one known mistake each: a name, and a function from a text to logits."""
    yield from _offsets(reference)
    if reference.module is None or not hasattr(reference.adapter, "config"):
        return
    yield from _pairings(reference)
    yield from _rotations(reference)
    yield from _buckets(reference)
    yield from _scales(reference)
    yield from _slopes(reference)


def _offsets(reference: Subject) -> Iterator[tuple[str, Answer]]:
    if not reference.takes("positions") or not reference.facts.absolute:
        return
    for by in (1, 2, -1, -2):

        def shifted(ids: Tensor, by: int = by) -> Tensor:
            positions = (reference.arange(ids.shape[0], ids.shape[1]) + by).clamp(min=0)
            return reference.logits(ids, positions=positions)

        yield f"positions offset by {by:+d}", shifted


def _pairings(reference: Subject) -> Iterator[tuple[str, Answer]]:
    """Lay out the rotated pairs otherwise: the outputs of the query and key projections in another order."""
    module: Any = reference.module
    named = any(name.endswith(_QUERIES_AND_KEYS) for name, _ in module.named_modules())
    if "RoPE" not in reference.facts.scheme or not named:
        return
    width = getattr(reference.adapter.config, "head_dim", None)  # type: ignore[attr-defined]
    width = width or module.config.hidden_size // module.config.num_attention_heads
    halves = torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])
    for label, order in (("interleaved for half", halves), ("half for interleaved", halves.argsort())):
        yield f"rotated pairs laid out {label}", _edited(reference, partial(_permute, order))


def _permute(order: Tensor, module: nn.Module) -> None:
    for name, layer in module.named_modules():
        if name.endswith(_QUERIES_AND_KEYS) and isinstance(layer, nn.Linear):
            rows = torch.arange(layer.out_features).view(-1, len(order))[:, order].flatten()
            layer.register_forward_hook(partial(_rows, rows))


def _rows(rows: Tensor, _layer: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
    return output[..., rows.to(output.device)]


def _rotations(reference: Subject) -> Iterator[tuple[str, Answer]]:
    """Take another base, another share of the head, or no scaling, for each kind of layer with its own settings."""
    rope = getattr(reference.adapter.config, "rope_parameters", None) or {}  # type: ignore[attr-defined]
    kinds = (
        [""] if "rope_theta" in rope else [kind for kind, parameters in rope.items() if isinstance(parameters, dict)]
    )
    for kind in kinds:
        settings, label = (rope[kind], f" ({kind})") if kind else (rope, "")
        theta = settings.get("rope_theta", 1e4)
        for base in (candidate for candidate in _BASES if candidate != theta):
            yield (
                f"wrong base: theta {base:g} for {theta:g}{label}",
                _rerotate(reference, kind, rope_theta=base),
            )
        for share in (0.25, 0.5, 0.75, 1.0):
            yield (
                f"partial_rotary_factor {share:g}{label}",
                _rerotate(reference, kind, partial_rotary_factor=share),
            )
        if settings.get("rope_type", "default") != "default":
            left_out = _rerotate(reference, kind, rope_type="default")
            yield f"scaling {settings['rope_type']!r} left out{label}", left_out


def _rerotate(reference: Subject, kind: str, **changed: Any) -> Answer:
    """Return the logits of the reference's weights in a model with other settings of its rotation."""
    adapter: Any = reference.adapter

    def logits(ids: Tensor) -> Tensor:
        config = copy.deepcopy(adapter.module.config)
        text = config.get_text_config(decoder=True)
        rope = copy.deepcopy(text.rope_parameters)
        (rope[kind] if kind else rope).update(changed)
        text.rope_parameters = rope
        return _answer(adapter, _with_config(adapter, config, reference.dtype), ids)

    return logits


def _with_config(adapter: Any, config: Any, dtype: torch.dtype) -> Any:
    """Put the weights of the adapter's model into one of another configuration; streamed again if they are streamed."""
    module = adapter.module
    if is_streamed(module):
        if adapter.source is None:
            raise NotImplementedError("a streamed model in hand does not say where its files are")
        return open_streamed(type(module), adapter.source, find_device(module), dtype=dtype, config=config)
    with no_init_weights():
        model = type(module)._from_config(config, dtype=dtype)
    weights = dict(module.named_parameters(remove_duplicate=False))  # tied ones under both names
    model.load_state_dict(weights, strict=False, assign=True)
    return model.to(find_device(module))


def _buckets(reference: Subject) -> Iterator[tuple[str, Answer]]:
    """Change T5's buckets of distances: another maximum, the sign of the distance, one direction for two."""
    distances = _numbers(reference, "relative_attention_max_distance")
    for value in distances:
        for other in (candidate for candidate in (16, 32, 64, 128, 256) if candidate != value):
            edit = _setter("relative_attention_max_distance", value, other)
            yield f"buckets: maximum distance {other} for {value}", _edited(reference, edit)
    if distances:
        yield "buckets: the sign of the distance", _edited(reference, partial(_rebucket, lambda d, k: (-d, k)))
        for directions, label in ((True, "both directions"), (False, "one direction")):
            change = partial(_directed, directions)
            yield f"buckets counted in {label}", _edited(reference, partial(_rebucket, change))


def _directed(both: bool, distance: Tensor, named: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
    return distance, {**named, "bidirectional": both}


def _rebucket(change: Callable[[Tensor, dict[str, Any]], tuple[Tensor, dict[str, Any]]], module: nn.Module) -> None:
    """Pass other distances or directions to every attention of the module, which is a copy."""

    def wrapped(original: Callable[..., Tensor], distance: Tensor, **named: Any) -> Tensor:
        distance, named = change(distance, named)
        return original(distance, **named)

    for part in module.modules():
        original = getattr(part, "_relative_position_bucket", None)
        if original is not None:
            part._relative_position_bucket = partial(wrapped, original)  # type: ignore[assignment]


def _scales(reference: Subject) -> Iterator[tuple[str, Answer]]:
    """Change the factor of the attention logits, of the embedding, or of YaRN's cosines and sines."""
    for attribute in ("scaling", "attention_scaling", "embed_scale"):
        for value in _numbers(reference, attribute):
            for other in sorted({1.0, value**0.5, value**2} - {value}):
                edit = _setter(attribute, value, other)
                yield f"scale: {attribute} {other:.4g} for {value:.4g}", _edited(reference, edit)


def _numbers(reference: Subject, attribute: str) -> list[Any]:
    """Return the positive values that an attribute has in the parts of the model."""
    assert reference.module is not None
    values = (getattr(part, attribute, None) for part in reference.module.modules())
    return sorted({value for value in values if isinstance(value, (int, float)) and value > 0})


def _setter(attribute: str, value: int | float, other: int | float) -> Callable[[nn.Module], None]:
    def edit(module: nn.Module) -> None:
        for part in module.modules():
            if getattr(part, attribute, None) == value:
                setattr(part, attribute, other)

    return edit


def _edited(reference: Subject, edit: Callable[[nn.Module], None]) -> Answer:
    """Return the logits of a copy of the reference after an edit, which sets attributes or replaces parameters."""
    adapter: Any = reference.adapter

    def logits(ids: Tensor) -> Tensor:
        model = copy_sharing(adapter.module)
        with torch.no_grad():
            edit(model)
        return _answer(adapter, model, ids)

    return logits


def _answer(adapter: Any, model: Any, ids: Tensor) -> Tensor:
    with torch.no_grad():
        return type(adapter)(model, adapter.task).logits(ids)


def _slopes(reference: Subject) -> Iterator[tuple[str, Answer]]:
    """Change ALiBi's slopes: index off by one, other sign, divided by the root of the head width, other order."""
    module: Any = reference.module
    home = sys.modules[type(module).__module__]
    name = next((maker for maker in _SLOPES if hasattr(home, maker)), None)
    if name is None or reference.facts.scheme != "ALiBi":
        return
    config = module.config
    heads = next(getattr(config, n) for n in ("n_head", "n_heads", "num_attention_heads") if n in vars(config))
    step, width = 2.0 ** (8 / heads), config.hidden_size // heads
    factors = {"one head too early": step, "one head too late": 1 / step, "of the wrong sign": -1.0}
    factors["divided by the root of the head width"] = width**-0.5
    for label, factor in factors.items():
        yield f"slopes {label}", _patched(reference, home, name, partial(_times, factor))
    yield "slopes in reverse order of heads", _patched(reference, home, name, partial(_reversed, heads))


def _times(factor: float, alibi: Tensor) -> Tensor:
    return alibi * factor


def _reversed(heads: int, alibi: Tensor) -> Tensor:
    return alibi.unflatten(0, (-1, heads)).flip(1).flatten(0, 1)


def _patched(reference: Subject, home: Any, name: str, change: Callable[[Tensor], Tensor]) -> Answer:
    @contextlib.contextmanager
    def replaced() -> Iterator[None]:
        original = getattr(home, name)
        setattr(home, name, lambda *args, **named: change(original(*args, **named)))
        try:
            yield
        finally:
            setattr(home, name, original)

    def logits(ids: Tensor) -> Tensor:
        with replaced():
            return reference.logits(ids)

    return logits
