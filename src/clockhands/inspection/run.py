"""``inspect``: run every measure on one model, in the order of the catalogue."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

from clockhands import __version__
from clockhands.devices import require_memory
from clockhands.errors import CheckpointError, UsageError
from clockhands.findings import Findings, join_words
from clockhands.inspection.measures import MEASURES
from clockhands.inspection.measures.measure import Measure
from clockhands.inspection.measures.rotation import RotationFrequencies
from clockhands.inspection.measures.survival import MOST_TEXTS as CONTROL_TEXTS
from clockhands.inspection.reading.capture import BATCH
from clockhands.inspection.reading.head_statistics import TEXT_GROUPS
from clockhands.inspection.reading.reading import Reading, read_model
from clockhands.inspection.reading.sentences import check_sentence_lengths, encode_sentences
from clockhands.inspection.reading.windows import Ids, Windows, check_counts, choose_windows, describe_origin, read_ids
from clockhands.model.position_config import StackSide
from clockhands.models.door import open_subject, open_tokenizer
from clockhands.models.subject import Subject
from clockhands.pretrained import first_line
from clockhands.progress import CountProgress, ProgressCounter, ignore_count
from clockhands.shapes import Tensor

ModelSource: TypeAlias = nn.Module | Subject | str | Path
"""What ``inspect`` measures: a model, a subject, or the folder or hub name of a checkpoint."""
DEFAULT_COUNT = 96
"""Windows of text that are read, unless ``count`` says another number."""
MOST_PARAMETERS = 400_000_000
"""Parameters of a model from which on no untrained control is built by default: it takes as much memory again."""


def inspect(
    model: ModelSource,
    tokenizer: Callable[..., Any] | str | Path | None = None,
    texts: str | Sequence[str] | Tensor | None = None,
    *,
    ids: Ids | str | Path | None = None,
    length: int | None = None,
    count: int = DEFAULT_COUNT,
    sentences: Sequence[str] = (),
    control: bool | None = None,
    name: str = "",
    side: StackSide | None = None,
    device: str | None = None,
    trust_remote_code: bool = False,
    progress: bool = False,
    command: str = "",
) -> Findings:
    """Measure what position does inside a Transformer.

    Args:
        model: a model of ``transformers`` or of this project, a ``Subject``, a folder, or a hub name.
        tokenizer: an opened one, or its folder or hub name, in place of the model's own.
        texts: strings, joined and cut into windows (default: the training text of a run, else English); or token ids.
        ids: token ids in place of texts: a tensor, an array or the path of a ``.npy`` file. [texts, tokens] are used as
            they are, or their first ``length`` tokens; [tokens] is one long text, which is cut into windows.
        length: tokens in a window (default: 128, or as many as the model, or nine of ten texts of a run, have).
        count: the most windows.
        sentences: shown one by one: their attention, the terms of its logits, and what swapping two words changes.
        control: also measure the same class with fresh weights, "untrained" (default: below 400 million parameters).
        name: what to call the model on the page.
        side: which stack of an encoder-decoder (default: the encoder). A decoder reads its run's sources, or the text.
        device: where a folder or hub name is opened (default: the CPU); an opened model is measured where it is.
        trust_remote_code: run code that a checkpoint brings.
        progress: tell on standard error how much is done.
        command: the command line that repeats the measurement, for the page.

    Raises:
        CheckpointError: a model or tokenizer that cannot be opened or is not understood; a model without attention,
            with NaN or infinite states, or whose untrained control cannot be built.
        DataError: too little text, or ids that are no token ids of this model.
        UsageError: a sentence that is empty, has one token or more than the model reads; fewer than 3 windows, or
            windows of fewer than 4 tokens, longer than the model reads, or too large for memory or disk; text without a
            tokenizer; a side that there is not; an argument that an opened model brings; both texts and ids.
    """
    check_counts(length, count)
    texts = [texts] if isinstance(texts, str) else texts
    if ids is not None and texts is not None:
        raise UsageError("inspect was given both texts (--text) and ids (--ids), and measures on one: leave one out")
    ids = read_ids(ids) if isinstance(ids, str | Path) else ids
    given_text = texts if ids is None else ids
    shown = ProgressCounter() if progress else nullcontext(ignore_count)
    with _use_evaluation_mode(model), shown as counter, torch.no_grad():
        as_stored = _open(model, tokenizer, name, device, trust_remote_code, side)
        subject = as_stored.to_float32()
        sentences_read = encode_sentences(subject, sentences)
        windows = choose_windows(subject, given_text, length, count)
        check_sentence_lengths(sentences_read, windows)
        subject.check_ids(windows.ids_NT)
        check_memory(subject, windows)
        reading = read_model(subject, windows, counter)
        reading.control = _read_control(subject, windows, control, counter)
        reading.sentences, reading.texts = sentences_read, None if isinstance(texts, Tensor) else texts
        reading.origin = describe_origin(subject, windows, given_text is None)
        for measure, basis in _list_measures(reading, given_text, counter):
            for finding in measure.answer(reading):
                details = {**finding.details, "group": measure.heading}
                reading.findings[finding.name] = replace(finding, command=command, details=details, basis=basis)
    return Findings(
        title=f"What position does inside {subject.label}",
        items=tuple(reading.findings.values()),
        facts=_list_facts(reading, as_stored, control),
        signature=f"inspect|texts:{reading.capture.num_texts}x{reading.capture.length}|v:{__version__}",
        command=command,
        opening=("logits.layers", "heads.positional", "survival", "loudness"),
    )


@contextmanager
def _use_evaluation_mode(model: ModelSource) -> Iterator[None]:
    """Inside the block, the modules of a model are in evaluation mode; afterwards each is in the mode it had before."""
    roots = model.list_modules().values() if isinstance(model, Subject) else [model]
    modules = {module for root in roots if isinstance(root, nn.Module) for module in root.modules()}
    before = {module: module.training for module in modules}
    try:
        for module in modules:
            module.training = False
        yield
    finally:
        for module, training in before.items():
            module.training = training


def _open(
    model: ModelSource, tokenizer: Any, name: str, device: str | None, trust_remote_code: bool, side: StackSide | None
) -> Subject:
    """Return a subject, whatever form the model has. Raises UsageError for arguments that an opened model brings."""
    if isinstance(tokenizer, str | Path):
        tokenizer = open_tokenizer(tokenizer, trust_remote_code=trust_remote_code)
    if isinstance(model, str | Path):
        subject = open_subject(
            model, trust_remote_code=trust_remote_code, device=device or "cpu", side=side, tokenizer=tokenizer
        )
        subject.name = name or subject.name
        return subject
    if not isinstance(model, Subject | nn.Module):
        raise UsageError(f"inspect takes a model, a folder or a hub name, not {type(model).__name__}")
    # Options that an opened model brings would be ignored, or change the caller's model.
    is_subject = isinstance(model, Subject)
    brought: dict[str, Any] = {"side": side, "tokenizer": tokenizer, "name": name or None} if is_subject else {}
    advice = {
        "side": "choose it with Subject.of(model, side=...)",
        "device": "it is measured where it is, so move it before",
    }
    for option, value in (brought | {"device": device}).items():
        if value is not None:
            shown = repr(value) if isinstance(value, str) else f"a {type(value).__name__}"
            raise UsageError(
                f"inspect was given {option} = {shown} with an opened {'Subject' if is_subject else 'model'}, which "
                f"has its own; {advice.get(option, f'set subject.{option}')}"
            )
    return model if isinstance(model, Subject) else Subject.of(model, tokenizer, name, side)


def _read_control(subject: Subject, windows: Windows, control: bool | None, counter: CountProgress) -> Reading | None:
    """Return the same class with fresh weights, read on the first windows; None where it is not wanted.

    They are as many as probes are fitted and judged on: more would change no probe. Raises CheckpointError where such a
    model cannot be built.
    """
    is_small = sum(weight.numel() for weight in subject.model.parameters()) < MOST_PARAMETERS
    if not (is_small if control is None else control):
        return None
    try:
        untrained = subject.build_untrained()
    except Exception as fault:  # foreign code, run in a way that it may not have been written for
        raise CheckpointError(
            f'a {subject.class_name} with fresh weights, the reference "untrained", cannot be built '
            f"({type(fault).__name__}: {first_line(fault)}); leave it out with --no-control (control=False)"
        ) from fault
    return read_model(untrained, windows.take_first(CONTROL_TEXTS), counter)


def _list_measures(
    reading: Reading, texts: Sequence[str] | Ids | None, counter: CountProgress
) -> Iterator[tuple[Measure, dict[str, str]]]:
    """Yield every measure, with what its numbers depend on."""
    basis = _read_basis(reading, texts)
    for number, measure in enumerate(MEASURES.values()):
        counter("measuring", number, len(MEASURES))
        yield measure, {key: basis[key] for key in measure.rests_on}


MOST_COMPARED = 1000
"""The most texts, or tokens of one long text, by which it is told whether two models read the same text."""


def _read_basis(reading: Reading, texts: Sequence[str] | Ids | None) -> dict[str, str]:
    """Return what the numbers of a reading depend on, by name, for ``Finding.basis``.

    ``texts`` are the strings or ids that the caller passed; None where the training text or built-in English was read.
    """
    subject, capture, influence = reading.subject, reading.capture, reading.influence
    if texts is None:
        own = [known for known in (subject.training_pairs, subject.training_texts) if known is not None]
        first: Any = list(islice(own[0], MOST_COMPARED)) if own else "default"
    else:
        first = list(islice(texts.tolist() if isinstance(texts, Tensor | np.ndarray) else texts, MOST_COMPARED))
    vocabulary: dict[str, int] = getattr(subject.tokenizer, "get_vocab", dict)()
    if subject.encoder_decoder is not None:
        task = f"the {subject.side} of an encoder-decoder"
    else:
        task = "language model" if reading.reads_left_to_right else "encoder"
    return {
        "text": _digest(first),
        "tokenizer": _digest(sorted(vocabulary.items())) if vocabulary else "token ids",
        "length of the windows": str(capture.length),
        "what attention may see": influence.sentence,
        "task": task,
        "width": str(capture.hidden[0].shape[-1]),
    }


def _digest(value: object) -> str:
    """Return a short hash of a value by its ``repr``."""
    return hashlib.sha256(repr(value).encode("utf8", "surrogatepass")).hexdigest()[:12]


def _list_facts(reading: Reading, as_stored: Subject, control: bool | None) -> dict[str, str | int]:
    """Return the lines on top of the page, by name.

    ``as_stored`` is the model as it was opened or given, before it was read in float32; ``control`` is what the caller
    asked for, which says why there is none, where there is none.
    """
    import transformers

    without_control = "the model is too large" if control is None else "not asked for"
    subject, capture = reading.subject, reading.capture
    counts = {"layer": len(capture.hidden) - 1}
    if reading.logit_splits:
        counts["head"] = reading.logit_splits[0].var_NH.shape[1]
    size = ", ".join(f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items())
    size += f", width {capture.hidden[0].shape[-1]}"
    output = "with" if {"transformer", "language_model"} & subject.list_modules().keys() else "without"
    rotation = reading.findings.get(RotationFrequencies.name)
    still = str(rotation.details.get("layers without rotation", "")) if rotation else ""
    note = f" Not so in layer{'s' if ' and ' in still else ''} {still}: nothing is rotated there." if still else ""
    facts: dict[str, str | int] = {
        "model": subject.label,
        "class": subject.class_name,
        "position": subject.mechanism_sentence + note,
        "size": f"{size}, {subject.count_parameters():,} parameters {output} the output layer",
        "attention": reading.influence.sentence,
        "text": reading.text_sentence,
        "control": "the same class with fresh weights" if reading.control else f"none ({without_control})",
        "versions": f"clockhands {__version__}, torch {torch.__version__}, transformers {transformers.__version__}",
    }
    if subject is not as_stored:
        weights = (weight for module in as_stored.list_modules().values() for weight in module.parameters())
        dtypes = {weight.dtype for weight in weights if weight.is_floating_point()}  # some models mix them
        dtypes_sorted = sorted(dtypes, key=lambda dtype: (torch.finfo(dtype).bits, str(dtype)))
        names = join_words(str(dtype).removeprefix("torch.") for dtype in dtypes_sorted)
        facts["precision"] = f"float32; the weights are {names}"
    return facts


COPIES = 3
"""Numbers kept for each pair of tokens, in every text of a batch and every head: product, logit and weight."""


def count_bytes(heads: int, windows: Windows) -> tuple[int, int]:
    """Return the fewest bytes that one layer of ``heads`` heads needs: where the model computes, and on the CPU.

    Counted are ``COPIES`` numbers for each pair of tokens in one batch and, in float64, the sums of attention over
    texts; not what is computed in between, so that nothing is refused that would have fitted.
    """
    texts, length = windows.ids_NT.shape
    pairs = heads * length**2
    return 4 * COPIES * min(BATCH, texts) * pairs, 8 * TEXT_GROUPS * pairs


def check_memory(subject: Subject, windows: Windows) -> None:
    """Raise UsageError if the attention of one layer over these windows does not fit the memory."""
    device, cpu = subject.device, torch.device("cpu")
    where_computed, on_cpu = count_bytes(subject.num_heads, windows)
    needs = {cpu: where_computed + on_cpu} if device.type == "cpu" else {device: where_computed, cpu: on_cpu}
    for where, needed in needs.items():
        what = f"{len(windows.ids_NT):,} windows of {windows.ids_NT.shape[1]:,} tokens"
        require_memory(needed, f"the attention of a layer on {what} needs", "lower --length (length=...)", where)
