"""Open a checkpoint, a local folder or a hub name; what is not understood is refused before weights are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from clockhands.data import Corpus, corpus_options, open_corpus
from clockhands.devices import open_device
from clockhands.errors import CheckpointError, ClockhandsError
from clockhands.inspection.subject.side import Side
from clockhands.inspection.subject.subject import Subject
from clockhands.pretrained import check_fits, count_numbers, first_line, is_known, is_own, load_tokenizer
from clockhands.runs import Run, load_foreign_model, open_run, read_checked_config, refuse_unknown_positions
from clockhands.runs.foreign import measure_weight_files

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
"""A folder with one of these files has a tokenizer, so that failing to open it is a fault."""


def open_subject(
    source: str | Path,
    *,
    trust_remote_code: bool = False,
    device: str = "cpu",
    side: Side | None = None,
    tokenizer: Any = None,
) -> Subject:
    """Open a folder, or a name on the Hugging Face hub, for ``inspect``; of an encoder-decoder, one ``side``.

    ``tokenizer``: an opened one, in place of the checkpoint's own. That is then not read, except that of a run, which
    is opened whole.
    Weights are read in float32 and from safetensors only. Raises CheckpointError, saying what to do, for a missing
    path, a position setting that is not understood, pickled or damaged weights, code that needs trust, a model too
    large, and one that does not turn token ids into one state per token; UsageError for a device that is not in this
    machine, and for a side that the model does not have.
    """
    torch_device = open_device(device, "device")
    raw_config = read_checked_config(source, trust_remote_code=trust_remote_code)
    refuse_unknown_positions(raw_config, source)
    if is_own(raw_config):
        subject = _open_run(source, device, side)
        subject.tokenizer = tokenizer or subject.tokenizer
        return subject
    # By the configuration, since files may not be downloaded yet; and by the files, which may be larger than it says,
    # or belong to a model whose code is not known.
    if is_known(raw_config):
        check_fits(count_float32_bytes(raw_config), source)
    check_fits(measure_weight_files(source, raw_config), source)
    model, fault = _load(source, raw_config, trust_remote_code), ""
    if not tokenizer:
        tokenizer, fault = _open_tokenizer_if_any(source, trust_remote_code)
    subject = Subject.of(model.to(torch_device), tokenizer, _name_model(source), side)
    subject.tokenizer_fault = fault
    return subject


def _load(source: str | Path, raw_config: dict[str, Any], trust_remote_code: bool) -> nn.Module:
    """Load the stack of layers; of a language model its output layer too, since its loss is measured."""
    from transformers import AutoModel, AutoModelForCausalLM

    opener = AutoModelForCausalLM if _is_language_model(raw_config) else AutoModel
    return load_foreign_model(opener, source, dtype=torch.float32, trust_remote_code=trust_remote_code)


def _is_language_model(raw_config: dict[str, Any]) -> bool:
    """Tell whether a checkpoint names a class of causal language models: of transformers, or of the code it brings."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    brought = str((raw_config.get("auto_map") or {}).get("AutoModelForCausalLM", ""))  # "module.Class"
    names = (MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(raw_config.get("model_type", "")), brought.rsplit(".", 1)[-1])
    return any(name in names for name in raw_config.get("architectures") or ())


def _open_run(source: str | Path, device: str, side: Side | None) -> Subject:
    """Open a run of this project, with the tokenizers and the training text of the side that is inspected."""
    opened = open_run(source, device=device, dtype=torch.float32)
    subject = Subject.of(opened.model, opened.tokenizers.source, _name_model(source), side)
    corpus = _open_training_corpus(Path(source))
    if subject.reads_source:
        subject.tokenizer, subject.source_tokenizer = opened.tokenizers.target, opened.tokenizers.source
        subject.training_pairs = [(pair.source, pair.target) for pair in corpus.pairs("train")] if corpus else None
    elif corpus is not None:
        subject.training_texts = corpus.sources("train") if corpus.task == "translation" else corpus.documents("train")
    return subject


def _open_training_corpus(run: Path) -> Corpus | None:
    """Open the corpus that a run was trained on, by its recipe; None if that fails: the run is measured on other text.

    The corpus may not be on this machine, and a recipe may be edited, or older than an option. A data set of the hub is
    not opened: whoever inspects a run has not asked for the network.
    """
    try:
        data = Run.from_folder(run).tables["data"]
        if data["corpus"] == "huggingface" and not Path(data["dataset"]).is_dir():
            return None
        options = corpus_options(data["corpus"])
        return open_corpus(data["corpus"], **{key: value for key, value in data.items() if key in options})
    except (KeyError, TypeError, ValueError, AttributeError, ClockhandsError):
        return None


def count_float32_bytes(raw_config: dict[str, Any]) -> int:
    """Count what a model of this configuration takes as float32, without making its weights; 0 if that fails."""
    from transformers import AutoConfig, AutoModel

    try:
        config = AutoConfig.for_model(**_decode_infinities(raw_config))
    except Exception:  # opening the model will say what is wrong with it
        return 0
    return 4 * (count_numbers(AutoModel, config) or 0)


def _decode_infinities(value: Any) -> Any:
    """Return a configuration with infinities as numbers; transformers writes them as {"__float__": "Infinity"}."""
    if isinstance(value, dict) and set(value) == {"__float__"}:
        return float(value["__float__"])
    if isinstance(value, dict):
        return {key: _decode_infinities(item) for key, item in value.items()}
    return [_decode_infinities(item) for item in value] if isinstance(value, list) else value


def open_tokenizer(source: str | Path, *, trust_remote_code: bool = False) -> Any:
    """Open a tokenizer from a folder, or by its name on the hub. Code that it brings runs only where it is trusted.

    Raises CheckpointError, saying why, where there is none.
    """
    path = Path(source)
    looks_local = path.is_absolute() or str(source).startswith((".", "~")) or isinstance(source, Path)
    if path.is_file() or (not path.is_dir() and looks_local):
        raise CheckpointError(f"there is no folder {source}; give the folder that holds a tokenizer, or a hub name")
    tokenizer = load_tokenizer(source, trust_remote_code=trust_remote_code)
    # Without files, transformers makes a tokenizer of special tokens alone; T5's has the mark of a space beside them.
    if set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens) <= {"▁"}:
        raise CheckpointError(f"{source} holds no tokenizer: none of its files lists any tokens")
    return tokenizer


def _open_tokenizer_if_any(source: str | Path, trust_remote_code: bool) -> tuple[Any, str]:
    """Open the checkpoint's tokenizer; None, and the reason, if there is none: then text must be given as token ids.

    Raises CheckpointError for a folder whose tokenizer is there and cannot be opened.
    """
    try:
        return open_tokenizer(source, trust_remote_code=trust_remote_code), ""
    except CheckpointError as fault:
        if any((Path(source) / name).exists() for name in _TOKENIZER_FILES):
            raise
        return None, first_line(fault)


def _name_model(source: str | Path) -> str:
    """Return a name for the model: the source, or the last two parts of an absolute path."""
    path = Path(source)
    return "/".join(path.parts[-2:]) if path.is_absolute() else str(source)
