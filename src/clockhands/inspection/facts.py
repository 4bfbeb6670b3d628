"""The facts on top of a page of ``inspect``: the model, how position enters it, its size, the text and the versions."""

from __future__ import annotations

import torch

from clockhands import __version__
from clockhands.findings import join_words
from clockhands.inspection.reading.reading import Reading
from clockhands.models.subject import Subject

__all__ = ["list_facts"]


def list_facts(reading: Reading, as_stored: Subject, control: bool | None) -> dict[str, str | int]:
    """Return the lines on top of the page, by name.

    ``as_stored`` is the model as it was opened or given, before it was read in float32; ``control`` is what the caller
    asked for, which says why there is none, where there is none.
    """
    import transformers

    without_control = "the model is too large" if control is None else "not asked for"
    subject, capture = reading.subject, reading.capture
    heads = f"{reading.logit_splits[0].var_NH.shape[1]} heads, " if reading.logit_splits else ""
    size = f"{len(capture.hidden) - 1} layers, {heads}width {capture.hidden[0].shape[-1]}"
    parameters = sum(weight.numel() for weight in subject.model.parameters())
    facts: dict[str, str | int] = {
        "model": subject.label,
        "class": subject.class_name,
        "position": subject.mechanism_sentence,
        "size": f"{size}, {parameters:,} parameters",
        "attention": reading.influence.sentence,
        "text": reading.text_sentence,
        "control": "the same class with fresh weights" if reading.control else f"none ({without_control})",
        "versions": f"clockhands {__version__}, torch {torch.__version__}, transformers {transformers.__version__}",
    }
    if subject is not as_stored:
        facts["precision"] = f"float32; the weights are {join_words(_list_precisions(as_stored))}"
    return facts


def _list_precisions(subject: Subject) -> list[str]:
    """Return the floating-point types of the weights of a subject, the narrowest first; some models mix them."""
    weights = (weight for module in subject.list_modules().values() for weight in module.parameters())
    dtypes = {weight.dtype for weight in weights if weight.is_floating_point()}
    return [str(dtype).removeprefix("torch.") for dtype in sorted(dtypes, key=lambda d: (torch.finfo(d).bits, str(d)))]
