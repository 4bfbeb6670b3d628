"""Opening a checkpoint: a local folder or a hub name. What is not understood is refused before weights are read."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from clockhands.devices import open_device
from clockhands.errors import CheckpointError, ClockhandsError
from clockhands.inspection.subject import Side, Subject
from clockhands.machine import free_memory
from clockhands.quiet import quiet, without_bars

if TYPE_CHECKING:
    from clockhands.data import Corpus

_SUFFIXES = (".safetensors", ".safetensors.index.json")


def open_subject(
    source: str | Path, *, trust_remote_code: bool = False, device: str = "cpu", side: Side | None = None
) -> Subject:
    """Open a folder, or a name on the Hugging Face hub, as what ``inspect`` looks at; of a pair, one ``side``.

    Weights are read in float32 and from safetensors only. Raises CheckpointError, saying what to do, for a missing
    path, a position setting that is not understood, pickled weights, code that needs trust, and a model too large;
    UsageError for a device that is not in this machine.
    """
    from transformers import AutoModel

    place = open_device(device, "device")
    raw = _configuration(source)
    _refuse_unknown(raw, source)
    remote = "auto_map" in raw and not _is_known(raw)
    if remote and not trust_remote_code:
        raise CheckpointError(
            f"{source} brings its own code (model_type {raw.get('model_type')!r}), which would run on this machine; "
            "read it, then give --trust-remote-code (trust_remote_code=True)"
        )
    if not remote and not _is_known(raw):
        raise CheckpointError(f"{source} has model_type {raw.get('model_type')!r}, which transformers does not know")
    if raw.get("model_type") != "clockhands" and not remote:
        check_fits(float32_bytes(raw), source)
    if Path(source).is_dir():
        _check_weights(Path(source))
    if raw.get("model_type") == "clockhands":
        return _own_run(source, device, side)
    try:
        with without_bars():
            model = AutoModel.from_pretrained(
                str(source), use_safetensors=True, dtype=torch.float32, trust_remote_code=trust_remote_code
            )
    except Exception as fault:  # classes of many libraries raise errors of their own
        raise CheckpointError(f"cannot open {source}: {_line(fault)}") from fault
    return Subject.of(model.to(place), _tokenizer(source, trust_remote_code), _short(source), side)


def _own_run(source: str | Path, device: str, side: Side | None) -> Subject:
    """A run of this project, with the tokenizers and the text of the side that is looked at."""
    from clockhands.generation import open_run

    opened = open_run(source, device=device, dtype=torch.float32)
    subject = Subject.of(opened.model, opened.tokenizers.source, _short(source), side)
    corpus = _trained_on(Path(source))
    if subject.looks_across:
        subject.tokenizer, subject.source_tokenizer = opened.tokenizers.target, opened.tokenizers.source
        subject.pairs = [(pair.source, pair.target) for pair in corpus.pairs("train")] if corpus else None
    elif corpus is not None:
        subject.texts = corpus.sources("train") if corpus.kind == "translation" else corpus.documents("train")
    return subject


def _trained_on(run: Path) -> Corpus | None:
    """What a run learned from, by its recipe; None if that cannot be had any more."""
    from clockhands.data import corpus_options, open_corpus

    try:
        data = tomllib.loads((run / "recipe.toml").read_text(encoding="utf8"))["data"]
        known = corpus_options(data["corpus"])
        return open_corpus(data["corpus"], **{key: value for key, value in data.items() if key in known})
    except (OSError, KeyError, ValueError, ClockhandsError):
        return None


def _configuration(source: str | Path) -> dict[str, Any]:
    """config.json as it is written; transformers would drop or repair what we must refuse."""
    path = Path(source)
    if path.is_file():
        raise CheckpointError(f"{source} is a file; give the folder that holds config.json and model.safetensors")
    if path.is_dir():
        try:
            return dict(json.loads((path / "config.json").read_text(encoding="utf8")))
        except FileNotFoundError:
            raise CheckpointError(f"{source} holds no config.json, so it is no saved model") from None
        except (OSError, ValueError) as fault:
            raise CheckpointError(f"{path / 'config.json'} cannot be read: {_line(fault)}") from fault
    if path.is_absolute() or str(source).startswith((".", "~")) or str(source).count("/") != 1:
        raise CheckpointError(
            f"there is no folder {source}; give a saved model's folder, or a hub name such as org/name"
        )
    from transformers import PreTrainedConfig

    try:
        with quiet("huggingface_hub"):
            return dict(PreTrainedConfig.get_config_dict(str(source))[0])
    except (OSError, ValueError) as fault:
        raise CheckpointError(
            f"{source} is neither a folder here nor a model that the hub gives: {_line(fault)}"
        ) from fault


def _is_known(raw: dict[str, Any]) -> bool:
    from transformers import CONFIG_MAPPING

    return raw.get("model_type") in CONFIG_MAPPING


def _refuse_unknown(raw: dict[str, Any], source: str | Path) -> None:
    """Refuse a position setting that transformers would ignore or that no formula here covers, by key and value."""
    kind = raw.get("position_embedding_type")
    if isinstance(kind, str) and kind.startswith("relative"):
        raise CheckpointError(
            f"{source} sets position_embedding_type = {kind!r}; transformers 5 ignores that and would load the model "
            "as if its positions were absolute, so nothing measured would be true of it"
        )
    if raw.get("model_type") == "mpt" and (raw.get("attn_config") or {}).get("alibi") is False:
        raise CheckpointError(
            f"{source} sets attn_config.alibi = False; transformers ignores that and adds ALiBi all the same, while "
            "the learned table that the model was trained with is never read, so nothing measured would be true of it"
        )
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    known = {"default", *ROPE_INIT_FUNCTIONS}
    for key, value in _rope_types(raw):
        if value not in known:
            raise CheckpointError(
                f"{source} sets {key} = {value!r}; the rope types understood are {', '.join(sorted(known))}"
            )


def _rope_types(raw: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every rope type written in a configuration, with its key; some name one per layer type, some nest sub-models."""
    for key, value in raw.items():
        if not isinstance(value, dict):
            continue
        where = f"{prefix}{key}"
        if key in ("rope_scaling", "rope_parameters") or prefix.startswith(("rope_scaling", "rope_parameters")):
            for name in ("rope_type", "type"):
                if isinstance(value.get(name), str):
                    yield f"{where}.{name}", value[name]
                    break
        yield from _rope_types(value, f"{where}.")


def float32_bytes(raw: dict[str, Any]) -> int:
    """What a model of this configuration takes as float32, counted without making its weights; 0 if that fails."""
    from transformers import AutoConfig, AutoModel

    try:
        config = AutoConfig.for_model(**_decoded(raw))
        with torch.device("meta"):
            weights = list(AutoModel.from_config(config).parameters())
    except Exception:  # classes of many libraries raise errors of their own
        return 0  # opening the model will say what is wrong with it
    return sum(4 * weight.numel() for weight in weights)


def _check_weights(folder: Path) -> None:
    """Refuse a folder without safetensors, and weights that would not fit the memory."""
    files = [path for path in folder.iterdir() if path.name.endswith(_SUFFIXES)]
    if not files:
        pickles = sorted(path.name for path in folder.iterdir() if path.suffix in (".bin", ".pt", ".pth", ".ckpt"))
        if pickles:
            raise CheckpointError(
                f"{folder} holds its weights only as pickle ({pickles[0]}), which can run any code when it is read; "
                "convert it with save_pretrained(..., safe_serialization=True) where you trust it"
            )
        raise CheckpointError(f"{folder} holds no weights (model.safetensors)")
    check_fits(sum(_stored_bytes(path) for path in files if path.suffix == ".safetensors"), folder)


def _stored_bytes(path: Path) -> int:
    """What the tensors of a safetensors file take as float32; only its header is read."""
    from safetensors import safe_open

    try:
        with safe_open(path, framework="pt") as file:
            shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
    except Exception as fault:
        raise CheckpointError(f"{path} is no safetensors file: {_line(fault)}") from fault
    return sum(4 * torch.Size(shape).numel() for shape in shapes)


def _decoded(raw: Any) -> Any:
    """A configuration with its infinities as numbers: transformers writes them as {"__float__": "Infinity"}."""
    if isinstance(raw, dict):
        return float(raw["__float__"]) if set(raw) == {"__float__"} else {key: _decoded(raw[key]) for key in raw}
    return [_decoded(item) for item in raw] if isinstance(raw, list) else raw


def check_fits(needed: int, source: str | Path, available: int | None = None) -> None:
    """Raises CheckpointError if a model of ``needed`` bytes does not fit into ``available`` (default: what is free)."""
    if available is None:
        available = free_memory(torch.device("cpu"))
    if needed * 1.2 > available:
        raise CheckpointError(
            f"{source} needs {needed / 2**30:.1f} GiB for its weights and more to run, and {available / 2**30:.1f} GiB "
            "of memory are free; use a machine with more, or a smaller model of the family"
        )


def open_tokenizer(source: str | Path, *, trust_remote_code: bool = False) -> Any:
    """Open a tokenizer from a folder, or by its name on the hub. Code that it brings runs only where it is trusted.

    Raises CheckpointError, saying why, where there is none.
    """
    from transformers import AutoTokenizer

    path = Path(source)
    looks_local = path.is_absolute() or str(source).startswith((".", "~")) or isinstance(source, Path)
    if path.is_file() or (not path.is_dir() and looks_local):
        raise CheckpointError(f"there is no folder {source}; give the folder that holds a tokenizer, or a hub name")
    try:
        with quiet("huggingface_hub"), quiet("transformers"):
            found = AutoTokenizer.from_pretrained(str(source), trust_remote_code=trust_remote_code)
    except Exception as fault:  # the formats of many libraries are tried, and each raises errors of its own
        where = "" if path.is_dir() else " (no folder here, so taken for a name on the hub)"
        raise CheckpointError(f"cannot open the tokenizer {source}{where}: {_line(fault)}") from fault
    # Where there are no files, transformers makes up a tokenizer that knows its special tokens and no word.
    if len(found) <= len(found.all_special_ids) + 1:
        raise CheckpointError(f"{source} holds no tokenizer: none of its files lists any words")
    return found


def _tokenizer(source: str | Path, trust_remote_code: bool) -> Any:
    """The checkpoint's tokenizer, or None if it has none; then texts must be given as token ids."""
    try:
        return open_tokenizer(source, trust_remote_code=trust_remote_code)
    except CheckpointError:
        return None


def _short(source: str | Path) -> str:
    """What to call the model: the source as given, of an absolute path its end."""
    path = Path(source)
    return "/".join(path.parts[-2:]) if path.is_absolute() else str(source)


def _line(fault: BaseException) -> str:
    """The first line of what a library said."""
    return str(fault).strip().splitlines()[0] if str(fault).strip() else type(fault).__name__
