"""Facts to be found again: which tokens are names and values for a tokenizer, and how a fact is written."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from clockhands.data.corpora.facts import NAMES, VALUES
from clockhands.errors import DataError
from clockhands.extension.masked import get_answer_ids
from clockhands.models import LanguageModel

__all__ = ["FORMATS", "PLAIN", "Writing", "find_words"]

NAME = "{name}"
PLAIN = ("", "", "\n")
FORMATS = (
    ("@", "", "\n"),
    ("@", "", NAME + "\n"),
    PLAIN,
    ("", ":", "\n"),
    ("", " is", ".\n"),
    ("The code of", " is", ".\n"),
)
"""What stands before a name, between it and the value, and after the value; the first two are of the corpus *facts*.

``NAME`` stands for the name once more.
"""
FEWEST = 12
"""Names, and values, that a probe needs."""


@dataclass(frozen=True)
class Writing:
    """How facts are written for one tokenizer: the tokens before a name, between name and value, after the value.

    ``again``: whether the name stands after the value once more. ``answer``: what a question ends with, at the place of
    the value (``get_answer_ids``).
    """

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    again: bool
    example: str
    answer: tuple[int, ...] = ()

    @classmethod
    def of(cls, model: LanguageModel, form: tuple[str, str, str]) -> Writing:
        """Make the writing of one of ``FORMATS``."""
        before, between, after = (tuple(_encode(model, part.removeprefix(NAME))) for part in form)
        again = form[2].startswith(NAME)
        example = f"{form[0]} hazel{form[1]} amber{form[2].replace(NAME, ' hazel')}".strip()
        return cls(before, between, after, again, example, get_answer_ids(model))

    def state(self, name: int, value: int) -> list[int]:
        """Return the tokens of a fact."""
        return [*self.before, name, *self.between, value, *([name] if self.again else []), *self.after]

    def ask(self, name: int) -> list[int]:
        """Return the tokens of a fact up to its value, which is asked for."""
        return [*self.before, name, *self.between, *self.answer]

    @property
    def size(self) -> int:
        """The tokens of a fact."""
        return len(self.state(0, 0))


def find_words(model: LanguageModel, seed: int = 0) -> tuple[list[int], list[int]]:
    """Return the tokens that serve as names and as values, each one token.

    They are words that the tokenizer has whole; where it has few, other tokens of letters. Raises DataError where
    there are too few of these, too.
    """
    names, values = ([token for word in words for token in _whole(model, word)] for words in (NAMES, VALUES))
    if min(len(names), len(values)) >= FEWEST:
        return names, values
    letters = list(_list_letter_tokens(model))
    random.Random(seed).shuffle(letters)
    half = min(len(letters) // 2, 40)
    if half < FEWEST:
        raise DataError(
            f"the tokenizer of {model.source} has {len(letters)} tokens of letters, and facts need {2 * FEWEST}"
        )
    return letters[:half], letters[half : 2 * half]


def _encode(model: LanguageModel, text: str) -> Sequence[int]:
    ids: list[int] = model.tokenizer(text, add_special_tokens=False)["input_ids"]
    return [token for token in ids if token != model.tokenizer.unk_token_id]


def _whole(model: LanguageModel, word: str) -> list[int]:
    """Return the token of a word after a space, where it is one token; else none."""
    ids = model.tokenizer(f" {word}", add_special_tokens=False)["input_ids"]
    return list(ids) if len(ids) == 1 and ids[0] != model.tokenizer.unk_token_id else []


def _list_letter_tokens(model: LanguageModel) -> Iterator[int]:
    """Yield the tokens that are letters alone, the longest words first, at most some thousands."""
    special = set(model.tokenizer.all_special_ids)
    tokens = sorted(set(model.tokenizer.get_vocab().values()) - special)
    texts = ((token, model.tokenizer.decode([token]).strip()) for token in tokens[:20_000])
    words = [(token, text) for token, text in texts if text.isascii() and text.isalpha()]
    yield from (token for token, text in sorted(words, key=lambda pair: (-min(len(pair[1]), 4), pair[0])))
