"""The token ids of a text, and the special tokens that its tokenizer puts around it; what needs a tokenizer."""

from __future__ import annotations

from typing import Any

import torch

from clockhands.errors import UsageError
from clockhands.models.subject import Subject
from clockhands.shapes import Bool, Tensor


def check_tokenizer(subject: Subject, beginning: str, advice: str = "") -> None:
    """Raise UsageError for a subject without a tokenizer.

    The message starts with ``beginning``, what needs a tokenizer, such as "text needs", and ends with ``advice``.
    """
    if subject.tokenizer is None:
        reason = f" that can be opened ({subject.tokenizer_fault})" if subject.tokenizer_fault else ""
        raise UsageError(
            f"{beginning} a tokenizer, and this model came without one{reason}; give one (--tokenizer NAME, "
            f"tokenizer=...){advice}"
        )


def encode_bare(tokenizer: Any, text: str) -> list[int]:
    """Return token ids without special tokens; the tokenizer does not warn of a long text, which is cut later."""
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def find_special_tokens(tokenizer: Any, start: int | None = None) -> tuple[list[int], list[int]]:
    """Return the special tokens that the tokenizer puts before and after a text; with ``start``, those of a decoder.

    A decoder reads ``start`` first and no token after the text. A tokenizer that cuts a text into other tokens once it
    puts special ones around it counts as one without them.
    """
    sample = "the word and the number"
    inner, full = encode_bare(tokenizer, sample), list(tokenizer(sample)["input_ids"])
    before: list[int] = []
    after: list[int] = []
    for offset in range(len(full) - len(inner) + 1):
        if full[offset : offset + len(inner)] == inner:
            before, after = full[:offset], full[offset + len(inner) :]
            break
    if start is None:
        return before, after
    return ([start, *before] if before[:1] != [start] else before), []


def encode_text(subject: Subject, text: str) -> tuple[list[int], Bool[Tensor, " T"]]:
    """Return the token ids of a text with the special tokens around it, and which positions hold ordinary tokens."""
    before, after = find_special_tokens(subject.tokenizer, subject.start_token)
    bare = encode_bare(subject.tokenizer, text)
    flags = [False] * len(before) + [True] * len(bare) + [False] * len(after)
    return [*before, *bare, *after], torch.tensor(flags, dtype=torch.bool)
