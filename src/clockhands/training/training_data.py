"""Prepare what a recipe trains on: corpus, tokenizers, encoded examples, and the plan of its batches."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
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
from clockhands.data.bounds import Floor, find_floor
from clockhands.data.datasets import LONGEST
from clockhands.data.splits import redraw_training
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
        batching = recipe.batches
        plan: dict[str, Any] = {"seed": recipe.training.seed, "shard": shard, "shards": shards}
        if isinstance(self.train, WindowDataset):
            size = batching.size or max(1, (batching.tokens or 0) // batching.window)
            return RandomBatches(len(self.train), batch_size=size, batches=batching.per_epoch, **plan)
        bounds: dict[str, Any] = {"tokens": batching.tokens, "batch_size": batching.size}
        return LengthBatches(self.train.lengths, **bounds, bucketed=batching.bucketed, **plan)

    def validation_batches(self, recipe: Recipe, shard: int = 0, shards: int = 1) -> PlannedBatches:
        """Plan the batches of the validation split, in a fixed order; a longer example is a batch of its own."""
        tokens, size, validation = recipe.batches.tokens, recipe.batches.size, self.require_validation()
        return LengthBatches(
            validation.lengths,
            tokens=None if tokens is None else max(EVALUATED * tokens, *validation.longest),
            batch_size=None if size is None else EVALUATED * size,
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
        """Return the floor of real text (``data.bounds``); None for made text, and for a masked model.

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
        with suppress(UsageError):
            counted = isinstance(self.train, WindowDataset) and len(self.train.stream) <= MOST_COUNTED
            floor = self.find_floor() if counted else None
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
        arrays: list[Any]
        if isinstance(self.train, WindowDataset):
            arrays = [self.train.stream]
        else:
            sources, targets = self.train.sources, self.train.targets
            arrays = [sources.values, sources.offsets, targets.values, targets.offsets]
        digest = hashlib.blake2b(digest_size=16)
        for array in arrays:
            digest.update(array.tobytes())
        return digest.hexdigest()


def prepare(
    recipe: Recipe, tokenizers: Tokenizers | None = None, *, progress: SentenceProgress = ignore_sentence
) -> TrainingData:
    """Read the corpus, learn or open the tokenizers (unless given) and encode; ``progress`` gets a sentence on each.

    Raises DataError and UsageError.
    """
    progress(f"reading the text ({recipe.corpus})")
    corpus = open_corpus(recipe.corpus, **recipe.corpus_options)
    table, batching = recipe.tokenizer, recipe.batches
    masked = recipe.model.architecture == "encoder"
    if tokenizers is None:
        how = f"opening the tokenizer {table.name}" if table.name else f"learning a tokenizer ({table.kind})"
        progress(f"{how}; the text has {len(corpus['train']):,} {corpus.items} for training")
        if table.name is not None:
            source = open_tokenizer(table.name)
            tokenizers = Tokenizers(source, open_tokenizer(table.target_name) if table.target_name else source)
        else:
            options = {key: value for key, value in asdict(table).items() if key not in ("name", "target_name")}
            tokenizers = train_tokenizers(corpus, task="masked language modelling" if masked else None, **options)
    progress(f"encoding the text with {len(tokenizers.target):,} tokens")
    drawn = corpus
    if recipe.training.text_seed is not None:
        # The tokenizers know the first text alone.
        again = redraw_training(corpus, recipe.training.text_seed)
        drawn = replace(corpus, splits={**corpus.splits, "train": again})
    if corpus.task == "translation":
        limits: dict[str, Any] = {"max_length": LONGEST, "longer": "drop", "option": "batches.max_length"}
        if batching.max_length is not None:
            limits |= {"max_length": batching.max_length, "longer": batching.longer}
        pairs = encode_pairs(drawn.pairs("train"), tokenizers, **limits)
        for side, tokenizer in ((pairs.sources, tokenizers.source), (pairs.targets, tokenizers.target)):
            unknown = int((side.values == tokenizer.unk_token_id).sum()) if table.kind == "morpheme" else 0
            if unknown:
                raise DataError(
                    f"{corpus.description}: {unknown:,} pieces of the training text are not in the list of morphemes "
                    "of this corpus; set tokenizer.kind = 'bpe'"
                )
        others = encode_pairs(corpus.pairs("validation"), tokenizers, **limits) if "validation" in corpus else None
        return TrainingData(corpus, tokenizers, pairs, others, PairCollator(int(tokenizers.source.pad_token_id)), drawn)
    window, tokenizer = batching.window, tokenizers.source
    train = WindowDataset(encode_stream(tokenizer, drawn.documents("train")), window, stride=1)
    validation = None
    if "validation" in corpus:
        held_out = encode_stream(tokenizer, corpus.documents("validation"))
        validation = WindowDataset(held_out, min(window, len(held_out)), window if masked else None)
    collate = MaskedCollator.of(tokenizer, batching.masked, recipe.training.seed) if masked else WindowCollator()
    return TrainingData(corpus, tokenizers, train, validation, collate, drawn)
