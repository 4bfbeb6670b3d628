"""``inspect``: every measure on one model, from the input outwards, then cause."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clockhands import __version__
from clockhands.errors import CheckpointError, UsageError
from clockhands.findings import Finding, Findings
from clockhands.inspection.comparability import read_basis
from clockhands.inspection.measures import MEASURES
from clockhands.inspection.measures.layer_probes import MOST_TEXTS as CONTROL_TEXTS
from clockhands.inspection.measures.measure import Measure
from clockhands.inspection.opening import open_subject, open_tokenizer
from clockhands.inspection.progress import Progress, show_progress
from clockhands.inspection.reading.reading import Reading, read_model
from clockhands.inspection.reading.room import check_room
from clockhands.inspection.reading.windows import Ids, Windows, read_ids
from clockhands.inspection.subject.subject import Side, Subject
from clockhands.inspection.text_choice import choose_windows, describe_origin
from clockhands.pretrained import first_line
from clockhands.shapes import Tensor

TEXTS = 96
LARGE = 400_000_000
"""Parameters above which no untrained control is built unless asked: it takes as much memory again."""


def inspect(
    model: nn.Module | Subject | str | Path,
    tokenizer: Any = None,
    texts: Sequence[str] | Tensor | None = None,
    *,
    ids: Ids | str | Path | None = None,
    length: int | None = None,
    count: int = TEXTS,
    control: bool | None = None,
    name: str = "",
    side: Side | None = None,
    device: str | None = None,
    trust_remote_code: bool = False,
    progress: bool = False,
    command: str = "",
) -> Findings:
    """Measure what position does inside a Transformer: findings from the input outwards, then by intervention.

    ``model``: a model object of ``transformers`` or of this project, with its ``tokenizer``; or a folder or hub name.
    ``tokenizer``: an opened one, or the folder or hub name of one, for a model that came without or with a wrong one.
    A ``Subject`` brings its own ``tokenizer``, ``name`` and ``side``. ``device``: where a folder or hub name is opened
    (default: the CPU); a model object is measured where it is.
    ``texts``: strings, which are joined and cut into at most ``count`` windows of ``length`` tokens (default: 128, or
    what the model can read); default: the built-in English text. ``ids``: token ids instead of texts, as a tensor, a
    numpy array or the path of a ``.npy`` file: [texts, tokens], used as they are or their first ``length`` tokens, or
    [tokens], one long text that is cut into windows. ``control``: also measure the same class with fresh weights, the
    reference "untrained" of most measures (default: unless the model is very large). ``side``: which stack of an
    encoder-decoder (default: the encoder); a decoder reads its windows beside what they translate where a run knows
    that, else beside the same text. ``command``: the command line that measures this again, for the page.

    Raises CheckpointError where a model or tokenizer cannot be opened or is not understood, DataError for too little
    text or ids that are no token ids of this model, UsageError for windows longer than the model, a side that it has
    not, or an option that an opened model settles.
    """
    if ids is not None and texts is not None:
        raise UsageError(
            "inspect was given both texts and ids (--text and --ids): give one, for it measures on one text"
        )
    if ids is not None:
        texts = read_ids(ids) if isinstance(ids, str | Path) else ids  # type: ignore[assignment]
    with _evaluating(model), show_progress(progress) as steps, torch.no_grad():
        opened = _open(model, tokenizer, name, device, trust_remote_code, side)
        subject = opened.to_float32()
        data = choose_windows(subject, texts, length, count)
        subject.check_ids(data.ids_NT)
        check_room(subject, data)
        reading = _read(subject, data, _is_controlled(subject, control), steps)
        reading.texts = texts if ids is None and not isinstance(texts, Tensor) else None
        items = _measure(reading, steps, command, read_basis(reading, texts))
        facts = _facts(reading, describe_origin(subject, data, texts is None))
        if subject is not opened:
            stored = str(next(opened.model.parameters()).dtype).removeprefix("torch.")
            facts["precision"] = f"float32; the weights are {stored}"
    return Findings(
        title=f"What position does inside {subject.label}",
        items=items,
        facts=facts,
        signature=f"inspect|texts:{reading.capture.num_texts}x{reading.capture.length}|v:{__version__}",
        command=command,
    )


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Inside, nothing of a model is dropped out; afterwards every module of it trains or not, as the caller left it."""
    names = ("model", "whole", "language_model", "transformer")
    roots = [getattr(model, name, None) for name in names] if isinstance(model, Subject) else [model]
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
    model: Any, tokenizer: Any, name: str, device: str | None, trust_remote_code: bool, side: Side | None
) -> Subject:
    """Take a model in whatever form it was given. Raises UsageError for what an opened model has already."""
    if isinstance(tokenizer, str | Path):
        tokenizer = open_tokenizer(tokenizer, trust_remote_code=trust_remote_code)
    if isinstance(model, Subject):
        _refuse("Subject", side=side, tokenizer=tokenizer, name=name or None, device=device)
        return model
    if isinstance(model, str | Path):
        subject = open_subject(
            model, trust_remote_code=trust_remote_code, device=device or "cpu", side=side, tokenizer=tokenizer
        )
        subject.name = name or subject.name
        return subject
    if not isinstance(model, nn.Module):
        raise UsageError(f"inspect takes a model, a folder or a hub name, not {type(model).__name__}")
    _refuse("model", device=device)
    return Subject.of(model, tokenizer, name, side)


def _refuse(what: str, **options: Any) -> None:
    """Raise UsageError for what an opened model has already: it would be ignored, or change the caller's model."""
    advice = {
        "side": "choose it with Subject.of(model, side=...)",
        "device": "it is measured where it is, so move it before",
    }
    for option, value in options.items():
        if value is not None:
            instead = advice.get(option, f"set subject.{option}")
            shown = repr(value) if isinstance(value, str) else f"a {type(value).__name__}"
            raise UsageError(
                f"inspect was given {option} = {shown} with an opened {what}, which has its own; {instead}"
            )


def _is_controlled(subject: Subject, control: bool | None) -> bool:
    """Whether the same class with fresh weights is measured too: as it was asked, by default unless it is large."""
    return sum(weight.numel() for weight in subject.model.parameters()) < LARGE if control is None else control


def _read(subject: Subject, data: Windows, control: bool, steps: Progress) -> Reading:
    """Run the model over the text, and its untrained control. Raises CheckpointError where that cannot be built."""
    reading = read_model(subject, data, steps.expect, steps)
    if not control:
        return reading
    try:
        untrained = subject.build_untrained()
    except Exception as fault:  # foreign code, run in a way that it may not have been written for
        raise CheckpointError(
            f"a {subject.class_name} with fresh weights, the reference of most measures, cannot be built "
            f"({type(fault).__name__}: {first_line(fault)}); leave it out with --no-control (control=False)"
        ) from fault
    reading.control = read_model(untrained, data.first(CONTROL_TEXTS), steps.expect, steps)
    return reading


def _measure(reading: Reading, steps: Progress, command: str, basis: Mapping[str, str]) -> tuple[Finding, ...]:
    """Ask every measure, in the order of the catalogue."""
    steps.expect(len(MEASURES))
    for measure in MEASURES.values():
        for finding in measure.answer(reading):
            reading.findings[finding.name] = _place(finding, measure, command, basis)
        steps(measure.question)
    return tuple(reading.findings.values())


def _place(finding: Finding, measure: Measure, command: str, basis: Mapping[str, str]) -> Finding:
    """Return the finding under its heading, with the command that makes it again and what it rests on."""
    details = {**finding.details, "group": measure.group}
    return replace(finding, command=command, details=details, basis={key: basis[key] for key in measure.rests_on})


def _facts(reading: Reading, origin: str) -> dict[str, str | int]:
    """Return the lines on top of the page."""
    import transformers

    subject, capture = reading.subject, reading.capture
    heads = f"{len(capture.layers)} layers, {reading.splits[0].var_NH.shape[1]} heads, " if reading.splits else ""
    parameters = sum(weight.numel() for weight in subject.model.parameters())
    return {
        "model": subject.label,
        "class": subject.class_name,
        "position": subject.mechanism_sentence,
        "size": f"{heads}width {capture.hidden[0].shape[-1]}, {parameters:,} parameters",
        "attention": reading.influence.sentence,
        "text": f"{capture.num_texts} windows of {capture.length} tokens" + origin,
        "control": "the same class with fresh weights" if reading.control else "none (too large, or not asked for)",
        "versions": f"clockhands {__version__}, torch {torch.__version__}, transformers {transformers.__version__}",
    }
