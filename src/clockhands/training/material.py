"""What a recipe trains on: the corpus, its tokenizers, encoded examples, batches and the collator."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from clockhands.data import (
    Batch,
    Corpus,
    Example,
    LengthBatches,
    MaskedCollator,
    PairCollator,
    PairDataset,
    PlannedBatches,
    RandomBatches,
    Tokenizers,
    WindowCollator,
    WindowDataset,
    encode_pairs,
    encode_stream,
    open_corpus,
    open_tokenizer,
    train_tokenizers,
)
from clockhands.data.encoding import LONGEST
from clockhands.progress import Say, say_nothing
from clockhands.runs.recipe import Recipe

Data = PairDataset | WindowDataset
EVALUATED = 4
"""Validation batches are that many times larger: they keep no activations."""


@dataclass(frozen=True)
class Material:
    """Everything that the data and tokenizer tables of a recipe decide; runs that share those can share it."""

    corpus: Corpus
    tokenizers: Tokenizers
    train: Data
    validation: Data | None
    collate: Callable[[Sequence[Example]], Batch]

    def batches(self, recipe: Recipe, shard: int = 0, shards: int = 1) -> PlannedBatches:
        """The batches of training: the share of one of several processes, the seed that of the recipe."""
        given, seed = recipe.batches, recipe.training.seed
        if isinstance(self.train, WindowDataset):
            size = given.size or max(1, (given.tokens or 0) // given.window)
            return RandomBatches(
                len(self.train), batch_size=size, batches=given.per_epoch, seed=seed, shard=shard, shards=shards
            )
        return LengthBatches(
            self.train.lengths,
            tokens=given.tokens,
            batch_size=given.size,
            bucketed=given.bucketed,
            seed=seed,
            shard=shard,
            shards=shards,
        )

    def validation_batches(self, recipe: Recipe, shard: int = 0, shards: int = 1) -> PlannedBatches:
        """The batches of the validation split, in a fixed order."""
        assert self.validation is not None
        given = recipe.batches
        return LengthBatches(
            self.validation.lengths,
            tokens=None if given.tokens is None else EVALUATED * given.tokens,
            batch_size=None if given.size is None else EVALUATED * given.size,
            shuffle=False,
            shard=shard,
            shards=shards,
        )

    @property
    def fingerprint(self) -> str:
        """Changes when any id of the training data does: by it a resumed run knows its data."""
        arrays = [self.train.stream] if isinstance(self.train, WindowDataset) else _arrays(self.train)
        digest = hashlib.blake2b(digest_size=16)
        for array in arrays:
            digest.update(array.tobytes())
        return digest.hexdigest()


def prepare(recipe: Recipe, tokenizers: Tokenizers | None = None, *, progress: Say = say_nothing) -> Material:
    """Read the corpus, learn or open the tokenizers (unless given) and encode; ``progress`` is told of each.

    Raises DataError and UsageError.
    """
    progress(f"reading the text ({recipe.corpus})")
    corpus = open_corpus(recipe.corpus, **recipe.corpus_options)
    if tokenizers is None:
        asked = recipe.tokenizer
        how = f"opening the tokenizer {asked.name}" if asked.name else f"learning a tokenizer ({asked.kind})"
        progress(f"{how}; the text has {len(corpus['train']):,} {corpus.items} for training")
        tokenizers = _tokenizers(recipe, corpus)
    progress(f"encoding the text with {len(tokenizers.target):,} tokens")
    if corpus.task == "translation":
        return _of_pairs(recipe, corpus, tokenizers)
    window, tokenizer = recipe.batches.window, tokenizers.source
    train = WindowDataset(encode_stream(tokenizer, corpus.documents("train")), window, stride=1)
    held_out = encode_stream(tokenizer, corpus.documents("validation")) if "validation" in corpus else None
    masked = recipe.model.kind == "encoder"
    collate = MaskedCollator.of(tokenizer, recipe.batches.masked, recipe.training.seed) if masked else WindowCollator()
    stride = window if masked else None
    validation = None if held_out is None else WindowDataset(held_out, min(window, len(held_out)), stride)
    return Material(corpus, tokenizers, train, validation, collate)


def _of_pairs(recipe: Recipe, corpus: Corpus, tokenizers: Tokenizers) -> Material:
    given = recipe.batches
    limits: dict[str, Any] = {"max_length": given.max_length, "longer": given.longer, "option": "batches.max_length"}
    if given.max_length is None:
        limits |= {"max_length": LONGEST, "longer": "drop"}
    train = encode_pairs(corpus.pairs("train"), tokenizers, **limits)
    has_validation = "validation" in corpus
    validation = encode_pairs(corpus.pairs("validation"), tokenizers, **limits) if has_validation else None
    return Material(corpus, tokenizers, train, validation, PairCollator(int(tokenizers.source.pad_token_id)))


def _tokenizers(recipe: Recipe, corpus: Corpus) -> Tokenizers:
    asked = recipe.tokenizer
    if asked.name is not None:
        source = open_tokenizer(asked.name)
        return Tokenizers(source, open_tokenizer(asked.target_name) if asked.target_name else source)
    return train_tokenizers(
        corpus,
        task="masked language modelling" if recipe.model.kind == "encoder" else None,
        shared=asked.shared,
        kind=asked.kind,
        vocabulary=asked.vocabulary,
        lowercase=asked.lowercase,
        normalisation=asked.normalisation,
        min_frequency=asked.min_frequency,
    )


def _arrays(data: PairDataset) -> list[Any]:
    return [part for side in (data.sources, data.targets) for part in (side.values, side.offsets)]
