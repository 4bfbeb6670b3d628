"""The schemes of each layer spelt out, so that two ways to write positions can be compared layer by layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import torch

from clockhands.errors import ConfigError
from clockhands.model.position_config import PositionConfig
from clockhands.model.side_schemes import list_layer_specs
from clockhands.options import defaults_of, options_of
from clockhands.schemes import CATALOGUE, RoPE, read_part

Parts: TypeAlias = dict[str, dict[str, Any]]
"""The schemes of one layer: the name of each, and all of its options."""
FAULT_SOURCE = "the position configuration"
"""What every ConfigError of this module and of ``position_keys`` names as its source."""


def list_parts(position: PositionConfig, num_layers: int) -> list[Parts]:
    """Return the schemes of every layer with all their options.

    Raises ConfigError for what no configuration of transformers says.
    """
    for name, default in (("transform", None), ("combine", "add"), ("every_layer", False)):
        if getattr(position, name) != default:
            sentence = f"position.{name} is {getattr(position, name)!r}, and no configuration of transformers says so"
            raise ConfigError([sentence], FAULT_SOURCE)
    common = list(_spell_out({"scheme": position.scheme, **position.options}))
    layers = []
    for index, specs in enumerate(list_layer_specs(position, num_layers)):
        parts = [*common, *((spec.scheme, _fill_in(spec.scheme, spec.options)) for spec in specs)]
        repeated = [name for name, count in Counter(name for name, _ in parts).items() if count > 1]
        if repeated:
            sentence = f"layer {index} has two schemes {repeated[0]}, and no configuration of transformers says so"
            raise ConfigError([sentence], FAULT_SOURCE)
        skipped = position.skip_every and (index + 1) % position.skip_every == 0
        layers.append({} if skipped else dict(parts))
    return layers


def _spell_out(entry: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the parts of a composition, or the one scheme itself; nothing for the scheme ``none``."""
    for part in entry.get("schemes", [entry]):
        name, options = read_part(part)
        if name != "none":
            yield name, _fill_in(name, options)


def _fill_in(scheme: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options of a scheme: those given, and the defaults of the others."""
    return {**defaults_of(options_of(CATALOGUE[scheme])), **options}


def have_equal_effect(ours: Parts, theirs: Parts, head_dim: int, causal: bool, any_pairing: bool) -> bool:
    """Return whether a layer computes the same with both: the same schemes, with options that have the same effect.

    ``causal``: whether the layer has a causal mask, behind which a window to the right changes nothing.
    ``any_pairing``: whether rotations of other pairs of channels count as equal.
    """
    if set(ours) != set(theirs):
        return False
    for scheme, options in ours.items():
        first, second = (_simplify(scheme, table, causal) for table in (options, theirs[scheme]))
        if scheme == "rope":
            if not _rotate_equally(
                RoPE.from_options(head_dim, **first), RoPE.from_options(head_dim, **second), any_pairing
            ):
                return False
        elif first != second:
            return False
    return True


def _simplify(scheme: str, options: dict[str, Any], causal: bool) -> dict[str, Any]:
    """Return options with two simplifications, by which values of equal effect become equal.

    The start of SSMax's parameter is left out. A window reaches 0 tokens to the right behind a causal mask; without
    one, a window that does not say how far it reaches to the right reaches as far as to the left.
    """
    options = {key: value for key, value in options.items() if (scheme, key) != ("ssmax", "start")}
    if scheme == "window":
        options["right"] = 0 if causal else options["left"] if options["right"] is None else options["right"]
    return options


def _rotate_equally(first: RoPE, second: RoPE, any_pairing: bool) -> bool:
    """Return whether two rotations have equal effect in texts of 1, 1,000 and 10⁶ tokens.

    They then have the same frequencies there, the same factors of cosines and of logits, the same number of channels
    that rotate, the same number of first positions that LongRoPE does not scale (``unscaled_first``), and both or
    neither have learned factors of their frequencies, or rotate values.
    """
    numbers = []
    for scheme in (first, second):
        lengths_B = torch.tensor([1, 1000, 10**6])
        omega = scheme.frequencies(lengths_B).expand(3, 1, -1).flatten().tolist()
        spectrum = scheme.spectrum
        numbers.append(
            [*omega, spectrum.amplitude(), spectrum.logit_factor(), scheme.channels, spectrum.unscaled_first]
        )
    alike = (first.alpha_F is None) == (second.alpha_F is None) and (any_pairing or first.layout == second.layout)
    alike = alike and first.rotates_values == second.rotates_values
    ours, theirs = (torch.tensor(listed, dtype=torch.float64) for listed in numbers)
    return alike and ours.shape == theirs.shape and torch.allclose(ours, theirs, rtol=1e-9, atol=0.0)


def describe_parts(layer: Parts) -> str:
    """Return the schemes of a layer with the options that differ from their defaults."""
    schemes = []
    for scheme, options in layer.items():
        defaults = defaults_of(options_of(CATALOGUE[scheme]))
        changed = ", ".join(f"{key} {value}" for key, value in options.items() if value != defaults[key])
        schemes.append(f"{scheme} ({changed})" if changed else scheme)
    return " + ".join(schemes) or "no position"
