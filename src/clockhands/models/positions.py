"""Change the rotation in a configuration of transformers by options of our scheme *rope*."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from clockhands.errors import ConfigError, UsageError, describe_unknown
from clockhands.options import check_options, options_of
from clockhands.schemes import RoPE
from clockhands.schemes.rotary.spectra import SPECTRA, make_spectrum

FIXED = ("layout", "fraction", "learned", "values", "ramp", "unscaled_first")
"""Options of our RoPE that are fixed by the weights, or that no configuration of transformers can express."""


def _list_rope_tables(config: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each table of ``rope_parameters`` with the kind of layer that it is for, empty where it is for all."""
    tables = getattr(config.get_text_config(decoder=True), "rope_parameters", None) or {}
    if "rope_theta" in tables or "rope_type" in tables:
        yield "", tables
        return
    for kind, table in tables.items():
        if isinstance(table, Mapping) and table.get("rope_theta"):
            yield kind, dict(table)


def find_rope_table(config: Any) -> dict[str, Any] | None:
    """Return the table of ``rope_parameters`` of the layers that attend to the whole text; None if there is none."""
    tables = [table for kind, table in _list_rope_tables(config) if not _is_local(kind)]
    return tables[0] if tables else None


def count_rotated_channels(config: Any, table: Mapping[str, Any]) -> int:
    """Return how many channels of a head rotate under a table of ``rope_parameters``."""
    text = config.get_text_config(decoder=True)
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return int(width * table.get("partial_rotary_factor", 1.0))


def change_foreign_positions(config: Any, overrides: Mapping[str, Any], source: str, length: int | None) -> None:
    """Write other frequencies into a configuration of transformers.

    ``overrides``: options of our scheme *rope* that decide its frequencies, by name. ``length``: the trained length,
    for the spectra that need it. Where kinds of layers rotate differently, those that attend to a part of the text only
    stay as they are. Raises UsageError for a model without ``rope_parameters`` and for an option that has no meaning
    there, ConfigError for a value of a wrong type and for one that the spectrum refuses.
    """
    rotation = find_rope_table(config)
    if rotation is None:
        raise UsageError(
            f"{source} ({config.model_type}) has no rope_parameters in its configuration, so no option of position can "
            "be set; leave out --position.spectrum, --factor and --set"
        )
    known = {name: option for name, option in options_of(RoPE).items() if name not in FIXED}
    for name in overrides:
        if name not in known:
            raise UsageError(describe_unknown(f"position option of {source}", name, known))
    _, faults = check_options(overrides, known, "position")
    if faults:
        raise ConfigError(faults, "the position")
    text = config.get_text_config(decoder=True)
    if getattr(text, "head_dim", 0) is None:  # some rules of transformers compute with it, whatever it is
        text.head_dim = text.hidden_size // text.num_attention_heads
    changed = {
        kind: table if _is_local(kind) else _make_table(config, table, overrides, length)
        for kind, table in _list_rope_tables(config)
    }
    text.rope_parameters = changed.get("", {**text.rope_parameters, **changed})


def _is_local(kind: str) -> bool:
    """Return whether layers of this kind attend to a part of the text only."""
    return "sliding" in kind or "local" in kind or "chunked" in kind


def _make_table(
    config: Any, table: Mapping[str, Any], overrides: Mapping[str, Any], length: int | None
) -> dict[str, Any]:
    """Return ``rope_parameters`` with the spectrum of the overrides in place of the model's own."""
    options = dict(overrides)
    base = float(options.pop("base", None) or table["rope_theta"])
    name = options.pop("spectrum", None)
    if name is None and not options:
        return {**table, "rope_theta": base}
    name = name or "default"
    if "original_length" in SPECTRA[name].__dataclass_fields__ and length is not None:
        options.setdefault("original_length", length)
    channels, share = count_rotated_channels(config, table), table.get("partial_rotary_factor", 1.0)
    if name == "proportional" and share != 1.0 and table.get("rope_type") != name:
        raise UsageError(
            f"spectrum = 'proportional' is for models that rotate all channels of a head, and this one rotates "
            f"{share:g} of them: transformers would rotate others; give another spectrum"
        )
    made = make_spectrum(name, channels, options).to_hf_config(base, channels)
    # transformers writes this key into the table of a model that rotates a part of its channels.
    if "partial_rotary_factor" in table:
        made.setdefault("partial_rotary_factor", table["partial_rotary_factor"])
    return made
