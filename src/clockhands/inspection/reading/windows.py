"""Windows of text of one length, so that every position is seen equally often.

Texts are joined and cut, and every window gets the special tokens of its tokenizer at the same places: means over texts
at one position are then means over equal positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from clockhands.errors import DataError, UsageError
from clockhands.shapes import Bool, Int, Tensor

FEWEST_WINDOWS = 8
SHORTEST = 4
USUAL = 128
"""Tokens in a window where nobody asks for another length."""

Ids: TypeAlias = Tensor | NDArray[Any]
"""Token ids as they are given: [texts, tokens], or [tokens] for one long text."""


@dataclass(frozen=True)
class Windows:
    """Token ids, N windows of T, and which of the T places hold ordinary tokens.

    ``source_NS`` is what an encoder reads while a decoder reads the windows, -1 where nothing stands.
    """

    ids_NT: Int[Tensor, "N T"]
    ordinary_T: Bool[Tensor, " T"]
    source_NS: Int[Tensor, "N S"] | None = None

    def first(self, count: int) -> Windows:
        """The first windows."""
        return Windows(self.ids_NT[:count], self.ordinary_T, None if self.source_NS is None else self.source_NS[:count])


def cut_windows(
    tokenizer: Any,
    texts: Sequence[str] | Tensor,
    *,
    length: int,
    count: int,
    max_length: int | None = None,
    start: int | None = None,
) -> Windows:
    """Cut ``texts`` into at most ``count`` windows of at most ``length`` tokens; of token ids the first of each text.

    ``start`` is the token that a decoder is given first; no end is written then. Short text gives shorter windows, so
    that there are always a few. Raises DataError if there is too little text, UsageError if ``length`` is beyond what
    the model can read.
    """
    if isinstance(texts, Tensor):
        return cut_ids(texts, count=count, max_length=max_length, length=min(length, texts.shape[-1]))
    _check(tokenizer, length, max_length)
    before, after = find_special_tokens(tokenizer, start)
    widest = length - len(before) - len(after)
    stream: list[int] = []
    for text in texts:
        stream += encode_bare(tokenizer, text)
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


def _check(tokenizer: Any, length: int, max_length: int | None) -> None:
    if max_length is not None and length > max_length:
        raise UsageError(f"windows of {length} tokens do not fit this model, which reads at most {max_length}")
    if tokenizer is None:
        raise UsageError(
            "this model came without a tokenizer; give one (--tokenizer NAME, tokenizer=...), or the text as token ids "
            "(--ids FILE.npy, ids=...)"
        )


def cut_pair_windows(
    tokenizer: Any,
    source_tokenizer: Any,
    pairs: Iterable[tuple[str, str]],
    *,
    length: int,
    count: int,
    max_length: int | None = None,
    max_source_length: int | None = None,
    start: int | None = None,
) -> Windows:
    """Windows of translations, each with what it translates: as many whole pairs as fill it, the last one cut.

    What they translate is cut to ``max_source_length`` tokens, if the reader has an end. Errors as ``windows``.
    """
    _check(tokenizer, length, max_length)
    before, after = find_special_tokens(tokenizer, start)
    opening, closing = find_special_tokens(source_tokenizer)
    room = length - len(before) - len(after)
    source_room = None if max_source_length is None else max_source_length - len(opening) - len(closing)
    rows: list[list[int]] = []
    sources: list[list[int]] = []
    written: list[int] = []
    read: list[int] = []
    for source, target in pairs:
        written += encode_bare(tokenizer, target)
        read += encode_bare(source_tokenizer, source)
        if len(written) >= room:
            rows.append([*before, *written[:room], *after])
            sources.append([*opening, *read[:source_room], *closing])
            written, read = [], []
        if len(rows) == count:
            break
    if len(rows) < FEWEST_WINDOWS:
        raise DataError(
            f"the text fills {len(rows)} windows of {length} tokens; {FEWEST_WINDOWS} are the least with which "
            "anything can be measured; give more text or a smaller --length"
        )
    widest = max(map(len, sources))
    filled = [row + [-1] * (widest - len(row)) for row in sources]
    ordinary = [False] * len(before) + [True] * room + [False] * len(after)
    return Windows(torch.tensor(rows), torch.tensor(ordinary), torch.tensor(filled))


def select_one_length(rows: Sequence[Sequence[int]], most: int, enough: int | None = None) -> Windows:
    """Return at most ``most`` token sequences of one length, N × T; the end token of each does not count as ordinary.

    The length is the greatest of which there are ``enough`` sequences; without that, the most frequent one.
    """
    by_length: dict[int, list[Sequence[int]]] = {}
    for row in rows:
        by_length.setdefault(len(row), []).append(row)
    plenty = [length for length, alike in by_length.items() if enough is not None and len(alike) >= enough]
    chosen = max(plenty) if plenty else max(by_length, key=lambda length: (len(by_length[length]), length))
    ordinary_T = torch.ones(chosen, dtype=torch.bool)
    ordinary_T[-1] = False
    return Windows(torch.tensor(by_length[chosen][:most]), ordinary_T)


def read_ids(path: str | Path) -> Ids:
    """Open a ``.npy`` file of token ids; nothing of it is read into memory yet, and nothing pickled is opened.

    Raises DataError for a missing file, one that numpy did not write, and one of fewer than 8 texts.
    """
    file = Path(path)
    if not file.is_file():
        raise DataError(f"there is no file {path}; token ids are read from a file that numpy.save wrote")
    try:
        found = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, SyntaxError, MemoryError, OverflowError) as fault:
        raise DataError(
            f"{path} is not a .npy file of numbers (write it with numpy.save, from an array of integers): "
            f"{str(fault).splitlines()[0]}"
        ) from fault
    if not isinstance(found, np.ndarray):
        raise DataError(f"{path} holds several arrays (.npz); save the token ids alone with numpy.save")
    if found.ndim == 2 and len(found) < FEWEST_WINDOWS:
        raise DataError(
            f"{path} has {len(found)} texts; at least {FEWEST_WINDOWS} are needed to tell position from chance"
        )
    return found


def cut_ids(ids: Ids, *, count: int, max_length: int | None, length: int | None = None) -> Windows:
    """Windows of token ids: the first ``length`` tokens of each text, or one long text cut into windows.

    Raises DataError for ids that are not integers of shape [texts, tokens] or [tokens], or too few; UsageError for
    windows longer than the texts or than the model reads.
    """
    array = ids.detach().cpu().numpy() if isinstance(ids, Tensor) else ids
    if not np.issubdtype(array.dtype, np.integer) or array.ndim not in (1, 2):
        raise DataError(
            "token ids must be integers of shape [texts, tokens], or [tokens] for one long text; these are "
            f"{array.dtype} of shape {list(array.shape)}"
        )
    if array.ndim == 1:
        array, length = _cut(array, length or min(max_length or USUAL, USUAL)), None
    if length is not None and length > array.shape[1]:
        raise UsageError(f"windows of {length} tokens were asked for, but the texts of ids have {array.shape[1]} each")
    array = array[:count, :length]
    if len(array) < 2 or array.shape[1] < SHORTEST:
        raise DataError(
            f"token ids must be at least 2 texts of {SHORTEST} tokens; these are {len(array)} of {array.shape[1]}"
        )
    if max_length is not None and array.shape[1] > max_length:
        raise UsageError(
            f"texts of {array.shape[1]} tokens do not fit this model, which reads at most {max_length}; "
            "give a smaller --length (length=...)"
        )
    if array.min() < 0 or array.max() > np.iinfo(np.int64).max:
        raise DataError(f"token ids must be 0 or more; these go from {array.min()} to {array.max()}")
    # A copy: what numpy maps from a file may be read-only, and of the other byte order.
    return Windows(torch.from_numpy(array.astype(np.int64)), torch.ones(array.shape[1], dtype=torch.bool))


def _cut(stream: NDArray[Any], length: int) -> NDArray[Any]:
    """One long text as windows; a short one gives shorter windows, so that there are always a few."""
    room = min(length, len(stream) // FEWEST_WINDOWS)
    if room < SHORTEST:
        raise DataError(
            f"the text of ids has {len(stream)} tokens; {FEWEST_WINDOWS * SHORTEST} are the least with which anything "
            "can be measured, and some ten thousand are better"
        )
    return stream[: len(stream) // room * room].reshape(-1, room)


def encode_bare(tokenizer: Any, text: str) -> list[int]:
    """Token ids without special tokens; a text longer than the model is no fault here, for it is cut afterwards."""
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def find_special_tokens(tokenizer: Any, start: int | None = None) -> tuple[list[int], list[int]]:
    """The special tokens that the tokenizer puts before and after a text; of a decoder, what it is given before."""
    sample = "the word and the number"
    inner, full = encode_bare(tokenizer, sample), list(tokenizer(sample)["input_ids"])
    before: list[int] = []
    after: list[int] = []
    for place in range(len(full) - len(inner) + 1):
        if full[place : place + len(inner)] == inner:
            before, after = full[:place], full[place + len(inner) :]
            break
    if start is None:
        return before, after
    return ([start, *before] if before[:1] != [start] else before), []
