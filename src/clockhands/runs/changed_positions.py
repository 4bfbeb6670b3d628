"""Give a model of this project other options of its schemes, or another scheme, after it was trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from clockhands.errors import CheckpointError, UsageError, describe_unknown
from clockhands.model.position_config import ELLIPSIS, PositionConfig
from clockhands.options import options_of
from clockhands.schemes import CATALOGUE, Learned

if TYPE_CHECKING:
    from clockhands.model.huggingface_config import ClockhandsConfig

__all__ = ["change_options", "change_positions", "change_scheme", "change_table", "find_table_length"]


def change_positions(config: ClockhandsConfig, overrides: Mapping[str, Any]) -> ClockhandsConfig:
    """Return a copy of a configuration with other options of its schemes, on every side whose scheme has them.

    ``overrides`` are options by name. Raises UsageError for an option that no scheme of the model has, ConfigError for
    a value that the scheme refuses.
    """
    transformer_config = config.transformer_config
    table = transformer_config.to_dict()
    known: set[str] = set()
    for side in transformer_config.sides:
        table[side] = _change_options(table[side], overrides, known)
    unknown = [key for key in overrides if key not in known]
    if unknown:
        schemes = {transformer_config.get_position_config(side).name for side in transformer_config.sides}
        names = ", ".join(sorted(schemes))
        if len(unknown) == 1:
            raise UsageError(describe_unknown(f"position option of this model ({names})", unknown[0], known))
        raise UsageError(
            f"the positions of this model ({names}) have no options {', '.join(unknown)}; "
            f"they have {', '.join(sorted(known)) or 'none'}"
        )
    return type(config)(**{**_other_fields(config), "transformer": table})


def change_scheme(model: Any, table: Mapping[str, Any]) -> Any:
    """Return a copy of a decoder with another scheme and the same weights, in evaluation mode.

    ``table``: the table ``[position]`` of a recipe. Raises ConfigError for a table with faults, CheckpointError where
    the weights of the two differ.
    """
    config = model.config
    position = PositionConfig.from_dict(dict(table)).to_dict()
    changed = type(config)(
        **{**_other_fields(config), "transformer": {**config.transformer_config.to_dict(), "decoder": position}}
    )
    made = type(model)(changed)
    report = made.load_state_dict(model.state_dict(), strict=False)
    faults = sorted([*report.missing_keys, *report.unexpected_keys])
    if faults:
        raise CheckpointError(f"with the scheme {position['scheme']} the model has other weights: {', '.join(faults)}")
    return made.to(model.device, model.dtype).eval()


def change_options(model: Any, overrides: Mapping[str, Any]) -> Any:
    """Return a copy of a model with other options of its schemes and the same weights.

    Raises what ``change_positions`` raises.
    """
    made = type(model)(change_positions(model.config, overrides))
    made.load_state_dict(model.state_dict())
    return made.to(model.device, model.dtype).eval()


def find_table_length(model: Any) -> int | None:
    """Return the positions of a model's learned table; None where it has none, or reads on with the last row."""
    lengths = [part.max_length for part in model.modules() if isinstance(part, Learned) and part.beyond == "raise"]
    return min(lengths, default=None)


def change_table(model: Any, rows: int, stretch: Callable[[torch.Tensor, int], torch.Tensor]) -> Any:
    """Return a copy of a model whose learned tables of positions have ``rows`` rows, made by ``stretch`` from its own.

    Raises UsageError for a model without one.
    """
    made = type(model)(change_positions(model.config, {"max_length": rows}))
    state = model.state_dict()
    for name, part in model.named_modules():
        if isinstance(part, Learned):
            table_LP = part.table_LP.detach()
            longer_RP = stretch(table_LP[part.offset :], rows).to(table_LP.dtype)
            state[f"{name}.table_LP"] = torch.cat([table_LP[: part.offset], longer_RP])
    made.load_state_dict(state)
    return made.to(model.device, model.dtype).eval()


def _change_options(position: Mapping[str, Any], overrides: Mapping[str, Any], known: set[str]) -> dict[str, Any]:
    """Return a side's table with the options of all its schemes changed; the options that they have join ``known``."""
    common: dict[str, Any] = _change_entry({"scheme": position["scheme"], **position["options"]}, overrides, known)
    table = {**position, "options": {key: value for key, value in common.items() if key != "scheme"}}
    if "layers" not in position:
        return table
    kinds = {name: _change_entry(entry, overrides, known) for name, entry in position["kinds"].items()}
    layers = [
        entry if entry in (*kinds, ELLIPSIS) else _change_entry(entry, overrides, known) for entry in position["layers"]
    ]
    return {**table, "layers": layers, "kinds": kinds}


def _change_entry(entry: Any, overrides: Mapping[str, Any], known: set[str]) -> Any:
    """Return a scheme's name or table, or a table of several, with the options that it has changed."""
    if not isinstance(entry, str) and "schemes" in entry:
        return {**entry, "schemes": [_change_entry(part, overrides, known) for part in entry["schemes"]]}
    table = {"scheme": entry} if isinstance(entry, str) else entry
    names = options_of(CATALOGUE[table["scheme"]]).keys()
    known.update(names)  # not ``|=``: with a view of keys that makes a new set, and the caller's stays as it is
    changed = {key: value for key, value in overrides.items() if key in names}
    return {**table, **changed} if changed else entry


def _other_fields(config: ClockhandsConfig) -> dict[str, Any]:
    """Return the fields of a ``ClockhandsConfig`` that do not describe the Transformer."""
    names = (
        "label_smoothing", "smoothing", "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id",
        "tokenizer_fingerprint", "use_cache",
    )  # fmt: skip
    return {name: getattr(config, name) for name in names}
