"""Configurations, tokenizers and data sets of anybody: what is read without torch."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clockhands.errors import CheckpointError, DataError, show_value
from clockhands.pretrained.files import (
    CONFIG,
    FOREIGN,
    OWN,
    OWN_AUTO_MAP,
    TOKENIZER,
    describe_untrusted,
    explain_faults,
    first_line,
    forbid_questions,
)
from clockhands.progress import quiet
from clockhands.reading import read_json, refuse_strange_file

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


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def load_tokenizer(
    source: str | Path, *, trust_remote_code: bool = False, local_files_only: bool = False
) -> PreTrainedTokenizerBase:
    """Open the tokenizer of a folder or hub name. Raises CheckpointError."""
    from transformers import AutoTokenizer, PreTrainedTokenizerBase

    for path in _list_files(Path(source)):
        refuse_strange_file(path)
    where = "" if Path(source).is_dir() else " (no folder here, so taken for a name on the Hugging Face hub)"
    named = explain_faults(f"{str(source)!r}{where}", "the tokenizer")
    with named, quiet("huggingface_hub"), quiet("transformers"), forbid_questions():
        for settings in _read_settings(Path(source)):
            _refuse_strange_class(settings.get("tokenizer_class"), source)
            _refuse_strange_length(settings.get("model_max_length"), source)
        try:
            tokenizer = AutoTokenizer.from_pretrained(
                str(source), trust_remote_code=trust_remote_code, local_files_only=local_files_only
            )
        except Exception:
            # What the library says rarely names the file; the first that is not JSON is named instead.
            for path in _list_files(Path(source)):
                if path.suffix == ".json":
                    read_json(path)
            raise
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise CheckpointError(f"{source} names a {type(tokenizer).__name__} as its tokenizer, which is none")
    return tokenizer


def _list_files(folder: Path) -> list[Path]:
    """List the files of a folder that a tokenizer is read from, by the usual names."""
    names = ("tokenizer.json", TOKENIZER, "special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt",
             "merges.txt", "tokenizer.model", "chat_template.jinja")  # fmt: skip
    return [folder / name for name in names if (folder / name).exists() or (folder / name).is_symlink()]


def _read_settings(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield what the files of a folder say about its tokenizer."""
    for name in (TOKENIZER, CONFIG):
        if (folder / name).exists() or (folder / name).is_symlink():
            yield read_json(folder / name)


def _refuse_strange_class(name: Any, source: str | Path) -> None:
    """Raise CheckpointError if the class that is named is one of transformers and no tokenizer: any would be called."""
    import transformers

    named = getattr(transformers, name, None) if isinstance(name, str) else None
    if name is not None and not isinstance(name, str):
        raise CheckpointError(f"{source} sets tokenizer_class = {name!r}; it must be the name of a class")
    if named is not None and not (isinstance(named, type) and _is_tokenizer(named)):
        raise CheckpointError(f"{source} sets tokenizer_class = {name!r}, which is no tokenizer")


def _refuse_strange_length(length: Any, source: str | Path) -> None:
    """Raise CheckpointError unless the longest text of a tokenizer is a number, or is not told."""
    if length is not None and (isinstance(length, bool) or not isinstance(length, (int, float))):
        raise CheckpointError(f"{source} sets model_max_length = {show_value(length)} in {TOKENIZER}; it is a number")


def _is_tokenizer(kind: type) -> bool:
    """Return whether a class is a tokenizer, or stands for one whose package is not installed."""
    from transformers import PreTrainedTokenizerBase

    return issubclass(kind, PreTrainedTokenizerBase) or getattr(kind, "is_dummy", False)


def load_data_set(name: str, subset: str | None = None, revision: str | None = None) -> Any:
    """Open a Hugging Face data set: a folder written by ``save_to_disk``, one of data files, or a name on the hub.

    No code of a data set is run, whatever the settings of ``datasets`` say. Raises DataError, or ImportError where the
    package is not installed.
    """
    import datasets

    try:
        if any((Path(name) / file).is_file() for file in ("dataset_dict.json", "state.json")):
            return datasets.load_from_disk(name)
        return datasets.load_dataset(name, subset, revision=revision, trust_remote_code=False)
    except Exception as fault:
        # The library raises whatever its builders raise; all of it means that there is no such data here.
        raise DataError(f"cannot open the data set {name!r}: {str(fault) or type(fault).__name__}") from fault
