"""What findings rest on besides the model, so that only those are compared that rest on the same."""

from __future__ import annotations

import hashlib
from itertools import islice
from typing import Any

from clockhands.inspection.reading.reading import Reading

MOST_COMPARED = 1000
"""Texts that are looked at to tell whether two models read the same."""


def read_basis(reading: Reading, texts: Any) -> dict[str, str]:
    """Return what the numbers of a reading rest on, by name: two models are comparable where that is alike.

    ``texts`` are the strings or ids that a caller gave; None for those that the model brings or for built-in English.
    """
    subject, capture, influence = reading.subject, reading.capture, reading.influence
    read = texts
    if texts is None:
        read = subject.pairs if subject.pairs is not None else subject.texts if subject.texts is not None else "default"
    if hasattr(read, "tolist"):
        read = read.tolist()
    vocabulary: dict[str, int] = getattr(subject.tokenizer, "get_vocab", dict)()
    whole = f"the {subject.side} of an encoder-decoder"
    return {
        "text": _digest(read if isinstance(read, str) else list(islice(read, MOST_COMPARED))),
        "tokenizer": _digest(sorted(vocabulary.items())) if vocabulary else "token ids",
        "length of the windows": str(capture.length),
        "what attention may see": influence.sentence,
        "task": whole if subject.whole is not None else "language model" if influence.causal else "encoder",
        "width": str(capture.hidden[0].shape[-1]),
    }


def _digest(value: Any) -> str:
    return hashlib.sha256(repr(value).encode("utf8", "surrogatepass")).hexdigest()[:12]
