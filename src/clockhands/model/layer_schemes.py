"""Which schemes act in which layer of a side: the layer schedule of a ``PositionConfig``, read, checked and built."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clockhands.errors import ConfigError, describe_unknown, show_value
from clockhands.model.position_config import ELLIPSIS, LayerEntry, PositionConfig
from clockhands.schemes import CATALOGUE, Composition, Scheme, Sizes, build, find_option_faults, read_part

__all__ = [
    "BuiltSchemes",
    "SchemeSpec",
    "build_side",
    "find_layer_count_faults",
    "find_layer_faults",
    "list_layer_specs",
    "read_entry",
]


@dataclass(frozen=True)
class SchemeSpec:
    """One scheme of a layer as a configuration names it: its name and its options."""

    scheme: str
    options: Mapping[str, Any] = field(default_factory=dict)


def read_entry(entry: LayerEntry, kinds: Mapping[str, LayerEntry]) -> list[SchemeSpec]:
    """Return the schemes that an entry of ``layers`` names: a kind of layer, a scheme, or a table of one or several.

    Raises ConfigError for an entry of another form.
    """
    if isinstance(entry, str) and entry in kinds:
        return read_entry(kinds[entry], {})  # without kinds: a kind cannot name another
    if isinstance(entry, Mapping) and "schemes" in entry and "scheme" not in entry:
        other_keys = [key for key in entry if key != "schemes"]
        if other_keys or not isinstance(entry["schemes"], (list, tuple)):
            raise ConfigError(
                [f"{show_value(entry)} must be a table with a list of schemes and nothing else"], "layers"
            )
        return [SchemeSpec(*read_part(part)) for part in entry["schemes"]]
    return [SchemeSpec(*read_part(entry))]


def list_layer_specs(position: PositionConfig, num_layers: int) -> list[tuple[SchemeSpec, ...]]:
    """Return the schemes that each layer has besides the one that all layers have; a valid configuration is assumed."""
    if not position.layers:
        return [()] * num_layers
    pattern = position.pattern
    return [
        tuple(spec for spec in read_entry(pattern[layer % len(pattern)], position.kinds) if spec.scheme != "none")
        for layer in range(num_layers)
    ]


def find_layer_faults(position: PositionConfig, side: str) -> list[str]:
    """Return what is wrong with the names and options in a layer schedule, one sentence each.

    The number of layers is not needed.
    """
    faults = []
    if position.kinds and not position.layers:
        faults.append(
            f"{side}.kinds is given and {side}.layers is not; name in {side}.layers which layer is of which kind"
        )
    if position.layers and position.skip_every:
        faults.append(f"{side}.skip_every and {side}.layers both say which layers have a position; give one of them")
    used = {entry for entry in position.layers or () if isinstance(entry, str)}
    faults += [f"{side}.kinds.{name} is in no entry of {side}.layers" for name in position.kinds if name not in used]
    for name, entry in position.kinds.items():
        faults += [f"{side}.kinds.{name}: {fault}" for fault in _find_entry_faults(entry, {})]
    for index, entry in enumerate(position.layers or ()):
        is_kind = isinstance(entry, str) and entry in position.kinds
        if entry != ELLIPSIS and not is_kind:
            faults += [f"{side}.layers[{index}]: {fault}" for fault in _find_entry_faults(entry, position.kinds)]
        elif entry == ELLIPSIS and index != len(position.layers or ()) - 1:
            faults.append(f"{side}.layers[{index}] is '{ELLIPSIS}', which can only be the last entry")
    return faults


def _find_entry_faults(entry: LayerEntry, kinds: Mapping[str, LayerEntry]) -> list[str]:
    """Return what is wrong with one entry of ``layers`` or of ``kinds``."""
    try:
        specs = read_entry(entry, kinds)
    except ConfigError as fault:
        return list(fault.faults)
    faults = []
    for spec in specs:
        if spec.scheme not in CATALOGUE and isinstance(entry, str) and kinds:
            faults.append(describe_unknown("kind of layer or scheme", spec.scheme, [*kinds, *CATALOGUE]))
        elif spec.scheme == "composition":
            faults.append("name the parts of a composition as schemes = [...]")
        else:
            faults += find_option_faults(CATALOGUE, spec.scheme, spec.options)
    return faults


def find_layer_count_faults(position: PositionConfig, side: str, num_layers: int) -> list[str]:
    """Return why a layer schedule does not fit the number of layers, as a list of at most one sentence."""
    if position.layers is None:
        return []
    count = len(position.pattern)
    subject = f"{side}.layers has {count} {'entry' if count == 1 else 'entries'}"
    if not count:
        return [f"{side}.layers is empty; name a scheme for each layer, or leave it out"]
    if ELLIPSIS in position.layers:
        return []
    if count > num_layers:
        return [
            f"{subject} and there are {num_layers} layers; give one for each layer, a shorter pattern, or end it with "
            f"'{ELLIPSIS}', so that it is cut at the last layer"
        ]
    if num_layers % count:
        return [
            f"{subject}, a pattern whose length does not divide the {num_layers} layers; give one for each layer, or "
            f"end the pattern with '{ELLIPSIS}', so that its last repetition is cut at the last layer"
        ]
    return []


@dataclass(frozen=True)
class BuiltSchemes:
    """The schemes of a side.

    ``modules``: the distinct instances; compositions may share parts, whose parameters one of them owns
    (``Composition.borrow``). ``module_of_layer``: for each layer, the index of its scheme among them. ``at_input``: the
    scheme that acts at the token embedding.
    """

    modules: Sequence[Scheme]
    module_of_layer: Sequence[int]
    at_input: Scheme


def build_side(position: PositionConfig, num_layers: int, sizes: Sizes, first: Scheme | None = None) -> BuiltSchemes:
    """Build the schemes of a side: one for all layers with equal entries, or one for each if a part is ``per_layer``.

    A part that is ``per_layer`` (``Scheme``) has parameters of its own in every layer. Of any other part there is one
    instance: for all layers if ``scheme`` names it, and for all layers with the same entry if ``layers`` does.
    ``first``: an instance of the scheme that all layers have, built before; None: it is built here. A valid
    configuration is assumed; raises ConfigError where schemes refuse the sizes, or each other.
    """

    def build_common() -> Scheme:
        return build(CATALOGUE, position.scheme, sizes, position.options, validated=True)

    # The scheme that all layers have: one instance for all, or, with a part that is ``per_layer``, the first layer's.
    first = build_common() if first is None else first
    if position.layers is None:
        return _build_without_schedule(first, build_common, num_layers)
    modules: list[Scheme] = [] if first.per_layer else [first]
    module_of_layer, module_of_key = [], dict[str, int]()
    for layer, specs in enumerate(list_layer_specs(position, num_layers)):
        # Layers with equal entries share one scheme, unless a part of it is ``per_layer``.
        key = json.dumps([[spec.scheme, dict(spec.options)] for spec in specs], sort_keys=True)
        earlier = modules[module_of_key[key]] if key in module_of_key else None
        if earlier is None or earlier.per_layer:
            common = first if layer == 0 or not first.per_layer else build_common()
            own_parts = [build(CATALOGUE, spec.scheme, sizes, spec.options, validated=True) for spec in specs]
            scheme = _join_common_and_own(first, common, own_parts)
            if earlier is not None:
                _share_parts(earlier, scheme)
            if scheme not in modules:
                modules.append(scheme)
            module_of_key.setdefault(key, modules.index(scheme))
            module_of_layer.append(modules.index(scheme))
        else:
            module_of_layer.append(module_of_key[key])
    # With a part that is ``per_layer``, ``first`` is not among the modules; its parts are in the first layer's scheme.
    return BuiltSchemes(modules, module_of_layer, modules[module_of_layer[0]] if first.per_layer else first)


def _build_without_schedule(first: Scheme, build_common: Callable[[], Scheme], num_layers: int) -> BuiltSchemes:
    """Return ``first`` for all layers, or with a part that is ``per_layer`` a new instance for each later layer."""
    others = [build_common() for _ in range(num_layers - 1 if first.per_layer else 0)]
    for scheme in others:
        _share_parts(first, scheme)
    return BuiltSchemes([first, *others], [layer if others else 0 for layer in range(num_layers)], first)


def _join_common_and_own(first: Scheme, common: Scheme, own_parts: list[Scheme]) -> Scheme:
    """Return the scheme of one layer: ``common``, the scheme that all layers have, with the layer's own parts.

    ``first`` is the instance of that scheme in the first layer. ``common`` is the same instance, or with a part that is
    ``per_layer`` another one, which then uses the parts of ``first`` that are not ``per_layer``.
    """
    if not own_parts:
        _share_parts(first, common)
        return common
    if not common.active_hooks():
        return own_parts[0] if len(own_parts) == 1 else Composition(schemes=own_parts)
    first_parts = first.parts if isinstance(first, Composition) else (first,)
    common_parts = common.parts if isinstance(common, Composition) else (common,)
    scheme = Composition(schemes=[*common_parts, *own_parts])
    # Shared parts have one owner, from which all others borrow them. Without a part that is ``per_layer`` that is
    # ``first``, and every layer borrows. With one, it is the scheme of layer 0, where ``common`` is ``first``.
    if common is not first or not first.per_layer:
        scheme.borrow({index: part for index, part in enumerate(first_parts) if not part.per_layer})
    return scheme


def _share_parts(source: Scheme, target: Scheme) -> None:
    """Let ``target`` use the parts of ``source``, a composition of the same schemes, that are not ``per_layer``."""
    if target is not source and isinstance(source, Composition) and isinstance(target, Composition):
        target.borrow({index: part for index, part in enumerate(source.parts) if not part.per_layer})
