"""What training showed of the order of tokens, so that a page can say which sentence is unlike all of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["LEAST_MEETINGS", "MOST_TOKENS", "describe_order"]

MOST_TOKENS = 512
"""The longest list of tokens whose pairs stand in a page: two tables of as many rows and columns, a bit each."""
LEAST_MEETINGS = 20.0
"""Two tokens that would by chance be together in fewer texts count as seen: that they never met tells nothing."""


def describe_order(texts: Sequence[Sequence[int]], vocabulary: int, least: float = LEAST_MEETINGS) -> dict[str, Any]:
    """Describe texts, given as token ids without special tokens, as `TrainedOrder` of the page's script reads it.

    ``next`` tells which token stood right behind which, its last row the beginning of a text and its last column the
    end; ``before`` which token stood anywhere before which. Both are bits in hexadecimal digits, row after row.
    """
    edge = vocabulary
    next_VV = np.zeros((vocabulary + 1, vocabulary + 1), bool)
    before_VV = np.zeros((vocabulary, vocabulary), bool)
    for ids in {tuple(text) for text in texts if len(text)}:
        whole = np.array(ids)
        next_VV[[edge, *ids], [*ids, edge]] = True
        firsts, seconds = np.triu_indices(len(ids), 1)
        before_VV[whole[firsts], whole[seconds]] = True
    texts_V = np.zeros(vocabulary)
    for text in texts:
        texts_V[list(set(text))] += 1
    met_VV = np.outer(texts_V, texts_V) / max(len(texts), 1)
    rare_VV = (met_VV > 0) & (met_VV < least)
    next_VV[:edge, :edge] |= rare_VV
    before_VV |= rare_VV
    lengths = [len(text) for text in texts if len(text)]
    return {
        "shortest": min(lengths, default=0),
        "longest": max(lengths, default=0),
        "next": _write_bits(next_VV),
        "before": _write_bits(before_VV),
    }


def _write_bits(table: NDArray[np.bool_]) -> str:
    """Return bits in hexadecimal digits, the first bit of each digit its highest."""
    return np.packbits(table).tobytes().hex()
