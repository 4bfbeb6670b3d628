"""Tokenizers as the page reads them: normal forms, one pattern that cuts, and a list of words.

That is what tokenizers of the kinds ``word``, ``character`` and ``morpheme`` are. The pattern is rewritten from the
syntax of Oniguruma, in which ``tokenizers`` reads it, to that of JavaScript with the flag ``u``. Those of the kind
``bpe`` are a list of merges: GPT-2's pattern, by which they cut, stands in the script.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from transformers import PreTrainedTokenizerBase

from clockhands.data import Tokenizers
from clockhands.pretrained import find_special_tokens

_FORMS = ("NFC", "NFKC", "Lowercase", "Prepend")
_UNREAD = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges")
"""Options of byte pairs that the page does not read."""
_WORD = r"\p{L}\p{M}\p{N}\p{Pc}"
"""What ``\\w`` matches in Oniguruma; in JavaScript it is ASCII alone."""
_SYNTAX = "^$\\.*+?()[]{}|/"
"""The characters that JavaScript lets be escaped with the flag ``u``."""


def find_tokenizer_faults(tokenizers: Tokenizers) -> Iterator[str]:
    """Yield why the page cannot read or write with these tokenizers."""
    for side, tokenizer in (("source", tokenizers.source), ("target", tokenizers.target)):
        fault = _find_fault(tokenizer)
        if fault:
            yield f"the {side} tokenizer {fault}; the page reads the kinds bpe, word, character and morpheme"
        if tokenizers.shared:
            return


def _find_fault(tokenizer: PreTrainedTokenizerBase) -> str | None:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return f"is a {type(tokenizer).__name__}"
    table = json.loads(backend.to_str())
    cuts = table["pre_tokenizer"] or {}
    if table["model"]["type"] not in ("WordLevel", "BPE"):
        return f"is of the kind {table['model']['type']}"
    if table["model"]["type"] == "BPE":
        if cuts.get("type") != "ByteLevel" or not cuts.get("use_regex", True) or any(map(table["model"].get, _UNREAD)):
            return "is of the kind BPE, but not of plain bytes cut as GPT-2 cuts them"
    elif cuts.get("type") != "Split" or "Regex" not in cuts["pattern"] or cuts["behavior"] != "Isolated":
        return "does not cut by one pattern"
    strange = [step["type"] for step in _list_steps(table["normalizer"], "normalizers") if step["type"] not in _FORMS]
    return f"normalises by {strange[0]}" if strange else None


def _list_steps(table: dict[str, Any] | None, key: str) -> list[dict[str, Any]]:
    """Return the steps of a normalizer or decoder: those of a sequence, or itself."""
    if table is None:
        return []
    steps: list[dict[str, Any]] = table[key] if table["type"] == "Sequence" else [table]
    return steps


def read_rules(tokenizer: PreTrainedTokenizerBase, *, ends: bool = True) -> dict[str, Any]:
    """Return how the page cuts and joins text; the tokenizer has no faults (``find_tokenizer_faults``).

    ``ends``: whether its end token is put behind every text. If not, what the tokenizer itself puts in front is.
    """
    starts = [] if ends else find_special_tokens(tokenizer)[0]
    table = json.loads(tokenizer.backend_tokenizer.to_str())
    steps = {step["type"]: step for step in _list_steps(table["normalizer"], "normalizers")}
    cuts = table["pre_tokenizer"]
    if table["model"]["type"] == "BPE":
        cutting = {
            "prefix": " " if cuts["add_prefix_space"] else "",
            "pattern": "",
            "merges": [merge if isinstance(merge, list) else merge.split(" ") for merge in table["model"]["merges"]],
        }
    else:
        prefix = steps.get("Prepend", {}).get("prepend", "")
        cutting = {"prefix": prefix, "pattern": translate_pattern(cuts["pattern"]["Regex"])}
    return {
        "nfc": "NFC" in steps,
        "nfkc": "NFKC" in steps,
        "lowercase": "Lowercase" in steps,
        **cutting,
        "unknownId": tokenizer.unk_token_id,
        "endId": tokenizer.eos_token_id if ends else None,
        **({"startIds": starts} if starts else {}),
        "stripsSpace": any(step["type"] == "Strip" for step in _list_steps(table["decoder"], "decoders")),
    }


def describe_tokens(tokenizer: PreTrainedTokenizerBase, size: int) -> list[dict[str, Any]]:
    """Return the text of every token, by its id, and whether it is a special one.

    A model with more embeddings than tokens, ``size``, may write an id that no token has: it stands for no text.
    """
    special = set(tokenizer.all_special_ids)
    texts = {number: text for text, number in tokenizer.get_vocab().items()}
    return [{"text": texts.get(id, ""), "special": id in special or id not in texts} for id in range(size)]


def translate_pattern(pattern: str) -> str:
    r"""Return a pattern of Oniguruma as one of JavaScript with the flag ``u``.

    Only what the tokenizers of this project write is translated: ``\w`` and ``\s`` in and outside classes, escaped
    characters, and the dot that matches line breaks.
    """
    for dot in ("(?m:.)", "(?m)."):
        pattern = pattern.replace(dot, r"[\s\S]")
    translated, in_class = "", False
    for part in re.findall(r"\\.|.", pattern, re.DOTALL):
        if part == r"\w":
            translated += _WORD if in_class else f"[{_WORD}]"
        elif part[0] == "\\" and len(part) == 2 and not part[1].isalnum():
            escapable = part[1] in _SYNTAX or (in_class and part[1] == "-")
            translated += part if escapable else part[1]
        else:
            in_class = part == "[" or (in_class and part != "]")
            translated += part
    return translated
