"""Open a checkpoint, a local folder or a hub name; what is not understood is refused before weights are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch

from clockhands.data import Corpus, corpus_options, open_corpus
from clockhands.data.splits import Made
from clockhands.devices import open_device
from clockhands.errors import CheckpointError, ClockhandsError
from clockhands.models.door import choose_class, judge_configuration, load_weights, read_checked_config
from clockhands.models.subject import Side, Subject
from clockhands.pretrained import first_line, is_own, load_tokenizer
from clockhands.runs import Run, open_run

T = TypeVar("T")
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
    from transformers import AutoModel, AutoModelForCausalLM

    torch_device = open_device(device, "device")
    if is_own(read_checked_config(source, trust_remote_code=trust_remote_code)):
        subject = _open_run(source, device, side)
        subject.tokenizer = tokenizer or subject.tokenizer
        return subject
    config = judge_configuration(source, trust_remote_code=trust_remote_code)
    opener = choose_class(config)
    if opener is not AutoModelForCausalLM or not config.architectures:
        opener = AutoModel  # of a language model its output layer is opened too, since its loss is measured
    model = load_weights(
        opener, source, config, device=torch_device, dtype=torch.float32, must_fit=True,
        trust_remote_code=trust_remote_code,
    )  # fmt: skip
    fault = ""
    if not tokenizer:
        tokenizer, fault = _open_tokenizer_if_any(source, trust_remote_code)
    subject = Subject.of(model, tokenizer, _name_model(source), side)
    subject.tokenizer_fault = fault
    return subject


def _open_run(source: str | Path, device: str, side: Side | None) -> Subject:
    """Open a run of this project, with the tokenizers and the training text of the side that is inspected."""
    opened = open_run(source, device=device, dtype=torch.float32)
    subject = Subject.of(opened.model, opened.tokenizers.source, _name_model(source), side)
    corpus = _open_training_corpus(Path(source))
    if subject.reads_source:
        subject.tokenizer, subject.source_tokenizer = opened.tokenizers.target, opened.tokenizers.source
        subject.training_pairs = _take(corpus, lambda pair: (pair.source, pair.target)) if corpus else None
    elif corpus is not None:
        documents = corpus.task == "language modelling"
        subject.training_texts = corpus.documents("train") if documents else _take(corpus, lambda pair: pair.source)
    return subject


def _take(corpus: Corpus, part: Callable[[Any], T]) -> Sequence[T]:
    """Return a part of every pair that a run was trained on, each when it is asked for: most are not."""
    pairs = corpus["train"]
    return Made(lambda: range(len(pairs)), lambda place: part(pairs[place]))


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
