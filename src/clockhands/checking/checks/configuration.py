"""What the configuration says must reach the logits, and survive a round trip."""

from __future__ import annotations

import contextlib
import copy
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from torch import Tensor

from clockhands.checking.checks.check import Inapplicable, Measurement, check, difference, put_in, refusals
from clockhands.checking.checks.precision import angle_tables
from clockhands.checking.models.subject import Subject
from clockhands.checking.models.tiny import build_model
from clockhands.pretrained import reload_configuration

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
_config_check = partial(check, huggingface=True, uses=("a changed configuration",))


@_config_check("config.theta", "a base read from another key, or overwritten by a default")
def _theta(subject: Subject) -> Iterator[Measurement]:
    """Every theta in the configuration has an effect."""
    _require_rotation(subject)
    paths = _find_used(subject, "rope_theta", "no theta in the configuration")
    for path in paths:
        size = _change(subject, path, lambda value: (value or 10000.0) * 50)
        yield Measurement(size, f"{_dotted(path)} times 50", wanted=True)


@_config_check("config.partial", "partial_rotary_factor dropped")
def _partial_rotation(subject: Subject) -> Iterator[Measurement]:
    """The share of each head that is rotated has an effect."""
    paths = _find_used(subject, "partial_rotary_factor", "no partial_rotary_factor in the configuration")
    if _find_used(subject, "mrope_section"):
        raise Inapplicable("how many pairs each axis has follows from the share")
    for path in paths:
        yield Measurement(_change(subject, path, lambda share: (share or 1.0) / 2), _dotted(path), wanted=True)


@_config_check("config.scaling", "rope_parameters read too early, or not at all")
def _scaling(subject: Subject) -> Iterator[Measurement]:
    """A scaling of the rotary frequencies has an effect.

    Linear scaling with factor 8 replaces the default type.
    """
    _require_rotation(subject)
    raw = _read_raw(subject)
    paths = [path[:-1] for path in _find_used(subject, "rope_type") if _at(raw, path) == "default"]
    if not paths:
        raise Inapplicable("no unscaled rotary frequencies in the configuration")
    for path in paths:
        size = _change(subject, path, lambda rope: {**rope, "rope_type": "linear", "factor": 8.0})
        yield Measurement(size, _dotted(path), wanted=True)


@_config_check("config.keys", "a factor, a window or a number of buckets that is stored and not read")
def _keys(subject: Subject) -> list[Measurement]:
    """Every other key of the configuration that is about position has an effect or is refused."""
    effects = []
    for key, times in _KEYS.items():
        for path in _find_used(subject, key):
            with contextlib.suppress(Inapplicable):  # refused: that is an answer too
                effects.append(Measurement(_change(subject, path, partial(_multiply, times)), _dotted(path), True))
    if not effects:
        raise Inapplicable("no such key in the configuration")
    return effects


def _multiply(times: float, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value:
        raise Inapplicable("no number")
    return type(value)(value * times)


@check(
    "config.round_trip",
    "a setting lost on the way to the file",
    huggingface=True,
    uses=("a changed configuration", "saving and loading"),
)
def _round_trip(subject: Subject) -> Measurement:
    """A configuration written and read gives the same model."""
    _read_raw(subject)
    config: Any = subject.module.config  # type: ignore[union-attr]
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        return Measurement(_rebuild(subject, reload_configuration(config, folder)))


def _require_rotation(subject: Subject) -> None:
    if "RoPE" not in subject.facts.scheme:
        raise Inapplicable("nothing is rotated")


def _read_raw(subject: Subject) -> dict[str, Any]:
    if not getattr(subject.adapter, "shrunk", False):
        raise Inapplicable("rebuilds the model: only with --tiny")
    return subject.module.config.to_dict()  # type: ignore


def _find_used(subject: Subject, key: str, missing: str = "") -> list[tuple[Any, ...]]:
    """Return where the key stands, leaving out settings of layer types and parts that this model does not have.

    Raises Inapplicable with what is ``missing`` if it stands nowhere.
    """
    raw = _read_raw(subject)
    kinds = set(raw.get("layer_types") or ())
    paths = []
    for path in _find_paths(raw, key):
        words = [str(part) for part in path]
        named = [word for word in words if word.endswith(("_attention", "hybrid", "hybrid_sliding"))]
        foreign = any("vision" in word or "audio" in word or "patcher" in word for word in words)
        foreign = foreign or (isinstance(raw.get("text_config"), dict) and words[0] != "text_config")
        if path == (key,) and key in str(raw.get("rope_parameters")):
            continue  # the old name beside the new one, which is the one that is read
        layers = set(_at(raw, path[:-1]).get("layer_types") or ())
        if key == "sliding_window" and layers == {"full_attention"}:
            continue  # no layer uses the window
        if path[0] == "decoder" and not subject.aligned:
            continue  # the source side is read with so few tokens to write that nothing of the decoder shows
        if not foreign and not (kinds and named and not kinds & set(named)):
            paths.append(path)
    if missing and not paths:
        raise Inapplicable(missing)
    return paths


def _find_paths(raw: dict[Any, Any], key: str, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for name, value in raw.items():
        if name == key and value is not None:
            yield (*at, name)
        if isinstance(value, dict):
            yield from _find_paths(value, key, (*at, name))


def _at(raw: dict[Any, Any], path: tuple[Any, ...]) -> Any:
    for name in path:
        raw = raw[name]
    return raw


def _dotted(path: tuple[Any, ...]) -> str:
    return ".".join(map(str, path))


def _change(subject: Subject, path: tuple[Any, ...], change: Callable[[Any], Any]) -> float:
    """Return how far the logits move when one value of the configuration changes; the weights stay."""
    raw = copy.deepcopy(_read_raw(subject))
    holder = _at(raw, path[:-1])
    holder[path[-1]] = change(holder[path[-1]])
    for name in ("transformers_version", "dtype", "architectures"):
        raw.pop(name, None)
    with refusals("the changed configuration is refused", Exception):  # strict ones raise their own kinds
        config = type(subject.module.config).from_dict(raw)  # type: ignore
    return _rebuild(subject, config)


def _rebuild(subject: Subject, config: Any) -> float:
    """Return how far the logits move when the same weights stand in a model of this configuration."""
    module: Any = subject.module
    adapter: Any = subject.adapter
    with refusals("the changed configuration is refused", Exception):
        model = build_model(config, adapter.task, cls=type(module))
    model.to(next(module.parameters()).dtype)
    # Tables are made from the configuration, also where a model saves them.
    tables = angle_tables(module)
    weights = {name: value for name, value in module.state_dict().items() if name not in tables}
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    if any(name in shapes and shapes[name] != tensor.shape for name, tensor in weights.items()):
        return float("inf")  # a table of another size: these weights do not fit into it any more
    model.load_state_dict(weights, strict=False)
    return difference(_read(put_in(subject, model)), _read(subject))


def _read(subject: Subject) -> Tensor:
    length = 44 if subject.facts.stretches else min(36, (subject.facts.limit or 40) - 4)
    return subject.logits(subject.tokens(2, length))
