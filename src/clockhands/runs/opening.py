"""Open models of this project, and refuse folders with faults before their weights are read.

A run folder is a Hugging Face model folder (``config.json``, ``model.safetensors``, tokenizer files) that also holds
the resolved ``recipe.toml``. Models that others made are opened by ``clockhands.models``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os.path import lexists
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import nn

from clockhands.data import Tokenizers
from clockhands.errors import CheckpointError, UsageError, describe_unknown
from clockhands.model.config import TransformerConfig, read_config
from clockhands.model.position_config import ELLIPSIS, PositionConfig
from clockhands.model.size import find_memory_fault
from clockhands.model.transformer import Transformer
from clockhands.options import options_of
from clockhands.pretrained import (
    CONFIG,
    GENERATION,
    TOKENIZER,
    WEIGHTS,
    check_fits,
    count_stored_bytes,
    explain_faults,
    is_own,
    load_model,
    read_configuration,
    refuse_code,
    refuse_not_finite,
)
from clockhands.reading import read_json
from clockhands.runs.folder import RECIPE, describe_missing
from clockhands.schemes import CATALOGUE, Learned

if TYPE_CHECKING:
    from clockhands.model.huggingface_base import ClockhandsConfig, ClockhandsPreTrainedModel


def change_positions(config: ClockhandsConfig, overrides: Mapping[str, Any]) -> ClockhandsConfig:
    """Return a copy of a configuration with other options of its schemes, on every side whose scheme has them.

    ``overrides`` are options by name. Raises UsageError for an option that no scheme of the model has, ConfigError for
    a value that the scheme refuses.
    """
    core, known = config.transformer_config, set[str]()
    table = core.to_dict()

    def change(entry: Any) -> Any:
        """Change a scheme's name or table, or a table of several schemes."""
        if not isinstance(entry, str) and "schemes" in entry:
            return {**entry, "schemes": [change(part) for part in entry["schemes"]]}
        own = {"scheme": entry} if isinstance(entry, str) else entry
        names = options_of(CATALOGUE[own["scheme"]]).keys()
        known.update(names)
        changed = {key: value for key, value in overrides.items() if key in names}
        return {**own, **changed} if changed else entry

    for side in core.sides:
        position = table[side]
        options = change({"scheme": position["scheme"], **position["options"]})
        position["options"] = {key: value for key, value in options.items() if key != "scheme"}
        if "layers" in position:
            named = (*position["kinds"], ELLIPSIS)
            position["kinds"] = {name: change(entry) for name, entry in position["kinds"].items()}
            position["layers"] = [entry if entry in named else change(entry) for entry in position["layers"]]
    unknown = [key for key in overrides if key not in known]
    names = ", ".join(sorted({core.get_position_config(side).name for side in core.sides}))
    if len(unknown) == 1:
        raise UsageError(describe_unknown(f"position option of this model ({names})", unknown[0], known))
    if unknown:
        raise UsageError(
            f"the positions of this model ({names}) have no options {', '.join(unknown)}; "
            f"they have {', '.join(sorted(known)) or 'none'}"
        )
    return _copy_config(config, table)


def change_scheme(model: Any, table: Mapping[str, Any]) -> Any:
    """Return a copy of a decoder with another scheme and the same weights, in evaluation mode.

    ``table``: the table ``[position]`` of a recipe. Raises ConfigError for a table with faults, CheckpointError where
    the weights of the two differ.
    """
    position = PositionConfig.from_dict(dict(table)).to_dict()
    config = _copy_config(model.config, {**model.config.transformer_config.to_dict(), "decoder": position})
    made = type(model)(config)
    report = made.load_state_dict(model.state_dict(), strict=False)
    faults = sorted([*report.missing_keys, *report.unexpected_keys])
    if faults:
        raise CheckpointError(f"with the scheme {position['scheme']} the model has other weights: {', '.join(faults)}")
    return made.to(model.device, model.dtype).eval()


def change_options(model: Any, overrides: Mapping[str, Any], state: Mapping[str, torch.Tensor] | None = None) -> Any:
    """Return a copy of a model with other options of its schemes and its own weights, or those of ``state``.

    It is in evaluation mode. Raises what ``change_positions`` raises.
    """
    made = type(model)(change_positions(model.config, overrides))
    made.load_state_dict(model.state_dict() if state is None else state)
    return made.to(model.device, model.dtype).eval()


def find_table_length(model: Any) -> int | None:
    """Return the positions of a model's learned table; None where it has none, or reads on with the last row."""
    lengths = [part.max_length for part in model.modules() if isinstance(part, Learned) and part.beyond == "raise"]
    return min(lengths, default=None)


def change_table(model: Any, rows: int, stretch: Callable[[torch.Tensor, int], torch.Tensor]) -> Any:
    """Return a copy of a model whose learned tables of positions have ``rows`` rows, made by ``stretch`` from its own.

    Raises UsageError for a model without one.
    """
    state = model.state_dict()
    for name, part in model.named_modules():
        if isinstance(part, Learned):
            table_LP = part.table_LP.detach()
            longer_RP = stretch(table_LP[part.offset :], rows).to(table_LP.dtype)
            state[f"{name}.table_LP"] = torch.cat([table_LP[: part.offset], longer_RP])
    return change_options(model, {"max_length": rows}, state)


def _copy_config(config: ClockhandsConfig, transformer: Mapping[str, Any]) -> ClockhandsConfig:
    names = (
        "label_smoothing", "smoothing", "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id",
        "tokenizer_fingerprint", "use_cache",
    )  # fmt: skip
    return type(config)(transformer=transformer, **{name: getattr(config, name) for name in names})


SCHEME_WEIGHTS = ("model.encoder.schemes.", "model.decoder.schemes.", "model.cross_schemes.")
"""The beginnings of the names of the schemes' weights."""


def open_model(
    folder: Path, *, dtype: str | torch.dtype = "auto", position: Mapping[str, Any] | None = None
) -> ClockhandsPreTrainedModel:
    """Open the model of a folder, in evaluation mode, on the CPU.

    ``dtype``, ``position`` and the errors are those of ``open_run``.
    """
    raw, _ = read_clockhands_config(folder)
    config = open_configuration(folder)
    from clockhands.model.huggingface import MODEL_CLASSES

    _check_generation_config(folder, config)
    if position:
        config = change_positions(config, position)
    size = dtype.itemsize if isinstance(dtype, torch.dtype) else 4
    fault = find_memory_fault(config.transformer_config, bytes_per_parameter=size)
    if fault is not None:
        raise CheckpointError(f"{folder / CONFIG}: {fault}")
    check_fits(count_stored_bytes(folder, raw), folder)
    with explain_faults(folder, "the model in"):
        model = load_model(
            MODEL_CLASSES[config.transformer_config.architecture], folder, config=config, dtype=dtype,
            local_files_only=True, strict=True, may_differ=SCHEME_WEIGHTS if position else (),
        )  # fmt: skip
    refuse_not_finite(model.named_parameters(), folder)
    opened: ClockhandsPreTrainedModel = model.eval()
    return opened


def read_clockhands_config(folder: Path) -> tuple[dict[str, Any], TransformerConfig]:
    """Read the ``config.json`` of a model of this project: its content, and the validated ``TransformerConfig`` in it.

    Options of position that older files lack are filled in. Raises CheckpointError if the file is missing or invalid,
    if it is of a model of another project, and if code would come with it.
    """
    path = folder / CONFIG
    if not lexists(path):
        raise CheckpointError(
            f"{folder} is not a finished run ({describe_missing(folder, CONFIG)}); `clockhands train` makes one"
        )
    raw = read_configuration(folder)
    if not is_own(raw):
        what = f"{path} names no model type"
        if raw.get("model_type") is not None:
            what = f"{folder} holds a model of type {raw['model_type']!r}, not one of this project"
        raise CheckpointError(f"{what}; `clockhands inspect` and `clockhands check` open any Hugging Face checkpoint")
    refuse_code(raw, folder)
    with explain_faults(path, "the configuration"):
        return raw, read_config(raw.get("transformer", {}), "transformer")


def open_configuration(folder: Path) -> ClockhandsConfig:
    """Open the configuration of a folder as an object of transformers. Raises CheckpointError if it is invalid."""
    from clockhands.model.huggingface_base import ClockhandsConfig

    raw, _ = read_clockhands_config(folder)
    if not isinstance(getattr(torch, str(raw.get("dtype") or "float32"), None), torch.dtype):
        raise CheckpointError(
            f"{folder / CONFIG} sets dtype = {raw['dtype']!r}, which torch does not have; use float32"
        )
    with explain_faults(folder / CONFIG, "the configuration"):
        return ClockhandsConfig.from_dict(dict(raw))


def _check_generation_config(folder: Path, config: ClockhandsConfig) -> None:
    """Raise CheckpointError if no token begins a translation, or if ``generation_config.json`` is damaged.

    transformers would ignore a damaged file and use the configuration instead, and it accepts any number as a token id.
    """
    from clockhands.model.huggingface_base import SPECIAL_TOKEN_IDS, find_id_faults

    if config.transformer_config.architecture == "encoder-decoder" and config.find_start_token() is None:
        raise CheckpointError(
            f"{folder / CONFIG} names no token that a translation begins with; set decoder_start_token_id"
        )
    path = folder / GENERATION
    if not lexists(path):
        return
    settings = read_json(path)
    ids = {name: settings.get(name) for name in SPECIAL_TOKEN_IDS}
    wrong = find_id_faults(ids, config.transformer_config.vocab_size)
    if wrong:
        raise CheckpointError(f"{path} does not fit the model: {'; '.join(wrong)}")
    if settings.get("output_attentions"):
        raise CheckpointError(
            f"{path} sets output_attentions = {settings['output_attentions']!r}, but no model of Clockhands returns "
            "its attention weights from generate; remove the key, and use clockhands.attention.record to see them"
        )


def open_tokenizers(folder: Path, config: ClockhandsConfig) -> Tokenizers:
    """Open the tokenizers of a folder. Raises CheckpointError if the model was trained with other tokenizers.

    If ``config.json`` has no fingerprint of them (older runs), only sizes are compared: a run has as many tokens as
    embeddings, any other folder at most as many, because embeddings may be padded.
    """
    transformer_config, tokenizers = config.transformer_config, Tokenizers.load(folder)
    for side, tokenizer in (("encoder", tokenizers.source), ("decoder", tokenizers.target)):
        if side not in transformer_config.stack_sides:
            continue
        rows, largest = transformer_config.get_vocabulary_size(side), max(tokenizer.get_vocab().values(), default=-1)
        if largest >= rows or (largest < rows - 1 and (folder / RECIPE).is_file()):
            raise CheckpointError(
                f"the tokenizer in {folder} has ids up to {largest:,}, and the {side} has {rows:,} embeddings; it is "
                "not the one that the model was trained with: put back the tokenizer files of that run"
            )
    if config.tokenizer_fingerprint not in (None, tokenizers.fingerprint):
        raise CheckpointError(
            f"the tokenizer in {folder} is not the one that the model was trained with (its fingerprint is "
            f"{tokenizers.fingerprint}, and config.json has {config.tokenizer_fingerprint}): put back the tokenizer "
            "files of that run"
        )
    return tokenizers


TOKENIZER_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""The class that training saves tokenizers as, by its names in transformers."""
USUAL_GENERATION = {
    "_from_model_config", "transformers_version", "use_cache", "output_attentions", "output_hidden_states",
    "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id",
}  # fmt: skip
"""The keys that training writes into ``generation_config.json``."""


class _PlainTokenizer:
    """A tokenizer of tokenizers as those of transformers are called: ids of texts, and texts of ids."""

    is_fast = True

    def __init__(self, backend: Tokenizer, settings: Mapping[str, Any]) -> None:
        self.backend_tokenizer = backend
        self.pad_token_id = backend.token_to_id(settings["pad_token"])
        self.eos_token_id = backend.token_to_id(settings["eos_token"])

    def __len__(self) -> int:
        return self.backend_tokenizer.get_vocab_size(with_added_tokens=True)

    def __call__(self, text: str) -> dict[str, list[int]]:
        """Return the ids of a text under ``input_ids``, with those that end it."""
        return {"input_ids": self.backend_tokenizer.encode(text).ids}

    def get_vocab(self) -> dict[str, int]:
        """Return the id of each token."""
        return self.backend_tokenizer.get_vocab(with_added_tokens=True)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """Return the text of ids."""
        return self.backend_tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens)

    def batch_decode(self, rows: Sequence[Sequence[int]], skip_special_tokens: bool = False) -> list[str]:
        """Return the texts of several rows of ids."""
        return self.backend_tokenizer.decode_batch([*map(list, rows)], skip_special_tokens=skip_special_tokens)


class _PlainModel(nn.Module):
    """A ``Transformer`` on the CPU with what an engine asks of a configuration."""

    device = torch.device("cpu")

    def __init__(self, config: TransformerConfig, eos_token_id: int, start: int, pad_token_id: int) -> None:
        super().__init__()
        self.model = Transformer(config)
        self.config = SimpleNamespace(
            transformer_config=config, vocab_size=config.vocab_size, eos_token_id=eos_token_id,
            decoder_start_token_id=start, pad_token_id=pad_token_id, find_start_token=lambda: start,
        )  # fmt: skip

    @property
    def transformer(self) -> Transformer:
        """The ``Transformer`` inside."""
        return self.model


@dataclass(frozen=True)
class PlainRun:
    """What ``translate`` and ``evaluate`` ask of a run."""

    path: Path
    model: Any
    tokenizers: Tokenizers


def open_plain(folder: Path) -> PlainRun | None:
    """Open a run that translates without transformers; None where anything is not as training wrote it."""
    try:
        raw, config = read_clockhands_config(folder)
        ids = [raw.get(name) for name in ("eos_token_id", "decoder_start_token_id", "pad_token_id")]
        if (
            config.architecture != "encoder-decoder"
            or not all(type(token) is int and 0 <= token < config.vocab_size for token in ids)
            or raw.get("dtype") != "float32"
            or not all((folder / name).is_file() for name in (RECIPE, WEIGHTS))
            or (lexists(folder / GENERATION) and read_json(folder / GENERATION).keys() - USUAL_GENERATION)
            or find_memory_fault(config) is not None
        ):
            return None
        check_fits(count_stored_bytes(folder, raw), folder)
        source = _open_tokenizer(folder)
        target = _open_tokenizer(folder / "target") if (folder / "target" / TOKENIZER).is_file() else source
        if source is None or target is None:
            return None
        tokenizers = Tokenizers(source, target)
        if tokenizers.fingerprint != raw.get("tokenizer_fingerprint"):
            return None
        with torch.random.fork_rng(devices=[]):
            model = _PlainModel(config, *ids).eval()  # type: ignore[arg-type]
        report = model.load_state_dict(load_file(folder / WEIGHTS), strict=False)
        tied = {f"model.{name}" for name in model.model.map_tied_parameters()}
        if report.unexpected_keys or set(report.missing_keys) - tied:
            return None
        refuse_not_finite(model.named_parameters(), folder)
        return PlainRun(folder, model, tokenizers)
    except Exception:  # libraries raise anything for a damaged file, and the ordinary way of opening says what it is
        return None


def _open_tokenizer(folder: Path) -> Any:
    """Open a tokenizer that training saved; None for one of another class, which may do more than its file says."""
    settings = read_json(folder / TOKENIZER)
    if settings.get("tokenizer_class") not in TOKENIZER_CLASSES or settings.get("clean_up_tokenization_spaces"):
        return None
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return _PlainTokenizer(backend, settings)
