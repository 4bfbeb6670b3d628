"""Tokenizers of a few words, of letters and of bytes, for tiny random models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

SENTENCES = "Tom bit a dog saw Anna the king followed paid my sister wolf and heard Peter"
WORDS = tuple(SENTENCES.split())


def make_tokenizer() -> Any:
    """One token a word, none around a text; anything else is unknown."""
    vocabulary = {"<unk>": 0} | {word: 7 + index for index, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")


def make_splitter(split: Callable[[str], list[int]], after: Sequence[int] = (2,)) -> Any:
    """A tokenizer that is a function of the text, with the special token 1 before it and these after it."""

    def tokenize(text: str, add_special_tokens: bool = True, **_: object) -> dict[str, list[int]]:
        return {"input_ids": [1, *split(text), *after] if add_special_tokens else split(text)}

    return tokenize
