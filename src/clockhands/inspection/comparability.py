"""What findings depend on besides the model, so that only those are compared that depend on the same."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np

from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.reading.windows import Ids
from clockhands.models.subject import Subject
from clockhands.shapes import Tensor

MOST_COMPARED = 1000
"""The most texts, or tokens of one long text, by which it is told whether two models read the same text."""


def read_basis(reading: Reading, texts: Sequence[str] | Ids | None) -> dict[str, str]:
    """Return what the numbers of a reading depend on, by name, for ``Finding.basis``.

    ``texts`` are the strings or ids that the caller passed; None where the training text or built-in English was read.
    """
    subject, capture, influence = reading.subject, reading.capture, reading.influence
    vocabulary: dict[str, int] = getattr(subject.tokenizer, "get_vocab", dict)()
    if subject.encoder_decoder is not None:
        task = f"the {subject.side} of an encoder-decoder"
    else:
        task = "language model" if influence.causal else "encoder"
    return {
        "text": _digest(_list_texts(subject, texts)),
        "tokenizer": _digest(sorted(vocabulary.items())) if vocabulary else "token ids",
        "length of the windows": str(capture.length),
        "what attention may see": influence.sentence,
        "task": task,
        "width": str(capture.hidden[0].shape[-1]),
    }


def _list_texts(subject: Subject, texts: Sequence[str] | Ids | None) -> list[Any] | str:
    """Return the first of the caller's texts, else of the training text; ``default`` for built-in English."""
    if texts is None:
        known = [text for text in (subject.training_pairs, subject.training_texts) if text is not None]
        return list(islice(known[0], MOST_COMPARED)) if known else "default"
    return list(islice(texts.tolist() if isinstance(texts, Tensor | np.ndarray) else texts, MOST_COMPARED))


def _digest(value: object) -> str:
    """Return a short hash of a value by its ``repr``."""
    return hashlib.sha256(repr(value).encode("utf8", "surrogatepass")).hexdigest()[:12]
