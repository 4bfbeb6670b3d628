"""Compute the order-blind ceiling of a corpus: how much of its task can be done without the order of the tokens.

It depends on the tokenizer: a token that tells where it stood ("undvier") brings order into the bag of tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clockhands.data.encoding import encode_stream, encode_texts
from clockhands.data.population import Bags, Ceiling, Listed
from clockhands.errors import UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from clockhands.data.splits import Corpus
    from clockhands.data.tokens import Tokenizers

MOST_TOKENS = 1_000_000
"""The most tokens of a text that are read."""


def find_ceiling(corpus: Corpus, tokenizers: Tokenizers, window: int = 128, *, masked: bool = False) -> Ceiling:
    """Compute the order-blind ceiling of a corpus for its tokenizers.

    It is computed over the population of the corpus if that is known, else over its test split (or validation, or
    train). For language modelling an item is a token of a ``window``, to be told from the bag of the tokens before it
    in the window, or with ``masked`` from the bag of all others. Raises UsageError for a corpus without an item.
    """
    split = next(name for name in ("test", "validation", "train") if name in corpus)
    if corpus.task == "language modelling":
        stream = encode_stream(tokenizers.source, corpus.documents(split))[:MOST_TOKENS]
        read = f"{len(stream):,} tokens of the {split} split in windows of {min(window, len(stream)):,}"
        return _measure_windows(stream, window, read, masked=masked)
    bags = _make_bags(tokenizers.source)
    ceilings = (population.measure(bags) for population in corpus.populations)
    known = next((ceiling for ceiling in ceilings if ceiling is not None), None)
    return known or Listed(corpus.pairs(split), f"the {len(corpus[split]):,} pairs of the {split} split").measure(bags)


def _make_bags(tokenizer: PreTrainedTokenizerBase) -> Bags:
    """Return a function that turns texts into bags of the tokenizer's tokens, without the token that ends a text."""
    weights_V = _draw_weights(len(tokenizer))
    weights_V[tokenizer.eos_token_id] = 0

    def bags(texts: Sequence[str]) -> NDArray[np.uint64]:
        rows = encode_texts(tokenizer, texts)
        return np.array([weights_V[row].sum(dtype=np.uint64) for row in rows], dtype=np.uint64)

    return bags


def _draw_weights(size: int) -> NDArray[np.uint64]:
    """Draw a random number for each token; their sum over a text, modulo 2^64, stands for its bag."""
    return np.random.default_rng(0).integers(0, 2**64, size, dtype=np.uint64)


def _measure_windows(stream: NDArray[np.int32], window: int, population: str, *, masked: bool) -> Ceiling:
    """Compute the ceiling of a language model; ``population`` says over what, for the sentence about it."""
    length = min(window, len(stream))
    if length < 2:
        raise UsageError("the order-blind ceiling needs at least two tokens of text")
    ids_NS = stream[: len(stream) // length * length].reshape(-1, length)
    own_NS = _draw_weights(int(stream.max()) + 1)[ids_NS]
    before_NS = np.cumsum(own_NS, axis=1, dtype=np.uint64)
    bags_NS = before_NS[:, -1:] - own_NS if masked else before_NS[:, :-1]
    targets_NS = ids_NS if masked else ids_NS[:, 1:]
    bags_M, targets_M = bags_NS.ravel(), targets_NS.ravel()
    order = np.lexsort((targets_M, bags_M))
    new_bag_M = np.r_[True, np.diff(bags_M[order]) != 0]
    firsts = np.flatnonzero(new_bag_M | np.r_[True, np.diff(targets_M[order]) != 0])
    counts = np.diff(firsts, append=len(order))
    share = float(np.maximum.reduceat(counts, np.flatnonzero(new_bag_M[firsts])).sum() / len(order))
    return Ceiling(share, share, share, population, "masked tokens" if masked else "next tokens")
