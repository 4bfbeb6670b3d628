"""Configurations that somebody else wrote: read as they are, and judged before anything is built from them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from clockhands.errors import CheckpointError
from clockhands.pretrained.file_names import CONFIG, FOREIGN, OWN, OWN_AUTO_MAP
from clockhands.pretrained.guards import describe_untrusted, explain_faults, first_line, forbid_questions
from clockhands.quiet import quiet
from clockhands.reading import read_json

__all__ = [
    "MOST",
    "is_known",
    "is_own",
    "load_configuration",
    "read_configuration",
    "refuse_code",
    "reload_configuration",
]

MOST = {
    re.compile(r"layers?(_per_\w+)?$|^n_layers?$|blocks?$|^depths?$"): 2_000,
    re.compile(r"heads?$|experts?$|labels?$|groups?$"): 2**17,
}
"""Counts that transformers turns into objects or lists, however small each is, and the largest that is taken."""


def read_configuration(source: str | Path) -> dict[str, Any]:
    """Read the ``config.json`` of a folder or of a name on the Hugging Face hub, as it is written.

    transformers would drop or repair what must be refused. Raises CheckpointError for a missing path, for what cannot
    be read, for counts that no model has, and for ``architectures`` that are no names.
    """
    path = Path(source)
    if path.is_file():
        raise CheckpointError(f"{source} is a file; give the folder that holds config.json and model.safetensors")
    if path.is_dir():
        if not (path / CONFIG).exists() and not (path / CONFIG).is_symlink():
            raise CheckpointError(f"{source} holds no config.json, so it is no saved model")
        raw = read_json(path / CONFIG)
    else:
        raw = _download_configuration(source)
    _refuse_numbers(raw, source)
    _refuse_architectures(raw.get("architectures"), source)
    return raw


def _download_configuration(source: str | Path) -> dict[str, Any]:
    path = Path(source)
    if path.is_absolute() or str(source).startswith((".", "~")) or str(source).count("/") != 1:
        raise CheckpointError(
            f"there is no folder {source}; give a saved model's folder, or a hub name such as org/name"
        )
    from transformers import PreTrainedConfig

    try:
        with quiet("huggingface_hub"), forbid_questions():
            return dict(PreTrainedConfig.get_config_dict(str(source))[0])
    except Exception as fault:  # whatever the network, the cache or the file gives
        raise CheckpointError(
            f"{source} is neither a folder here nor a model that the hub gives: {first_line(fault)}"
        ) from fault


def _refuse_numbers(raw: Mapping[str, Any], source: str | Path) -> None:
    """Raise CheckpointError for a NaN, and for a count of layers, heads or labels that would be built one by one."""
    for key, value in _list_settings(raw):
        if (isinstance(value, float) and math.isnan(value)) or (key.endswith("__float__") and value == "NaN"):
            raise CheckpointError(f"{source} sets {key.removesuffix('.__float__')} = NaN in config.json; put a number")
        for pattern, most in MOST.items():
            if isinstance(value, (int, float)) and pattern.search(key.rpartition(".")[2]) and not value <= most:
                raise CheckpointError(
                    f"{source} sets {key} = {value!r} in config.json; no model has more than {most:,}"
                )


def _refuse_architectures(names: Any, source: str | Path) -> None:
    """Raise CheckpointError unless the classes that a model was saved from are a list of names, or not told."""
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise CheckpointError(
            f"{source} sets architectures = {names!r} in config.json; it must be a list of names of classes"
        )


def _list_settings(raw: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every setting of a configuration with its dotted key, those of nested tables too."""
    for key, value in raw.items():
        if isinstance(value, dict):
            yield from _list_settings(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def is_own(raw: Mapping[str, Any]) -> bool:
    """Return whether a configuration is that of a model of this project."""
    return raw.get("model_type") == OWN


def is_known(raw: Mapping[str, Any]) -> bool:
    """Return whether transformers has the code for the model type of a configuration."""
    from transformers import CONFIG_MAPPING

    kind = raw.get("model_type")
    return isinstance(kind, str) and kind in CONFIG_MAPPING


def refuse_code(raw: Mapping[str, Any], source: str | Path, *, trust_remote_code: bool = False) -> None:
    """Raise CheckpointError if opening a model of this configuration would run code that is not of transformers.

    A model of this project never needs any, so there trust is not asked for.
    """
    if is_own(raw):
        foreign = next((key for key in FOREIGN if raw.get(key) is not None), None)
        if foreign == "auto_map" and _is_own_auto_map(raw["auto_map"]):
            foreign = next((key for key in FOREIGN if key != "auto_map" and raw.get(key) is not None), None)
        if foreign is not None:
            raise CheckpointError(
                f"{source} sets {foreign} in {CONFIG}, which no run of this project does; what it names is neither "
                f"loaded nor run: take {foreign} out where you trust the rest"
            )
        return
    kernels = [
        f"{key} = {value!r}"
        for key, value in _list_settings(raw)
        if "_implementation" in key and isinstance(value, str) and "/" in value
    ]
    if kernels and not trust_remote_code:
        raise CheckpointError(describe_untrusted(source, f"{kernels[0]}, a kernel of the hub"))
    if "auto_map" in raw and not is_known(raw) and not trust_remote_code:
        raise CheckpointError(describe_untrusted(source, f"model_type {raw.get('model_type')!r}"))


def _is_own_auto_map(auto_map: Any) -> bool:
    """Return whether an ``auto_map`` says nothing but what this project writes into a configuration."""
    return isinstance(auto_map, dict) and all(OWN_AUTO_MAP.get(name) == path for name, path in auto_map.items())


def load_configuration(source: str | Path, *, trust_remote_code: bool = False) -> Any:
    """Open the configuration of a folder or hub name as transformers has it. Raises CheckpointError."""
    from transformers import AutoConfig

    refuse_code(read_configuration(source), source, trust_remote_code=trust_remote_code)
    with explain_faults(source, "the configuration of"), quiet("huggingface_hub"), forbid_questions():
        return AutoConfig.from_pretrained(str(source), trust_remote_code=trust_remote_code)


def reload_configuration(config: Any, folder: str | Path) -> Any:
    """Read a configuration back from a folder that it was saved to, as the same class."""
    with forbid_questions():
        return type(config).from_pretrained(str(folder))
