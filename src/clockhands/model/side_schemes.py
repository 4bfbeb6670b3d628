"""Which schemes act in which layer of a side: read from its ``PositionConfig``, checked, built and summarised."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from clockhands.errors import ConfigError, describe_unknown, show_value
from clockhands.model.position_config import ELLIPSIS, LayerEntry, PositionConfig
from clockhands.schemes import CATALOGUE, Composition, Scheme, Sizes, build, find_option_faults, read_part
from clockhands.schemes.composition_rules import combine_declarations, list_schemes_of_fewer_axes
from clockhands.schemes.scheme import Declares

SMALL_TABLE_BYTES = 2**26
"""To be summarised, a scheme is built with all its values if none of its tables can have more bytes than this. Else it
is built on the meta device, where tensors have no values; PyTorch takes a second to use that device the first time."""
BYTES_OF_FLOAT32 = 4


def _read_entry(entry: LayerEntry, kinds: Mapping[str, LayerEntry]) -> list[tuple[str, dict[str, Any]]]:
    """Return names and options of the schemes that an entry of ``layers`` names: a kind, or one or several schemes.

    Raises ConfigError for an entry of another form.
    """
    if isinstance(entry, str) and entry in kinds:
        return _read_entry(kinds[entry], {})  # without kinds: a kind cannot name another
    if isinstance(entry, Mapping) and "schemes" in entry and "scheme" not in entry:
        if len(entry) > 1 or not isinstance(entry["schemes"], (list, tuple)):
            wrong = f"{show_value(entry)} must be a table with a list of schemes and nothing else"
            raise ConfigError([wrong], "layers")
        return [read_part(part) for part in entry["schemes"]]
    return [read_part(entry)]


def list_layer_specs(position: PositionConfig, num_layers: int) -> list[list[tuple[str, dict[str, Any]]]]:
    """Return names and options of the schemes that each layer has besides the one that all layers have.

    A valid configuration is assumed.
    """
    if not position.layers:
        return [[]] * num_layers
    pattern = [
        [(name, options) for name, options in _read_entry(entry, position.kinds) if name != "none"]
        for entry in position.pattern
    ]
    return [pattern[layer % len(pattern)] for layer in range(num_layers)]


def find_layer_faults(position: PositionConfig, side: str) -> list[str]:
    """Return what is wrong with the names and options in a layer schedule, one sentence each.

    The number of layers is not needed.
    """
    faults, layers, kinds = [], position.layers or (), position.kinds
    if kinds and not layers:
        faults.append(f"{side}.kinds is given and {side}.layers is not; say in {side}.layers of which kind each is")
    if layers and position.skip_every:
        faults.append(f"{side}.skip_every and {side}.layers both say which layers have a position; give one of them")
    used = {entry for entry in layers if isinstance(entry, str)}
    faults += [f"{side}.kinds.{name} is in no entry of {side}.layers" for name in kinds if name not in used]
    for name, entry in kinds.items():
        faults += [f"{side}.kinds.{name}: {fault}" for fault in _find_entry_faults(entry, {})]
    for index, entry in enumerate(layers):
        if entry == ELLIPSIS and index != len(layers) - 1:
            faults.append(f"{side}.layers[{index}] is '{ELLIPSIS}', which can only be the last entry")
        elif entry != ELLIPSIS and not (isinstance(entry, str) and entry in kinds):
            faults += [f"{side}.layers[{index}]: {fault}" for fault in _find_entry_faults(entry, kinds)]
    return faults


def _find_entry_faults(entry: LayerEntry, kinds: Mapping[str, LayerEntry]) -> list[str]:
    faults: list[str] = []
    try:
        for name, options in _read_entry(entry, kinds):
            if name not in CATALOGUE and isinstance(entry, str) and kinds:
                faults.append(describe_unknown("kind of layer or scheme", name, [*kinds, *CATALOGUE]))
            elif name == "composition":
                faults.append("name the parts of a composition as schemes = [...]")
            else:
                faults += find_option_faults(CATALOGUE, name, options)
    except ConfigError as fault:
        return list(fault.faults)
    return faults


def find_layer_count_faults(position: PositionConfig, side: str, num_layers: int) -> list[str]:
    """Return why a layer schedule does not fit the number of layers, as a list of at most one sentence."""
    count = len(position.pattern)
    subject = f"{side}.layers has {count} {'entry' if count == 1 else 'entries'}"
    if position.layers is not None and not count:
        return [f"{side}.layers is empty; name a scheme for each layer, or leave it out"]
    if not count or ELLIPSIS in (position.layers or ()):
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


def build_side(position: PositionConfig, num_layers: int, sizes: Sizes) -> BuiltSchemes:
    """Build the schemes of a side: one for all layers with equal entries, or one for each if a part is ``per_layer``.

    A part that is ``per_layer`` (``Scheme``) has parameters of its own in every layer. Of any other part there is one
    instance: for all layers if ``scheme`` names it, and for all layers with the same entry if ``layers`` does.
    A valid configuration is assumed; raises ConfigError where schemes refuse the sizes, or each other.
    """

    def build_common() -> Scheme:
        return build(CATALOGUE, position.scheme, sizes, position.options, validated=True)

    # The scheme that all layers have: one instance for all, or, with a part that is ``per_layer``, the first layer's.
    first = build_common()
    if position.layers is None:
        others = [build_common() for _ in range(num_layers - 1 if first.per_layer else 0)]
        for scheme in others:
            _share_parts(first, scheme)
        return BuiltSchemes([first, *others], [layer if others else 0 for layer in range(num_layers)], first)
    modules: list[Scheme] = [] if first.per_layer else [first]
    module_of_layer, module_of_key = [], dict[str, int]()
    for layer, specs in enumerate(list_layer_specs(position, num_layers)):
        # Layers with equal entries share one scheme, unless a part of it is ``per_layer``.
        key = json.dumps([[name, dict(options)] for name, options in specs], sort_keys=True)
        earlier = modules[module_of_key[key]] if key in module_of_key else None
        if earlier is None or earlier.per_layer:
            common = first if layer == 0 or not first.per_layer else build_common()
            own_parts = [build(CATALOGUE, name, sizes, options, validated=True) for name, options in specs]
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


@dataclass(frozen=True)
class SchemeSummary:
    """What validation and parameter counts need to know about one side's schemes.

    ``num_parameters``: of all layers. ``hooks``: the names of the hooks that are active in any of the schemes.
    ``declares``: what the schemes promise together.
    """

    num_parameters: int
    hooks: frozenset[str]
    declares: Declares


def summarise_side(position: PositionConfig, num_layers: int, sizes: Sizes) -> SchemeSummary:
    """Build the schemes of a side to look at them: what a scheme declares is known only of an instance.

    Raises ConfigError where they refuse the sizes or each other, or read different numbers of coordinates, and what
    PyTorch, or a scheme of another package, raises for sizes that it cannot build.
    """
    # With a single scheme, all layers that do not skip it have equal instances, and one of them is enough.
    with avoid_large_tables(position, sizes):
        built = build_side(position, 1 if position.has_single_scheme else num_layers, sizes)
    used = [built.at_input, *(built.modules[index] for index in dict.fromkeys(built.module_of_layer))]
    owned = {id(parameter): parameter.numel() for scheme in built.modules for parameter in scheme.parameters()}
    if position.has_single_scheme:
        layers = max(num_layers, 1) if built.at_input.per_layer else 1
        return SchemeSummary(layers * sum(owned.values()), built.at_input.active_hooks(), built.at_input.declares)
    refusing = list_schemes_of_fewer_axes(used)
    if refusing:
        # A window takes positions of more coordinates than it reads; most schemes do not, whatever other layers read.
        axes = sorted({scheme.declares.axes for scheme in used if scheme.declares.axes is not None})
        advice = "".join(f", or {text}" for text in sorted({scheme.axes_advice for scheme in refusing} - {""}))
        sentence = (
            f"the layers read positions of {' and '.join(map(str, axes))} coordinates, and all layers of a side share "
            f"the positions; choose schemes with equally many{advice}"
        )
        raise ConfigError([sentence], "the layer schedule")
    hooks = frozenset[str]().union(*(scheme.active_hooks() for scheme in used))
    return SchemeSummary(sum(owned.values()), hooks, combine_declarations(used))


@contextmanager
def avoid_large_tables(position: PositionConfig, sizes: Sizes) -> Iterator[None]:
    """Build schemes inside the block on the meta device if their tables could be large; keep the random state.

    A table is taken to have at most the product of the two largest integers among sizes and options as entries. Options
    that keep their defaults are not among them: with those, a table is small unless the sizes alone are large. A scheme
    of another package may have a larger table, and is then not built on the meta device.
    """
    dimensions = [sizes.width, sizes.d_model, sizes.num_heads * sizes.head_dim, 1]
    dimensions += [abs(int(value)) for value in _find_integers([position.options, position.layers, position.kinds])]
    first, second = sorted(dimensions, reverse=True)[:2]
    could_be_large = BYTES_OF_FLOAT32 * first * second > SMALL_TABLE_BYTES
    with torch.random.fork_rng(devices=[]), torch.device("meta") if could_be_large else nullcontext():
        yield


def _find_integers(value: Any) -> Iterator[int]:
    if isinstance(value, int):
        yield value
    elif isinstance(value, (Mapping, list, tuple)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _find_integers(item)
