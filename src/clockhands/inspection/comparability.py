"""What findings depend on besides the model, so that only those are compared that depend on the same."""

from __future__ import annotations

import hashlib
from itertools import islice
from typing import Any

from clockhands.inspection.reading.reading import Reading

MOST_COMPARED = 1000
"""The texts, or the tokens of one long text, that are compared to tell whether two models were measured on the same."""


def read_basis(reading: Reading, texts: Any) -> dict[str, str]:
    """Return what the numbers of a reading depend on, by name, for ``Finding.basis``.

    ``texts`` are the strings or ids that the caller passed; None where the training text or built-in English was read.
    """
    subject, capture, influence = reading.subject, reading.capture, reading.influence
    if texts is None:
        texts = next(
            (known for known in (subject.training_pairs, subject.training_texts) if known is not None), "default"
        )
    if hasattr(texts, "tolist"):
        texts = texts.tolist()
    vocabulary: dict[str, int] = getattr(subject.tokenizer, "get_vocab", dict)()
    if subject.encoder_decoder is not None:
        task = f"the {subject.side} of an encoder-decoder"
    else:
        task = "language model" if influence.causal else "encoder"
    return {
        "text": _digest(texts if isinstance(texts, str) else list(islice(texts, MOST_COMPARED))),
        "tokenizer": _digest(sorted(vocabulary.items())) if vocabulary else "token ids",
        "length of the windows": str(capture.length),
        "what attention may see": influence.sentence,
        "task": task,
        "width": str(capture.hidden[0].shape[-1]),
    }


def _digest(value: Any) -> str:
    """Return a short hash of a value by its ``repr``."""
    return hashlib.sha256(repr(value).encode("utf8", "surrogatepass")).hexdigest()[:12]
