"""A tokenizer of a few whole words, for tiny random models."""

from __future__ import annotations

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
