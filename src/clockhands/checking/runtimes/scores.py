"""From logits to the scores of a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def read_scores(text: Sequence[int], logits_SV: Any) -> list[float]:
    """Return the log-probability of every token but the first, from the logits after each token."""
    if len(text) < 2:
        return []
    logs = log_softmax(logits_SV[: len(text) - 1])
    return np.take_along_axis(logs, np.array(text[1:])[:, None], 1)[:, 0].tolist()


def log_softmax(logits: Any) -> Any:
    """Return log-probabilities along the last axis."""
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
