"""The least loss on associative recall: that of a reader who knows how the texts are made, and nothing of what comes.

The texts are those of ``recipes/layers-recall.toml``: lines "@ hazel amber hazel", whose names follow each other at
random, so that even the best model has a loss. Only a value whose name stood before, the name at the end of its line,
and what all lines share are certain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import clockhands.studies
from clockhands.comparison.trial_runner import BEYOND
from clockhands.data.tokens import Tokenizers
from clockhands.generation.score import cut_evaluation_windows
from clockhands.models import LanguageModel
from clockhands.runs.recipe import load_recipe, vary_recipe
from clockhands.training import prepare
from exact.added import Numbers

RECIPE = Path(clockhands.studies.__file__).parent / "recipes" / "layers-recall.toml"
LINE = 5
"""Tokens of a line: what begins it, a name, its value, the name again, what ends it."""
NAME, VALUE, NAME_AGAIN = 1, 2, 3
"""Their places in a line; the tokens at the other places are the same in all lines."""


def find_least_losses() -> Numbers:
    """Return the least mean loss in nats a token, on the study's test text, by how many trained lengths are read."""
    recipe = load_recipe(RECIPE)
    names, words = (int(recipe.corpus_options[key]) for key in ("names", "words"))
    # The texts that are trained on are not read, and the test text does not depend on how many they are.
    material = prepare(vary_recipe(recipe, {"data.train": 20}))
    documents, window = material.corpus.documents("test"), recipe.trained_length or 0
    return {
        f"{times}x": _average(material.tokenizers, documents, times * window, names, words) for times in (1, *BEYOND)
    }


def _average(tokenizers: Tokenizers, documents: Sequence[str], length: int, names: int, words: int) -> float:
    """Return the mean of the least losses over the tokens that `evaluate` counts in windows of a length."""
    tokenizer = tokenizers.target
    windows = cut_evaluation_windows(LanguageModel("the recipe", None, tokenizer), documents, length)
    losses: list[float] = []
    for ids_S, counted_S in zip(windows.ids_NS, windows.counted_NS, strict=True):
        tokens = tokenizer.convert_ids_to_tokens(ids_S.tolist())
        least = list_least_losses(tokens, names=names, words=words, end=tokenizer.eos_token)
        losses += [loss for loss, counted in zip(least, counted_S, strict=True) if counted]
    return math.fsum(losses) / len(losses)


def list_least_losses(tokens: Sequence[str], *, names: int, words: int, end: str = "</s>") -> Iterator[float]:
    """Yield the least expected loss of each token, in nats, given those before it.

    A document has ``names`` names of ``words``, each of its lines one of these at random, and each name one of
    ``words`` values. So a name that stood before has a share of 1/names, and those that did not share the rest alike.
    ``end``: the token after which another document begins. At which place of a line the first token stands is taken to
    be known, and so is where a document ends: no reader can do better.
    """
    known: dict[str, str | None] = {}
    name = value = None
    place = _find_first_place(tokens, end)
    for token in tokens:
        if token == end:
            known, name, value, place = {}, None, None, 0
            yield 0.0
            continue
        if place == NAME or (place == NAME_AGAIN and name is None):
            new = len(known)
            yield math.log(names) if token in known else -math.log((names - new) / names / (words - new))
            name = token
            known[name] = known.get(name) or value
        elif place == VALUE:
            yield 0.0 if name is not None and known[name] is not None else math.log(words)
            value = token
            if name is not None:
                known[name] = value
        else:
            yield 0.0
        place = (place + 1) % LINE
        if place == 0:
            name = value = None


def _find_first_place(tokens: Sequence[str], end: str) -> int:
    """Return the place in its line of the first token: lines end in a line break, documents between lines."""
    ends = next((index for index, token in enumerate(tokens) if "\n" in token or token == end), LINE - 1)
    return 0 if tokens[ends] == end else (LINE - 1 - ends) % LINE
