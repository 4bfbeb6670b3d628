"""Configurations, tokenizers and data sets of anybody: what is read without torch."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from os.path import lexists
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
    print_to_errors,
)
from clockhands.progress import quiet
from clockhands.reading import read_json, refuse_strange_file

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MOST = {
    re.compile(r"layers?(_per_\w+)?$|^n_layers?$|blocks?$|^depths?$"): 2_000,
    re.compile(r"heads?$|experts?$|labels?$|groups?$"): 2**17,
}
"""Counts that transformers turns into objects or lists, however small each is, and the largest that is taken."""
_TOKENIZER_FILES = (
    "tokenizer.json", TOKENIZER, "special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt",
    "merges.txt", "tokenizer.model", "chat_template.jinja",
)  # fmt: skip
"""The files that a tokenizer is read from, by the usual names."""


def read_configuration(source: str | Path) -> dict[str, Any]:
    """Read the ``config.json`` of a folder or of a name on the Hugging Face hub, as it is written.

    transformers would drop or repair what must be refused. Raises CheckpointError for a missing path, for what cannot
    be read, for counts that no model has, and for ``architectures`` that are no names.
    """
    path = Path(source)
    if path.is_file():
        raise CheckpointError(f"{source} is a file; give the folder that holds config.json and model.safetensors")
    if path.is_dir():
        if not lexists(path / CONFIG):
            raise CheckpointError(f"{source} holds no config.json, so it is no saved model")
        raw = read_json(path / CONFIG)
    elif path.is_absolute() or str(source).startswith((".", "~")) or str(source).count("/") != 1:
        raise CheckpointError(
            f"there is no folder {source}; give a saved model's folder, or a hub name such as org/name"
        )
    else:
        from transformers import PreTrainedConfig

        try:
            with quiet("huggingface_hub"), forbid_questions():
                raw = dict(PreTrainedConfig.get_config_dict(str(source))[0])
        except Exception as fault:  # whatever the network, the cache or the file gives
            raise CheckpointError(
                f"{source} is neither a folder here nor a model that the hub gives: {first_line(fault)}"
            ) from fault
    _refuse_settings(raw, source)
    return raw


def _refuse_settings(raw: Mapping[str, Any], source: str | Path) -> None:
    """Raise CheckpointError for a NaN, a count of objects to build that no model has, and classes that are no names."""
    for key, value in walk_settings(raw):
        if (isinstance(value, float) and math.isnan(value)) or (key.endswith("__float__") and value == "NaN"):
            raise CheckpointError(f"{source} sets {key.removesuffix('.__float__')} = NaN in config.json; put a number")
        for pattern, most in MOST.items():
            if isinstance(value, (int, float)) and pattern.search(key.rpartition(".")[2]) and not value <= most:
                raise CheckpointError(
                    f"{source} sets {key} = {value!r} in config.json; no model has more than {most:,}"
                )
    names = raw.get("architectures")
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise CheckpointError(
            f"{source} sets architectures = {names!r} in config.json; it must be a list of names of classes"
        )


def walk_settings(raw: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every setting of a configuration with its dotted key, those of nested tables too."""
    for key, value in raw.items():
        if isinstance(value, dict):
            yield from walk_settings(value, f"{prefix}{key}.")
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
        auto_map = raw.get("auto_map")
        for key in FOREIGN:
            is_ours = key == "auto_map" and isinstance(auto_map, dict) and auto_map.items() <= OWN_AUTO_MAP.items()
            if raw.get(key) is not None and not is_ours:
                raise CheckpointError(
                    f"{source} sets {key} in {CONFIG}, which no run of this project does; what it names is neither "
                    f"loaded nor run: take {key} out where you trust the rest"
                )
        return
    kernels = [
        f"{key} = {value!r}"
        for key, value in walk_settings(raw)
        if "_implementation" in key and isinstance(value, str) and "/" in value
    ]
    if kernels and not trust_remote_code:
        raise CheckpointError(describe_untrusted(source, f"{kernels[0]}, a kernel of the hub"))
    if "auto_map" in raw and not is_known(raw) and not trust_remote_code:
        raise CheckpointError(describe_untrusted(source, f"model_type {raw.get('model_type')!r}"))


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


def load_tokenizer(
    source: str | Path, *, trust_remote_code: bool = False, local_files_only: bool = False
) -> PreTrainedTokenizerBase:
    """Open the tokenizer of a folder or hub name. Raises CheckpointError."""
    from transformers import AutoTokenizer, PreTrainedTokenizerBase

    files = [Path(source) / name for name in _TOKENIZER_FILES]
    files = [path for path in files if lexists(path)]
    for path in files:
        refuse_strange_file(path)
    where = "" if Path(source).is_dir() else " (no folder here, so taken for a name on the Hugging Face hub)"
    named = explain_faults(f"{str(source)!r}{where}", "the tokenizer")
    with named, quiet("huggingface_hub"), quiet("transformers"), forbid_questions(), print_to_errors():
        for path in (Path(source) / TOKENIZER, Path(source) / CONFIG):
            if lexists(path):
                _refuse_tokenizer_settings(read_json(path), source)
        try:
            tokenizer = AutoTokenizer.from_pretrained(
                str(source), trust_remote_code=trust_remote_code, local_files_only=local_files_only
            )
        except Exception:
            # What the library says rarely names the file; the first that is not JSON is named instead.
            for path in files:
                if path.suffix == ".json":
                    read_json(path)
            if Path(source).is_dir() and not files:
                raise CheckpointError(
                    f"{source} holds no tokenizer, neither tokenizer.json nor tokenizer.model nor a vocabulary; put "
                    "the files of the model's tokenizer there"
                ) from None
            raise
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise CheckpointError(f"{source} names a {type(tokenizer).__name__} as its tokenizer, which is none")
    return tokenizer


def _refuse_tokenizer_settings(settings: Mapping[str, Any], source: str | Path) -> None:
    """Raise CheckpointError for a class of transformers that is no tokenizer, for any would be called, and a length."""
    import transformers

    name, length = settings.get("tokenizer_class"), settings.get("model_max_length")
    if name is not None and not isinstance(name, str):
        raise CheckpointError(f"{source} sets tokenizer_class = {name!r}; it must be the name of a class")
    named: Any = None if name is None else getattr(transformers, name, None)
    is_class, base = isinstance(named, type), transformers.PreTrainedTokenizerBase
    if named is not None and not (is_class and (issubclass(named, base) or getattr(named, "is_dummy", False))):
        raise CheckpointError(f"{source} sets tokenizer_class = {name!r}, which is no tokenizer")
    if length is not None and (isinstance(length, bool) or not isinstance(length, (int, float))):
        raise CheckpointError(f"{source} sets model_max_length = {show_value(length)} in {TOKENIZER}; it is a number")


def encode_bare(tokenizer: Any, text: str) -> list[int]:
    """Return token ids without special tokens; the tokenizer does not warn of a long text, which is cut later."""
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def find_special_tokens(tokenizer: Any, start: int | None = None) -> tuple[list[int], list[int]]:
    """Return the special tokens that the tokenizer puts before and after a text; with ``start``, those of a decoder.

    A decoder reads ``start`` first and no token after the text. A tokenizer that cuts a text into other tokens once it
    puts special ones around it counts as one without them.
    """
    sample = "the word and the number"
    inner, full = encode_bare(tokenizer, sample), list(tokenizer(sample)["input_ids"])
    before: list[int] = []
    after: list[int] = []
    for offset in range(len(full) - len(inner) + 1):
        if full[offset : offset + len(inner)] == inner:
            before, after = full[:offset], full[offset + len(inner) :]
            break
    if start is None:
        return before, after
    return ([start, *before] if before[:1] != [start] else before), []


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
