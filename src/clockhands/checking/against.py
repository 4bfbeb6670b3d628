"""A port against its reference: do they answer alike, where do they part, and which known mistake explains it?"""

from __future__ import annotations

import contextlib
import copy
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clockhands.checking import subjects
from clockhands.checking.builds import build_model, find
from clockhands.checking.examination import open_model, shrunk
from clockhands.checking.registry import TOLERANCE, difference, worst
from clockhands.checking.subject import Subject
from clockhands.errors import UsageError

_LENGTH = 32
_BASES = (1e4, 1e5, 5e5, 1e6, 1.6e5, 5e4, 2e6, 5e6, 1e7, 1e3, 100.0)


@dataclass(frozen=True)
class Parting:
    """How far a model is from its reference, in standard deviations of the reference's logits.

    ``position`` and ``layer`` are where the difference first shows (layer 0 is the embedding; None where hidden
    states cannot be had). ``explanation`` is the alternative under which both agree; ``tried`` all of them.
    """

    model: str
    reference: str
    size: float
    position: int | None
    layer: int | None
    explanation: str
    tried: tuple[tuple[str, float], ...]

    @property
    def same(self) -> bool:
        """Whether both give the same logits."""
        return self.size <= TOLERANCE

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "same": self.same}

    def text(self) -> str:
        """The verdict in words."""
        head = f"{self.model} against {self.reference}: {self.size:.2g} std"
        if self.same:
            return f"PASS  {head}: the same."
        layer = "" if self.layer is None else f", layer {self.layer}"
        lines = [f"FAIL  {head}; they part at position {self.position}{layer}."]
        if self.explanation:
            lines.append(f"Explained by: {self.explanation}.")
        else:
            near = sorted(self.tried, key=lambda pair: pair[1])[:3]
            lines.append("No known mistake explains it. Nearest: " + ", ".join(f"{n} ({s:.2g})" for n, s in near) + ".")
        return "\n".join(lines)


def compare(
    model: Any,
    reference: Any,
    *,
    tiny: bool = False,
    dtype: str = "float32",
    device: str = "cpu",
    trust_remote_code: bool = False,
) -> Parting:
    """Compare a model with its reference on the same text, and look for the mistake that explains a difference.

    Each is a folder, a hub name, a model or an adapter. With ``tiny`` both configurations are shrunk and get the same
    weights, so that only what the configurations say about position can differ. Raises UsageError if the vocabularies
    differ or, with ``tiny``, the weights do not fit.
    """
    options = (dtype, device, trust_remote_code)
    ours, theirs = (_open(each, tiny, *options) for each in (model, reference))
    if ours.adapter.vocabulary != theirs.adapter.vocabulary:
        raise UsageError(
            f"{ours.name} has {ours.adapter.vocabulary} tokens, {theirs.name} {theirs.adapter.vocabulary}: "
            "only models of the same vocabulary can be compared"
        )
    if tiny:
        _share_weights(ours, theirs)
    return part(ours, theirs)


def part(ours: Subject, theirs: Subject) -> Parting:
    """The comparison itself, for subjects in hand."""
    ids = theirs.tokens(2, min(_LENGTH, (theirs.facts.limit or _LENGTH) - 2))
    found, wanted = ours.logits(ids), theirs.logits(ids)
    size = worst(found, wanted)[0]
    if size <= TOLERANCE:
        return Parting(ours.name, theirs.name, size, None, None, "", ())
    tried = tuple((name, _agreement(found, other, ids)) for name, other in alternatives(theirs))
    close = [pair for pair in tried if pair[1] <= max(TOLERANCE, size / 100)]
    explanation = min(close, key=lambda pair: pair[1])[0] if close else ""
    return Parting(
        ours.name, theirs.name, size, _first_place(found, wanted), _first_layer(ours, theirs, ids), explanation, tried
    )


def _agreement(found: Tensor, other: Callable[[Tensor], Tensor], ids: Tensor) -> float:
    try:
        return difference(found, other(ids))
    except (RuntimeError, ValueError, IndexError, KeyError, TypeError, NotImplementedError):
        return float("inf")


def _first_place(found: Tensor, wanted: Tensor) -> int:
    gaps = (found - wanted).abs().amax((0, 2)) / wanted.std()
    return int((gaps > TOLERANCE).nonzero()[0])


def _first_layer(ours: Subject, theirs: Subject, ids: Tensor) -> int | None:
    """The first hidden state that differs, where both are models of transformers with as many layers."""
    states = [_hidden(subject, ids) for subject in (ours, theirs)]
    if any(state is None for state in states) or len(states[0] or ()) != len(states[1] or ()):
        return None
    pairs = zip(states[0] or (), states[1] or (), strict=True)
    return next((index for index, (one, two) in enumerate(pairs) if difference(one, two) > TOLERANCE), None)


def _hidden(subject: Subject, ids: Tensor) -> tuple[Tensor, ...] | None:
    module: Any = subject.module
    if not hasattr(subject.adapter, "inputs"):
        return None
    with torch.no_grad():
        output = module(**subject.adapter.inputs(ids), output_hidden_states=True)
    return getattr(output, "hidden_states", None) or getattr(output, "decoder_hidden_states", None)


def alternatives(reference: Subject) -> Iterator[tuple[str, Callable[[Tensor], Tensor]]]:
    """The reference with one known mistake each: a name, and its logits for a text."""
    yield from _offsets(reference)
    module = reference.module
    if module is None or not hasattr(reference.adapter, "config"):
        return
    yield from _pairings(reference)
    yield from _configurations(reference)
    yield from _scales(reference)
    yield from _slopes(reference)


def _offsets(reference: Subject) -> Iterator[tuple[str, Callable[[Tensor], Tensor]]]:
    if not reference.takes("positions") or not reference.facts.absolute:
        return
    for by in (1, 2, -1):

        def shifted(ids: Tensor, by: int = by) -> Tensor:
            places = (reference.arange(ids.shape[0], ids.shape[1]) + by).clamp(min=0)
            return reference.logits(ids, positions=places)

        yield f"positions offset by {by:+d}", shifted


def _pairings(reference: Subject) -> Iterator[tuple[str, Callable[[Tensor], Tensor]]]:
    """Another layout of the rotated pairs is the same as other rows of the query and key projections."""
    module: Any = reference.module
    width = getattr(reference.adapter.config, "head_dim", None)  # type: ignore[attr-defined]
    names = ("q_proj", "k_proj", "q_b_proj", "query", "key")
    if "RoPE" not in reference.facts.scheme or not any(name.endswith(names) for name, _ in module.named_modules()):
        return
    width = width or module.config.hidden_size // module.config.num_attention_heads
    halves = torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])
    for label, order in (("interleaved for half", halves), ("half for interleaved", halves.argsort())):
        yield f"rotated pairs laid out {label}", _edited(reference, partial(_permute, names, order))


def _permute(names: tuple[str, ...], order: Tensor, module: nn.Module) -> None:
    for name, layer in module.named_modules():
        if name.endswith(names) and isinstance(layer, nn.Linear):
            rows = torch.arange(layer.out_features).view(-1, len(order))[:, order].flatten()
            layer.weight.data = layer.weight.data[rows]
            if layer.bias is not None:
                layer.bias.data = layer.bias.data[rows]


def _edited(reference: Subject, edit: Callable[[nn.Module], None]) -> Callable[[Tensor], Tensor]:
    def logits(ids: Tensor) -> Tensor:
        adapter: Any = reference.adapter
        model = copy.deepcopy(adapter.module)
        edit(model)
        with torch.no_grad():
            return type(adapter)(model, adapter.kind).logits(ids)

    return logits


def _configurations(reference: Subject) -> Iterator[tuple[str, Callable[[Tensor], Tensor]]]:
    rope = getattr(reference.adapter.config, "rope_parameters", None)  # type: ignore[attr-defined]
    if isinstance(rope, dict) and "rope_theta" in rope:
        for base in _BASES:
            if base != rope["rope_theta"]:
                yield f"wrong base: theta {base:g} for {rope['rope_theta']:g}", _with(reference, rope_theta=base)
        for share in (0.25, 0.5, 0.75, 1.0):
            yield f"partial_rotary_factor {share:g}", _with(reference, partial_rotary_factor=share)
        if rope.get("rope_type", "default") != "default":
            yield f"scaling {rope['rope_type']!r} left out", _with(reference, rope_type="default")
    for name in ("relative_attention_max_distance", "relative_attention_num_buckets"):
        value = getattr(reference.adapter.config, name, None)  # type: ignore[attr-defined]
        for other in (16, 32, 64, 128, 256) if isinstance(value, int) else ():
            if other != value and name.endswith("distance"):
                yield f"buckets: {name} {other} for {value}", _with_setting(reference, name, other)


def _with(reference: Subject, **changed: Any) -> Callable[[Tensor], Tensor]:
    rope = {**reference.adapter.config.rope_parameters, **changed}  # type: ignore[attr-defined]
    return _with_setting(reference, "rope_parameters", rope)


def _with_setting(reference: Subject, name: str, value: Any) -> Callable[[Tensor], Tensor]:
    """The reference's weights in a model of another configuration."""

    def logits(ids: Tensor) -> Tensor:
        adapter: Any = reference.adapter
        config = copy.deepcopy(adapter.module.config)
        setattr(config, name, value)
        model = build_model(config, adapter.kind, cls=type(adapter.module))
        parameters = dict(adapter.module.named_parameters())
        model.load_state_dict(parameters, strict=False)
        model.to(next(iter(parameters.values())))
        return type(adapter)(model, adapter.kind).logits(ids)

    return logits


def _scales(reference: Subject) -> Iterator[tuple[str, Callable[[Tensor], Tensor]]]:
    """The factor of the attention logits, and the one that YaRN puts on cosines and sines."""
    module: Any = reference.module
    for attribute in ("scaling", "attention_scaling"):
        values = {getattr(m, attribute) for m in module.modules() if isinstance(getattr(m, attribute, None), float)}
        for value in sorted(values):
            for other in {1.0, value**0.5, value**2} - {value}:
                edit = _setter(attribute, value, other)
                yield f"scale: {attribute} {other:.4g} for {value:.4g}", _edited(reference, edit)


def _setter(attribute: str, value: float, other: float) -> Callable[[nn.Module], None]:
    def edit(module: nn.Module) -> None:
        for each in module.modules():
            if getattr(each, attribute, None) == value:
                setattr(each, attribute, other)

    return edit


def _slopes(reference: Subject) -> Iterator[tuple[str, Callable[[Tensor], Tensor]]]:
    """ALiBi's slopes: the index off by one, the sign, divided by the root of the head width, in another order."""
    module: Any = reference.module
    home = sys.modules[type(module).__module__]
    name = next(
        (n for n in ("_get_alibi_slopes", "build_alibi_tensor", "build_mpt_alibi_tensor") if hasattr(home, n)), None
    )
    if name is None or reference.facts.scheme != "ALiBi":
        return
    heads = next(
        getattr(module.config, n) for n in ("n_head", "n_heads", "num_attention_heads") if n in vars(module.config)
    )
    step, width = 2.0 ** (8 / heads), module.config.hidden_size // heads
    factors = {"one head too early": step, "one head too late": 1 / step, "of the wrong sign": -1.0}
    factors["divided by the root of the head width"] = width**-0.5
    for label, factor in factors.items():
        yield f"slopes {label}", _patched(reference, home, name, partial(_times, factor))
    yield "slopes in reverse order of heads", _patched(reference, home, name, lambda t: _reverse(t, heads))


def _times(factor: float, alibi: Tensor) -> Tensor:
    return alibi * factor


def _reverse(alibi: Tensor, heads: int) -> Tensor:
    return alibi.unflatten(0, (-1, heads)).flip(1).flatten(0, 1)


def _patched(
    reference: Subject, home: Any, name: str, change: Callable[[Tensor], Tensor]
) -> Callable[[Tensor], Tensor]:
    @contextlib.contextmanager
    def replaced() -> Iterator[None]:
        original = getattr(home, name)
        setattr(home, name, lambda *given, **named: change(original(*given, **named)))
        try:
            yield
        finally:
            setattr(home, name, original)

    def logits(ids: Tensor) -> Tensor:
        with replaced():
            return reference.logits(ids)

    return logits


def _open(model: Any, tiny: bool, dtype: str, device: str, trust_remote_code: bool) -> Subject:
    if not isinstance(model, (str, Path)):
        return subjects.from_model(model)[0]
    name = str(model)
    if not tiny:
        return subjects.from_model(open_model(name, dtype, device, trust_remote_code), name)[0]
    if Path(name).exists() or "/" in name:
        build, config = shrunk(name, trust_remote_code)
        found = subjects.from_build(build, config)[0]
    else:
        found = subjects.from_build(find(name)[0])[0]
    found.name = name
    return found


def _share_weights(ours: Subject, theirs: Subject) -> None:
    assert ours.module is not None and theirs.module is not None
    try:
        ours.module.load_state_dict(dict(theirs.module.named_parameters()), strict=False)
    except RuntimeError as fault:
        raise UsageError(
            f"{ours.name} and {theirs.name} differ in the shapes of their weights, so that --tiny cannot give them the "
            f"same ones: {str(fault).splitlines()[1].strip() if len(str(fault).splitlines()) > 1 else fault}"
        ) from fault
