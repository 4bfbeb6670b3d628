"""Prepare what a recipe trains on: corpus, tokenizers, encoded examples, and the plan of its batches."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from clockhands.data import (
    CORPORA,
    Batch,
    Ceiling,
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
    find_ceiling,
    open_corpus,
    open_tokenizer,
    train_tokenizers,
)
from clockhands.data.encoding import LONGEST
from clockhands.data.splits import redraw_training
from clockhands.data.trigram import Floor, find_floor
from clockhands.errors import DataError, UsageError
from clockhands.progress import SentenceProgress, ignore_sentence
from clockhands.runs.recipe import Recipe

Data = PairDataset | WindowDataset
EVALUATED = 4
"""How many times larger batches of validation are than those of training: they keep no activations."""

MOST_COUNTED = 10_000_000
"""Tokens of a training text up to which ``train`` counts its trigrams: some 5 seconds and 1.3 GB."""


@dataclass(frozen=True)
class TrainingData:
    """The text of a recipe, encoded: what its tables [data] and [tokenizer], the windows of [batches] and the
    ``text_seed`` of [training] decide; runs that have the same can share it.

    ``drawn``: the corpus with the training text that the recipe's ``text_seed`` draws; ``corpus`` has the first one.
    """

    corpus: Corpus
    tokenizers: Tokenizers
    train: Data
    validation: Data | None
    collate: Callable[[Sequence[Example]], Batch]
    drawn: Corpus

    def batches(self, recipe: Recipe, shard: int = 0, shards: int = 1) -> PlannedBatches:
        """Plan the batches of training, with the seed of the recipe, for process ``shard`` of ``shards``."""
        batching, seed = recipe.batches, recipe.training.seed
        if isinstance(self.train, WindowDataset):
            size = batching.size or max(1, (batching.tokens or 0) // batching.window)
            return RandomBatches(
                len(self.train), batch_size=size, batches=batching.per_epoch, seed=seed, shard=shard, shards=shards
            )
        return LengthBatches(
            self.train.lengths,
            tokens=batching.tokens,
            batch_size=batching.size,
            bucketed=batching.bucketed,
            seed=seed,
            shard=shard,
            shards=shards,
        )

    def validation_batches(self, recipe: Recipe, shard: int = 0, shards: int = 1) -> PlannedBatches:
        """Plan the batches of the validation split, in a fixed order; a longer example is a batch of its own."""
        batching, validation = recipe.batches, self.require_validation()
        return LengthBatches(
            validation.lengths,
            tokens=None if batching.tokens is None else max(EVALUATED * batching.tokens, *validation.longest),
            batch_size=None if batching.size is None else EVALUATED * batching.size,
            shuffle=False,
            shard=shard,
            shards=shards,
        )

    def find_ceiling(self) -> Ceiling:
        """Return the order-blind ceiling of the corpus for these tokenizers."""
        window = self.train.length if isinstance(self.train, WindowDataset) else 0
        masked = isinstance(self.collate, MaskedCollator)
        return find_ceiling(self.corpus, self.tokenizers, window, masked=masked)

    def find_floor(self) -> Floor | None:
        """Return the floor of real text (``trigram.py``); None for made text, and for a masked model.

        In made text every answer is right or wrong; a masked model predicts no next token.
        """
        entry = CORPORA.find(self.corpus.name)
        if (entry is not None and entry.one_answer) or isinstance(self.collate, MaskedCollator):
            return None
        return find_floor(self.drawn, self.tokenizers, getattr(self.train, "length", 0))

    def describe_bounds(self) -> list[str]:
        """Return what a reader should hold the losses and scores against: the order-blind ceiling, and the floor.

        The floor is told of language models, whose loss it bounds, and left out where the text is too long to count or
        its test split shorter than a window.
        """
        sentences = [self.find_ceiling().sentence]
        if isinstance(self.train, WindowDataset) and len(self.train.stream) <= MOST_COUNTED:
            with suppress(UsageError):
                floor = self.find_floor()
                sentences += [floor.sentence] if floor is not None else []
        return sentences

    def require_validation(self) -> Data:
        """Return the validation split. Raises DataError if the corpus has none."""
        if self.validation is None:
            raise DataError(f"corpus {self.corpus.name!r} has no validation split to evaluate on")
        return self.validation

    @property
    def fingerprint(self) -> str:
        """A hash of all ids of the training data, by which a resumed run finds that its text has changed."""
        if isinstance(self.train, WindowDataset):
            arrays: list[Any] = [self.train.stream]
        else:
            sides = (self.train.sources, self.train.targets)
            arrays = [part for side in sides for part in (side.values, side.offsets)]
        digest = hashlib.blake2b(digest_size=16)
        for array in arrays:
            digest.update(array.tobytes())
        return digest.hexdigest()


def prepare(
    recipe: Recipe,
    tokenizers: Tokenizers | None = None,
    *,
    progress: SentenceProgress = ignore_sentence,
) -> TrainingData:
    """Read the corpus, learn or open the tokenizers (unless given) and encode; ``progress`` gets a sentence on each.

    Raises DataError and UsageError.
    """
    progress(f"reading the text ({recipe.corpus})")
    corpus = open_corpus(recipe.corpus, **recipe.corpus_options)
    if tokenizers is None:
        table = recipe.tokenizer
        how = f"opening the tokenizer {table.name}" if table.name else f"learning a tokenizer ({table.kind})"
        progress(f"{how}; the text has {len(corpus['train']):,} {corpus.items} for training")
        tokenizers = _open_tokenizers(recipe, corpus)
    progress(f"encoding the text with {len(tokenizers.target):,} tokens")
    if corpus.task == "translation":
        return _prepare_pairs(recipe, corpus, tokenizers)
    window, tokenizer = recipe.batches.window, tokenizers.source
    drawn = _draw_text(recipe, corpus)
    train = WindowDataset(encode_stream(tokenizer, drawn.documents("train")), window, stride=1)
    held_out = encode_stream(tokenizer, corpus.documents("validation")) if "validation" in corpus else None
    masked = recipe.model.architecture == "encoder"
    collate = MaskedCollator.of(tokenizer, recipe.batches.masked, recipe.training.seed) if masked else WindowCollator()
    stride = window if masked else None
    validation = None if held_out is None else WindowDataset(held_out, min(window, len(held_out)), stride)
    return TrainingData(corpus, tokenizers, train, validation, collate, drawn)


def _draw_text(recipe: Recipe, corpus: Corpus) -> Corpus:
    """Return the corpus with the training text that the recipe's ``text_seed`` draws; tokenizers know the first one."""
    number = recipe.training.text_seed
    if number is None:
        return corpus
    return replace(corpus, splits={**corpus.splits, "train": redraw_training(corpus, number)})


def _prepare_pairs(recipe: Recipe, corpus: Corpus, tokenizers: Tokenizers) -> TrainingData:
    """Encode the pairs with the bound of the recipe, or the usual one."""
    batching = recipe.batches
    limits: dict[str, Any] = {"max_length": LONGEST, "longer": "drop", "option": "batches.max_length"}
    if batching.max_length is not None:
        limits |= {"max_length": batching.max_length, "longer": batching.longer}
    drawn = _draw_text(recipe, corpus)
    train = encode_pairs(drawn.pairs("train"), tokenizers, **limits)
    for side, tokenizer in ((train.sources, tokenizers.source), (train.targets, tokenizers.target)):
        unknown = int((side.values == tokenizer.unk_token_id).sum()) if recipe.tokenizer.kind == "morpheme" else 0
        if unknown:
            raise DataError(
                f"{corpus.description}: {unknown:,} pieces of the training text are not in the list of morphemes of "
                "this corpus; set tokenizer.kind = 'bpe'"
            )
    has_validation = "validation" in corpus
    validation = encode_pairs(corpus.pairs("validation"), tokenizers, **limits) if has_validation else None
    collate = PairCollator(int(tokenizers.source.pad_token_id))
    return TrainingData(corpus, tokenizers, train, validation, collate, drawn)


def _open_tokenizers(recipe: Recipe, corpus: Corpus) -> Tokenizers:
    """Open the tokenizers that the recipe names, or train them on the corpus."""
    table = recipe.tokenizer
    if table.name is not None:
        source = open_tokenizer(table.name)
        return Tokenizers(source, open_tokenizer(table.target_name) if table.target_name else source)
    return train_tokenizers(
        corpus,
        task="masked language modelling" if recipe.model.architecture == "encoder" else None,
        shared=table.shared,
        kind=table.kind,
        vocabulary=table.vocabulary,
        lowercase=table.lowercase,
        normalisation=table.normalisation,
        min_frequency=table.min_frequency,
    )
