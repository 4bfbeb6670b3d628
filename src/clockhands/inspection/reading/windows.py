"""Windows of text of one length, so that every position is seen equally often: the caller's, else that of its training.

Texts are joined and cut, and every window gets the special tokens of its tokenizer at the same positions, so that means
over texts at one position compare like with like. Token ids may come from a file in place of text. Where there is no
text at all, built-in English is read.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence

from clockhands.errors import DataError, UsageError
from clockhands.models.subject import Subject
from clockhands.pretrained import encode_bare, find_special_tokens, first_line
from clockhands.shapes import Bool, Int, Tensor


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


FEWEST_WINDOWS = 8
"""Windows that running text is cut into at least, and that a file must hold: with fewer, little can be told from
chance. A caller who passes a tensor has chosen its texts and may pass fewer, down to ``FEWEST_TEXTS``."""
FEWEST_TEXTS = 3
"""Texts of token ids that are needed: of two not every interval over texts can be estimated."""
SHORTEST = 4
"""The fewest ordinary tokens in a window."""
DEFAULT_LENGTH = 128
"""Tokens in a window, unless another length is asked for."""

Ids: TypeAlias = Tensor | NDArray[Any]
"""Token ids that a caller passes: [texts, tokens], or [tokens] for one long text."""


@dataclass(frozen=True)
class Windows:
    """The token ids of N windows of T tokens, and which positions hold ordinary tokens: no special ones.

    ``source_NS`` are the ids that the encoder reads while a decoder reads the windows, -1 for padding.
    """

    ids_NT: Int[Tensor, "N T"]
    ordinary_T: Bool[Tensor, " T"]
    source_NS: Int[Tensor, "N S"] | None = None

    def take_first(self, count: int) -> Windows:
        """Return the first ``count`` windows."""
        return Windows(self.ids_NT[:count], self.ordinary_T, None if self.source_NS is None else self.source_NS[:count])


def _surround(before: Sequence[int], rows: Sequence[Sequence[int]], after: Sequence[int]) -> Windows:
    """Return windows of rows of ordinary tokens, all of one length, between special ones."""
    flags = [False] * len(before) + [True] * len(rows[0]) + [False] * len(after)
    return Windows(torch.tensor([[*before, *row, *after] for row in rows]), torch.tensor(flags, dtype=torch.bool))


def encode_text(subject: Subject, text: str) -> tuple[list[int], Bool[Tensor, " T"]]:
    """Return the token ids of a text with the special tokens around it, and which positions hold ordinary tokens."""
    before, after = find_special_tokens(subject.tokenizer, subject.start_token)
    window = _surround(before, [encode_bare(subject.tokenizer, text)], after)
    return window.ids_NT[0].tolist(), window.ordinary_T


def decode_tokens(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """Return every token as text, without the marks that tokenizers put before words.

    Tokens of a byte-level tokenizer stand for bytes: "Ã©" is read as é, and a part of a character becomes �.
    """
    pieces = [str(piece) for piece in tokenizer.convert_ids_to_tokens(list(ids))]
    if "ByteLevel" in str(getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", "")):
        pieces = [tokenizer.convert_tokens_to_string([piece]).removeprefix(" ") for piece in pieces]
    return [piece.replace("Ġ", "").replace("▁", "").removeprefix("##") or "␣" for piece in pieces]


def check_counts(length: int | None, count: int) -> None:
    """Raise UsageError for windows of fewer tokens than ``SHORTEST``, and for fewer windows than ``FEWEST_TEXTS``."""
    if length is not None and length < SHORTEST:
        raise UsageError(f"length is {length}; a window needs at least {SHORTEST} tokens (length=...)")
    if count < FEWEST_TEXTS:
        raise UsageError(f"count is {count}; at least {FEWEST_TEXTS} windows are needed (count=...)")


def cut_windows(
    tokenizer: Any,
    texts: Sequence[str] | Tensor,
    *,
    length: int,
    count: int,
    max_length: int | None = None,
    start: int | None = None,
) -> Windows:
    """Join ``texts`` and cut them into at most ``count`` windows of at most ``length`` tokens, special ones included.

    Token ids are cut as by ``cut_ids``. ``start`` is the token that a decoder reads first; windows then have no end
    token. Short text gives shorter windows, at least 8 of them, or ``count`` if that is fewer. ``max_length``: the most
    tokens that the model reads. Raises DataError if there is too little text, UsageError if ``length`` is beyond what
    the model can read or if there are strings and no tokenizer.
    """
    if isinstance(texts, Tensor):
        return cut_ids(texts, count=count, max_length=max_length, length=min(length, texts.shape[-1]))
    before, after, most = _divide_window(tokenizer, length, max_length, start)
    stream: list[int] = []
    for text in texts:
        stream += encode_bare(tokenizer, text)
        # Text for 8 windows is read also where fewer are asked for: of less they would be shorter.
        if len(stream) >= max(count, FEWEST_WINDOWS) * most:
            break
    size = _fit_length(most, len(stream), "the text")
    total = min(count, len(stream) // size)
    return _surround(before, [stream[index * size : (index + 1) * size] for index in range(total)], after)


def _divide_window(
    tokenizer: Any, length: int, max_length: int | None, start: int | None
) -> tuple[list[int], list[int], int]:
    """Return the special tokens before and after a window of text, and the number of tokens between them.

    Raises UsageError for windows longer than the model reads, for a model without a tokenizer, and for windows with
    fewer than ``SHORTEST`` ordinary tokens.
    """
    if max_length is not None and length > max_length:
        raise UsageError(f"windows of {length} tokens do not fit this model, which reads at most {max_length}")
    if tokenizer is None:
        raise UsageError(
            "this model came without a tokenizer; give one (--tokenizer NAME, tokenizer=...), or the text as token ids "
            "(--ids FILE.npy, ids=...)"
        )
    before, after = find_special_tokens(tokenizer, start)
    ordinary = length - len(before) - len(after)
    if ordinary < SHORTEST:
        raise UsageError(
            f"of windows of {length} tokens {length - ordinary} are special ones, and at least {SHORTEST} others are "
            "needed; give a greater --length (length=...)"
        )
    return before, after, ordinary


def _fit_length(length: int, num_tokens: int, what: str) -> int:
    """Return the length of windows of a text of so many tokens: less than ``length`` where 8 would not be filled."""
    fitting = min(length, num_tokens // FEWEST_WINDOWS)
    if fitting < SHORTEST:
        raise DataError(
            f"{what} has {num_tokens} tokens; {FEWEST_WINDOWS * SHORTEST} are the least with which anything can be "
            "measured, and some ten thousand are better"
        )
    return fitting


def _cut_pair_windows(
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
    """Cut windows of target texts, each with the sources of its targets: as many pairs as fill it, the last target cut.

    Sources are cut to ``max_source_length`` tokens. Arguments and errors as ``cut_windows``, but every window has
    ``length`` tokens: a text that fills fewer than 8 of them raises DataError.
    """
    before, after, most = _divide_window(tokenizer, length, max_length, start)
    source_before, source_after = find_special_tokens(source_tokenizer)
    most_source = None if max_source_length is None else max_source_length - len(source_before) - len(source_after)
    rows: list[list[int]] = []
    sources: list[list[int]] = []
    target_ids: list[int] = []
    source_ids: list[int] = []
    for source, target in pairs:
        target_ids += encode_bare(tokenizer, target)
        source_ids += encode_bare(source_tokenizer, source)
        if len(target_ids) >= most:
            rows.append(target_ids[:most])
            sources.append([*source_before, *source_ids[:most_source], *source_after])
            target_ids, source_ids = [], []
        if len(rows) == max(count, FEWEST_WINDOWS):
            break
    if len(rows) < FEWEST_WINDOWS:
        raise DataError(
            f"the text fills {len(rows)} windows of {length} tokens; {FEWEST_WINDOWS} are the least with which "
            "anything can be measured; give more text or a smaller --length (length=...)"
        )
    padded_NS = pad_sequence([torch.tensor(row) for row in sources[:count]], batch_first=True, padding_value=-1)
    return replace(_surround(before, rows[:count], after), source_NS=padded_NS)


def select_one_length(rows: Sequence[Sequence[int]], most: int, enough: int | None = None) -> Windows:
    """Return at most ``most`` of the token sequences, all of one length; the last token of each is its end token.

    The length is the greatest of which there are ``enough`` sequences; if there is none, the most frequent one.
    """
    by_length: dict[int, list[Sequence[int]]] = {}
    for row in rows:
        by_length.setdefault(len(row), []).append(row)
    frequent = [length for length, alike in by_length.items() if enough is not None and len(alike) >= enough]
    chosen = max(frequent) if frequent else max(by_length, key=lambda length: (len(by_length[length]), length))
    ordinary_T = torch.ones(chosen, dtype=torch.bool)
    ordinary_T[-1] = False
    return Windows(torch.tensor(by_length[chosen][:most]), ordinary_T)


def cut_ids(ids: Ids, *, count: int, max_length: int | None, length: int | None = None) -> Windows:
    """Cut windows of token ids: the first ``length`` tokens of each text, or one long text cut into windows.

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
        wanted = length or min(max_length or DEFAULT_LENGTH, DEFAULT_LENGTH)
        size, length = _fit_length(wanted, len(array), "the text of ids"), None
        array = array[: len(array) // size * size].reshape(-1, size)
    if length is not None and length > array.shape[1]:
        raise UsageError(f"windows of {length} tokens were asked for, but the texts of ids have {array.shape[1]} each")
    array = array[:count, :length]
    if len(array) < FEWEST_TEXTS or array.shape[1] < SHORTEST:
        raise DataError(
            f"token ids must be at least {FEWEST_TEXTS} texts of {SHORTEST} tokens; these are {len(array)} of "
            f"{array.shape[1]}"
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


def read_ids(path: str | Path) -> Ids:
    """Open a ``.npy`` file of token ids; nothing of it is read into memory yet, and nothing pickled is opened.

    Raises DataError for a missing file, one that numpy did not write, and one of fewer than 8 texts.
    """
    file = Path(path)
    if not file.is_file():
        raise DataError(f"there is no file {path}; token ids are read from a file that numpy.save wrote")
    try:
        array = np.load(file, mmap_mode="r", allow_pickle=False)
    # A damaged header is parsed as Python, and may ask for an array of any size.
    except (OSError, ValueError, EOFError, SyntaxError, MemoryError, OverflowError) as fault:
        raise DataError(
            f"{path} is not a .npy file of numbers (write it with numpy.save, from an array of integers): "
            f"{first_line(fault)}"
        ) from fault
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path} holds several arrays (.npz); save the token ids alone with numpy.save")
    if array.ndim == 2 and len(array) < FEWEST_WINDOWS:
        raise DataError(
            f"{path} has {len(array)} texts; at least {FEWEST_WINDOWS} are needed to tell position from chance"
        )
    return array


SHORTEST_WINDOW = 16
"""The fewest tokens of a window whose length follows the training text."""
MOST_PIECE_CHARACTERS = 80
"""A line that is both source and target of a decoder is cut into pieces of at most so many characters."""


def choose_windows(subject: Subject, texts: Sequence[str] | Ids | None, length: int | None, count: int) -> Windows:
    """Return at most ``count`` windows of ``length`` tokens of ``texts``, or of the training text, or of English.

    Raises DataError for too little text; UsageError for windows longer than the model reads, and for strings where the
    model has no tokenizer.
    """
    max_length = subject.max_length
    if isinstance(texts, Tensor | np.ndarray):
        windows = cut_ids(texts, count=count, max_length=max_length, length=length)
        return replace(windows, source_NS=windows.ids_NT) if subject.reads_source else windows
    usual_length = _measure_usual_length(subject) if texts is None else DEFAULT_LENGTH
    check_tokenizer(subject, "text needs", ", or the text as token ids (--ids FILE.npy, ids=...)")
    limits: dict[str, Any] = {
        "length": length or min(DEFAULT_LENGTH, max_length or DEFAULT_LENGTH, usual_length),
        "count": count,
        "max_length": max_length,
        "start": subject.start_token,
    }
    pairs: Iterable[tuple[str, str]] | None = subject.training_pairs if texts is None else None
    if texts is None and pairs is None:
        texts = subject.training_texts
        if not texts:
            from clockhands.data import open_corpus  # late: most callers bring their text

            # The documentation strings of Python's standard library: English prose that every machine has.
            texts = list(open_corpus("stdlib").documents("train"))
    if texts is not None and subject.reads_source and subject.source_tokenizer is not None:
        # Every line, a long one in pieces, is a source and its own target.
        lines = (line for text in texts for line in text.split("\n"))
        pieces = (textwrap.wrap(line, MOST_PIECE_CHARACTERS, break_on_hyphens=False) for line in lines)
        pairs = ((piece, piece) for line in pieces for piece in line)
    if pairs is not None:
        most_source = subject.max_source_length
        return _cut_pair_windows(
            subject.tokenizer, subject.source_tokenizer, pairs, max_source_length=most_source, **limits
        )
    windows = cut_windows(subject.tokenizer, texts or (), **limits)
    return replace(windows, source_NS=windows.ids_NT) if subject.reads_source else windows


def describe_origin(subject: Subject, windows: Windows, is_default: bool) -> str:
    """Return where the windows come from and what the encoder read beside them, to follow "96 windows of 128 tokens".

    ``is_default``: the caller passed no text.
    """
    training_text = subject.training_texts or subject.training_pairs
    origin = " of the text it was trained on" if training_text else " of Python's documentation"
    origin = origin if is_default else ""
    if windows.source_NS is None:
        return origin
    translates = is_default and bool(subject.training_pairs)
    return f"{origin}, with {'the sources that they translate' if translates else 'the same text as source'}"


def _measure_usual_length(subject: Subject, sample: int = 200) -> int:
    """Return the length in tokens that nine of ten training texts do not exceed, at least ``SHORTEST_WINDOW``.

    Positions beyond it were hardly trained. The first ``sample`` texts are measured; without training text it is the
    default length.
    """
    texts = subject.training_texts or [target for _, target in (subject.training_pairs or [])[:sample]]
    if not texts or subject.tokenizer is None:
        return DEFAULT_LENGTH
    lengths = sorted(len(subject.tokenizer(text)["input_ids"]) for text in texts[:sample])
    return max(SHORTEST_WINDOW, lengths[int(0.9 * (len(lengths) - 1))])
