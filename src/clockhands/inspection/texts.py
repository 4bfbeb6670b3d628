"""Windows of text of one length, so that every position is seen equally often.

Texts are joined and cut, and every window gets the special tokens of its tokenizer at the same places: means over texts
at one position are then means over equal positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from clockhands.errors import DataError, UsageError
from clockhands.shapes import Bool, Int, Tensor

FEWEST_WINDOWS = 8
SHORTEST = 4


@dataclass(frozen=True)
class Windows:
    """Token ids, N windows of T, and which of the T places hold ordinary tokens."""

    ids_NT: Int[Tensor, "N T"]
    ordinary_T: Bool[Tensor, " T"]


def windows(
    tokenizer: Any, texts: Sequence[str] | Tensor, *, length: int, count: int, longest: int | None = None
) -> Windows:
    """Cut ``texts`` into at most ``count`` windows of at most ``length`` tokens; token ids are taken as they are.

    Short text gives shorter windows, so that there are always a few. Raises DataError if there is too little text,
    UsageError if ``length`` is beyond what the model can read.
    """
    if isinstance(texts, Tensor):
        return _given(texts, count, longest)
    if longest is not None and length > longest:
        raise UsageError(f"windows of {length} tokens do not fit this model, which reads at most {longest}")
    if tokenizer is None:
        raise UsageError("this model came without a tokenizer; give one, or give the texts as token ids (N × T)")
    before, after = _frame(tokenizer)
    widest = length - len(before) - len(after)
    stream: list[int] = []
    for text in texts:
        stream += _bare(tokenizer, text)
        if len(stream) >= count * widest:
            break
    room = min(widest, len(stream) // FEWEST_WINDOWS)
    if room < SHORTEST:
        raise DataError(
            f"the text has {len(stream)} tokens; {FEWEST_WINDOWS * SHORTEST} are the least with which anything can "
            "be measured, and some ten thousand are better"
        )
    total = min(count, len(stream) // room)
    rows = [[*before, *stream[start * room : (start + 1) * room], *after] for start in range(total)]
    ordinary = [False] * len(before) + [True] * room + [False] * len(after)
    return Windows(torch.tensor(rows), torch.tensor(ordinary))


def _given(ids_NT: Tensor, count: int, longest: int | None) -> Windows:
    if ids_NT.ndim != 2 or ids_NT.dtype != torch.long or ids_NT.shape[1] < SHORTEST or len(ids_NT) < 2:
        raise DataError(
            f"token ids must be a long tensor of at least 2 texts × {SHORTEST} tokens; this one is {ids_NT.dtype} of "
            f"shape {tuple(ids_NT.shape)}"
        )
    if longest is not None and ids_NT.shape[1] > longest:
        raise UsageError(f"texts of {ids_NT.shape[1]} tokens do not fit this model, which reads at most {longest}")
    return Windows(ids_NT[:count], torch.ones(ids_NT.shape[1], dtype=torch.bool))


def _bare(tokenizer: Any, text: str) -> list[int]:
    """Token ids without special tokens; a text longer than the model is no fault here, for it is cut afterwards."""
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def _frame(tokenizer: Any) -> tuple[list[int], list[int]]:
    """The special tokens that the tokenizer puts before and after a text."""
    sample = "the word and the number"
    bare, full = _bare(tokenizer, sample), list(tokenizer(sample)["input_ids"])
    for start in range(len(full) - len(bare) + 1):
        if full[start : start + len(bare)] == bare:
            return full[:start], full[start + len(bare) :]
    return [], []
