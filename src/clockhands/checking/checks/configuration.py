"""What the configuration says must reach the logits, and survive a round trip."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import tempfile
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from clockhands.checking.checks.check import Inapplicable, Measurement, check, difference, largest
from clockhands.checking.checks.precision import angle_tables
from clockhands.checking.models.subject import Subject
from clockhands.checking.models.tiny import build_model
from clockhands.pretrained import reload_configuration


@check(
    "config.theta",
    "Every theta in the configuration has an effect.",
    "a base read from another key, or overwritten by a default",
    huggingface=True,
    uses=("a changed configuration",),
)
def theta(subject: Subject) -> Measurement:
    """Multiply each theta alone by fifty; the weights stay."""
    _rotates(subject)
    effects = []
    for path in _used(subject, "rope_theta"):
        size = _changed(subject, path, lambda value: (value or 10000.0) * 50)
        effects.append(Measurement(size, f"{_dotted(path)} times 50", wanted=True))
    if not effects:
        raise Inapplicable("no theta in the configuration")
    return largest(*effects)


@check(
    "config.partial",
    "The share of each head that is rotated has an effect.",
    "partial_rotary_factor dropped",
    huggingface=True,
    uses=("a changed configuration",),
)
def partial(subject: Subject) -> Measurement:
    """Halve the share; the weights stay."""
    paths = _used(subject, "partial_rotary_factor")
    if not paths:
        raise Inapplicable("no partial_rotary_factor in the configuration")
    if _used(subject, "mrope_section"):
        raise Inapplicable("how many pairs each axis has follows from the share")
    return largest(*(Measurement(_changed(subject, p, lambda v: (v or 1.0) / 2), _dotted(p), True) for p in paths))


@check(
    "config.scaling",
    "A scaling of the rotary frequencies has an effect.",
    "rope_parameters read too early, or not at all",
    huggingface=True,
    uses=("a changed configuration",),
)
def scaling(subject: Subject) -> Measurement:
    """Replace the default type by linear scaling with factor 8."""
    _rotates(subject)
    raw = _raw(subject)
    paths = [path for path in _used(subject, "rope_type") if _at(raw, path) == "default"]
    if not paths:
        raise Inapplicable("no unscaled rotary frequencies in the configuration")
    effects = []
    for path in paths:
        changed = copy.deepcopy(raw)
        _at(changed, path[:-1]).update(rope_type="linear", factor=8.0)
        effects.append(Measurement(_built(subject, _config(subject, changed)), _dotted(path[:-1]), True))
    return largest(*effects)


_KEYS = {
    "factor": 2.0,
    "attention_factor": 2.0,
    "relative_attention_num_buckets": 2,
    "relative_attention_max_distance": 2,
    "sliding_window": 0.5,
    "rotary_dim": 0.5,
    "rotary_pct": 0.5,
}
"""Keys of a configuration that are about position, besides those with checks of their own, and what each is times."""


@check(
    "config.keys",
    "Every other key of the configuration that is about position has an effect or is refused.",
    "a factor, a window or a number of buckets that is stored and not read",
    uses=("a changed configuration",),
    huggingface=True,
)
def keys(subject: Subject) -> Measurement:
    """Change each alone; the weights stay where their shapes do."""
    effects = []
    for key, times in _KEYS.items():
        for path in _used(subject, key):
            with contextlib.suppress(Inapplicable):  # refused: that is an answer too
                effects.append(
                    Measurement(_changed(subject, path, functools.partial(_times, times)), _dotted(path), True)
                )
    if not effects:
        raise Inapplicable("no such key in the configuration")
    return largest(*effects)


def _times(times: float, value: Any) -> Any:
    """A number, times a factor, of its own kind. Raises Inapplicable for what is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value:
        raise Inapplicable("no number")
    return type(value)(value * times)


@check(
    "config.round_trip",
    "A configuration written and read gives the same model.",
    "a setting lost on the way to the file",
    huggingface=True,
    uses=("a changed configuration", "saving and loading"),
)
def round_trip(subject: Subject) -> Measurement:
    """Write the configuration to a file and read it; the weights stay."""
    _raw(subject)
    config: Any = subject.module.config  # type: ignore[union-attr]
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        return Measurement(_built(subject, reload_configuration(config, folder)))


def _rotates(subject: Subject) -> None:
    if "RoPE" not in subject.facts.scheme:
        raise Inapplicable("nothing is rotated")


def _raw(subject: Subject) -> dict[str, Any]:
    if not getattr(subject.adapter, "shrunk", False):
        raise Inapplicable("rebuilds the model: only with --tiny")
    return subject.module.config.to_dict()  # type: ignore


def _used(subject: Subject, key: str) -> list[tuple[Any, ...]]:
    """Where the key stands, leaving out settings of layer types and parts that this model does not have."""
    raw = _raw(subject)
    kinds = set(raw.get("layer_types") or ())
    parameters = str(raw.get("rope_parameters"))
    paths = []
    for path in _paths(raw, key):
        words = [str(part) for part in path]
        named = [word for word in words if word.endswith(("_attention", "hybrid", "hybrid_sliding"))]
        foreign = any("vision" in word or "audio" in word or "patcher" in word for word in words)
        foreign = foreign or (isinstance(raw.get("text_config"), dict) and words[0] != "text_config")
        if path == (key,) and key in parameters:
            continue  # the old name beside the new one, which is the one that is read
        if (key == "sliding_window" and not _slides(raw, path)) or (path[0] == "decoder" and not subject.aligned):
            continue  # the source side is read with so few tokens to write that nothing of the decoder shows
        if not foreign and not (kinds and named and not kinds & set(named)):
            paths.append(path)
    return paths


def _slides(raw: dict[Any, Any], path: tuple[Any, ...]) -> bool:
    """Whether a layer uses the window that stands at ``path``; true where the layers have no kinds."""
    kinds = _at(raw, path[:-1]).get("layer_types")
    return not kinds or set(kinds) != {"full_attention"}


def _paths(raw: dict[Any, Any], key: str, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for name, value in raw.items():
        if name == key and value is not None:
            yield (*at, name)
        if isinstance(value, dict):
            yield from _paths(value, key, (*at, name))


def _at(raw: dict[Any, Any], path: tuple[Any, ...]) -> Any:
    for name in path:
        raw = raw[name]
    return raw


def _dotted(path: tuple[Any, ...]) -> str:
    return ".".join(map(str, path))


def _changed(subject: Subject, path: tuple[Any, ...], change: Any) -> float:
    raw = copy.deepcopy(_raw(subject))
    holder = _at(raw, path[:-1])
    holder[path[-1]] = change(holder[path[-1]])
    return _built(subject, _config(subject, raw))


def _config(subject: Subject, raw: dict[str, Any]) -> Any:
    for name in ("transformers_version", "dtype", "architectures"):
        raw.pop(name, None)
    try:
        return type(subject.module.config).from_dict(raw)  # type: ignore
    except Exception as fault:  # strict configurations raise their own kinds
        raise Inapplicable(f"the changed configuration is refused: {' '.join(str(fault).split())[:80]}") from fault


def _built(subject: Subject, config: Any) -> float:
    """How far the logits move when the same weights stand in a model of this configuration."""
    module: Any = subject.module
    adapter: Any = subject.adapter
    try:
        model = build_model(config, adapter.task, cls=type(module))
    except Exception as fault:  # as above
        raise Inapplicable(f"the changed configuration is refused: {' '.join(str(fault).split())[:80]}") from fault
    model.to(next(module.parameters()).dtype)
    # Tables are made from the configuration, also where a model saves them.
    tables = angle_tables(module)
    weights = {name: value for name, value in module.state_dict().items() if name not in tables}
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    if any(name in shapes and shapes[name] != tensor.shape for name, tensor in weights.items()):
        return float("inf")  # a table of another size: these weights do not fit into it any more
    model.load_state_dict(weights, strict=False)
    twin = dataclasses.replace(subject, adapter=type(adapter)(model, adapter.task))
    return difference(_read(twin), _read(subject))


def _read(subject: Subject) -> Tensor:
    length = 44 if subject.facts.stretches else min(36, (subject.facts.limit or 40) - 4)
    return subject.logits(subject.tokens(2, length))
