"""The one door to anybody's model: what cannot be measured is refused before weights are read.

What opens a checkpoint calls ``judge_configuration``, chooses the class that it needs by ``find_task``, and loads the
weights by ``load_weights``. Runs of this project are opened by ``clockhands.runs`` where they are needed whole.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch

from clockhands.devices import open_device, read_dtype
from clockhands.errors import CheckpointError, ClockhandsError
from clockhands.model.position_config import StackSide
from clockhands.models.streaming import decide_streaming, open_streamed
from clockhands.models.subject import Subject
from clockhands.pretrained import (
    check_fits,
    count_numbers,
    count_stored_bytes,
    explain_faults,
    first_line,
    is_known,
    is_own,
    load_configuration,
    load_model,
    load_tokenizer,
    read_configuration,
    refuse_code,
    refuse_not_finite,
)

if TYPE_CHECKING:
    from clockhands.data import Corpus

HeadTask: TypeAlias = Literal["causal", "masked", "seq2seq"]
"""What an output layer is for: to continue text, to fill in masked tokens, or to answer a source."""
HEADS = re.compile("LM|ConditionalGeneration|(?<!Electra)(?<!Funnel)ForPreTraining")
"""Names of classes with an output layer over tokens; two that are pretrained tell replaced tokens instead."""


def read_checked_config(source: str | Path, *, trust_remote_code: bool = False) -> dict[str, Any]:
    """Read the ``config.json`` of a folder or hub name, and return it as it is written; no weights are read.

    Raises CheckpointError for a missing path, a model type that transformers does not know, and a model that needs code
    of its own unless ``trust_remote_code``.
    """
    raw = read_configuration(source)
    if is_own(raw):
        importlib.import_module("clockhands.auto")  # a model of this project then opens like any other
    refuse_code(raw, source, trust_remote_code=trust_remote_code)
    if not is_own(raw) and not is_known(raw) and "auto_map" not in raw:
        raise CheckpointError(f"{source} has model_type {raw.get('model_type')!r}, which transformers does not know")
    return raw


def judge_configuration(source: str | Path, *, trust_remote_code: bool = False) -> Any:
    """Open the configuration of a folder or hub name as transformers has it; no weights are read.

    Raises CheckpointError for one that cannot be opened, that needs code which is not trusted, or whose positions are
    not understood.
    """
    raw = read_checked_config(source, trust_remote_code=trust_remote_code)
    refuse_unknown_positions(raw, source)
    return load_configuration(source, trust_remote_code=trust_remote_code)


def find_task(config: Any) -> tuple[HeadTask, bool]:
    """Return what the output layer of a model is for, and whether the model was saved with that layer.

    By the class that the configuration declares; where it declares none, by what transformers has for its type.
    """
    from transformers.models.auto import modeling_auto

    names, kind = list(config.architectures or ()), config.model_type
    declared = " ".join(names)
    brought = str((getattr(config, "auto_map", None) or {}).get("AutoModelForCausalLM", "")).split(".")[-1]
    masked = modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES.get(kind)
    has_head = not names or bool(HEADS.search(declared))
    if getattr(config, "is_encoder_decoder", False):
        return "seq2seq", True
    if any(name in (modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(kind), brought) for name in names):
        return "causal", True
    if "MaskedLM" in declared or masked in names:
        return "masked", has_head
    if "CausalLM" in declared or "LMHead" in declared:
        return "causal", has_head
    return "masked" if masked and not getattr(config, "is_decoder", False) else "causal", has_head


def choose_class(config: Any) -> Any:
    """Return the Auto class of transformers that opens a model as it was saved: with its output layer if it has one.

    Models that read images or sound too have classes of their own, which are given text alone.
    """
    import transformers
    from transformers.models.auto import modeling_auto

    task, has_head = find_task(config)
    if not has_head:
        return transformers.AutoModel
    if task != "causal":
        return transformers.AutoModelForMaskedLM if task == "masked" else transformers.AutoModelForSeq2SeqLM
    continuing = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(config.model_type)
    for opener, kinds in (
        (transformers.AutoModelForMultimodalLM, modeling_auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES),
        (transformers.AutoModelForImageTextToText, modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES),
    ):
        name = kinds.get(config.model_type)
        if name is not None and name != continuing and name in (config.architectures or ()):
            return opener
    return transformers.AutoModelForCausalLM


def load_weights(
    opener: Any,
    source: str | Path,
    config: Any,
    *,
    device: torch.device,
    dtype: torch.dtype,
    weights: str | None = None,
    must_fit: bool = False,
    trust_remote_code: bool = False,
) -> Any:
    """Load a model, from a folder or by its hub name, in evaluation mode; weights are read from safetensors only.

    Args:
        opener: an Auto class of transformers, which decides what is built around the layers.
        source: the folder or the hub name.
        config: its configuration, which may have been changed.
        device: where to compute.
        dtype: of the weights.
        weights: "memory" (loaded once and straight to the device) or "streamed" from their files, layer by layer; None:
            streamed where they do not fit, which is told.
        must_fit: whether weights that do not fit are refused in place of streamed.
        trust_remote_code: whether code that comes with the model may run.

    Raises CheckpointError for weights that are pickled, damaged, missing, NaN or infinite, and for whatever a library
    raises; UsageError for unknown ``weights``.
    """
    stored = 0  # bytes of a folder's weights as float32; the files of a hub name are not downloaded yet
    if Path(source).is_dir():
        stored = count_stored_bytes(Path(source), read_configuration(source))
    numbers = count_numbers(opener, config, trust_remote_code=trust_remote_code)
    options: dict[str, Any] = {"dtype": dtype, "trust_remote_code": trust_remote_code, "config": config}
    if must_fit:
        # The files may hold more than the configuration says, or belong to a model whose code is not known.
        check_fits(max(stored, (numbers or 0) * dtype.itemsize), source)
    elif decide_streaming(str(source), weights, None if numbers is None else numbers * dtype.itemsize, device):
        with explain_faults(source, "with its weights streamed (hold them in memory instead) the model in"):
            return open_streamed(opener, str(source), device, **options)
    if device.type != "cpu":
        options["device_map"] = {"": str(device)}
    with explain_faults(source):
        model = load_model(opener, source, **options)
    refuse_not_finite(model.named_parameters(), source)
    return model.to(device).eval()


def open_with_head(
    source: str | Path,
    dtype: str = "float32",
    device: str = "cpu",
    trust_remote_code: bool = False,
    weights: str | None = None,
) -> tuple[Any, HeadTask]:
    """Open a checkpoint with its output layer, or without one if it was saved so; return it and its task.

    Raises UsageError for a dtype, a device or a way to hold ``weights`` that there is not, and what
    ``judge_configuration`` and ``load_weights`` raise.
    """
    where, precision = open_device(device, "device"), read_dtype(dtype)
    config = judge_configuration(source, trust_remote_code=trust_remote_code)
    task, _ = find_task(config)
    model = load_weights(
        choose_class(config), source, config, device=where, dtype=precision, weights=weights,
        trust_remote_code=trust_remote_code,
    )  # fmt: skip
    return model, task


def refuse_unknown_positions(raw: Mapping[str, Any], source: str | Path) -> None:
    """Raise CheckpointError for a position setting that transformers would ignore or that no formula here covers."""
    embedding_type = raw.get("position_embedding_type")
    if isinstance(embedding_type, str) and embedding_type.startswith("relative"):
        raise CheckpointError(
            f"{source} sets position_embedding_type = {embedding_type!r}; transformers 5 ignores that and would load "
            "the model as if its positions were absolute, so nothing measured would be true of it"
        )
    if raw.get("model_type") == "mpt" and (raw.get("attn_config") or {}).get("alibi") is False:
        raise CheckpointError(
            f"{source} sets attn_config.alibi = False; transformers ignores that and adds ALiBi all the same, while "
            "the learned table that the model was trained with is never read, so nothing measured would be true of it"
        )
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    known = {"default", *ROPE_INIT_FUNCTIONS}
    for key, value in _list_rope_types(raw):
        if value not in known:
            raise CheckpointError(
                f"{source} sets {key} = {value!r}; the rope types understood are {', '.join(sorted(known))}"
            )


def _list_rope_types(raw: Mapping[str, Any], prefix: str = "", *, inside: bool = False) -> Iterator[tuple[str, str]]:
    """Yield every rope type of a configuration with its key; a model may have one for each kind of layer or part.

    ``inside``: ``raw`` lies within the rope parameters of a model.
    """
    for key, value in raw.items():
        if not isinstance(value, dict) or key in ("vision_config", "audio_config"):
            continue  # nothing is measured in the parts of a model that read images or sound
        where, is_rope = f"{prefix}{key}", inside or key in ("rope_scaling", "rope_parameters")
        named = next((name for name in ("rope_type", "type") if isinstance(value.get(name), str)), None)
        if is_rope and named:
            yield f"{where}.{named}", value[named]
        yield from _list_rope_types(value, f"{where}.", inside=is_rope)


_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
"""A folder with one of these files has a tokenizer, so that failing to open it is a fault."""


def open_subject(
    source: str | Path,
    *,
    trust_remote_code: bool = False,
    device: str = "cpu",
    side: StackSide | None = None,
    tokenizer: Any = None,
) -> Subject:
    """Open a folder, or a name on the Hugging Face hub, for ``inspect``; of an encoder-decoder, one ``side``.

    ``tokenizer``: an opened one. The checkpoint's own is then not read; a run is opened whole, its tokenizer too.
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
    reason = ""
    if not tokenizer:
        try:
            tokenizer = open_tokenizer(source, trust_remote_code=trust_remote_code)
        except CheckpointError as fault:  # without one, text must be given as token ids
            if any((Path(source) / name).exists() for name in _TOKENIZER_FILES):
                raise
            reason = first_line(fault)
    subject = Subject.of(model, tokenizer, _name_model(source), side)
    subject.tokenizer_fault = reason
    return subject


def _open_run(source: str | Path, device: str, side: StackSide | None) -> Subject:
    """Open a run of this project, with the tokenizers and the training text of the side that is inspected."""
    from clockhands.data.splits import Made
    from clockhands.runs import open_run

    opened = open_run(source, device=device, dtype=torch.float32)
    subject = Subject.of(opened.model, opened.tokenizers.source, _name_model(source), side)
    if subject.reads_source:
        subject.tokenizer, subject.source_tokenizer = opened.tokenizers.target, opened.tokenizers.source
    corpus = _open_training_corpus(Path(source))
    if corpus is None:
        return subject
    if corpus.task == "language modelling" and not subject.reads_source:
        subject.training_texts = corpus.documents("train")
        return subject
    pairs = corpus["train"]  # each is made when it is asked for: most are not
    if subject.reads_source:
        subject.training_pairs = Made(
            lambda: range(len(pairs)), lambda place: (pairs[place].source, pairs[place].target)
        )
    else:
        subject.training_texts = Made(lambda: range(len(pairs)), lambda place: pairs[place].source)
    return subject


def _open_training_corpus(run: Path) -> Corpus | None:
    """Open the corpus that a run was trained on, by its recipe; None if that fails: the run is measured on other text.

    The corpus may not be on this machine, and a recipe may be edited, or older than an option. A data set of the hub is
    not opened: whoever inspects a run has not asked for the network.
    """
    from clockhands.data import corpus_options, open_corpus
    from clockhands.runs import Run

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


def _name_model(source: str | Path) -> str:
    """Return a name for the model: the source, or the last two parts of an absolute path."""
    path = Path(source)
    return "/".join(path.parts[-2:]) if path.is_absolute() else str(source)
