"""Text, tokens and batches.

From text to tensors::

    corpus = open_corpus("numbers", source="fr")                  # or "roles", "algorithms", "stdlib": built in
    corpus = open_corpus("parallel", source="train.de", target="train.en")   # or "table", "text", "huggingface"
    tokenizers = train_tokenizers(corpus, kind="bpe", vocabulary=8000)       # or open_tokenizer("name or folder")
    tokenizers.save("runs/mine"); tokenizers = Tokenizers.load("runs/mine")

    data = encode_pairs(corpus.pairs("train"), tokenizers, max_length=128, longer="drop")
    batches = LengthBatches(data.lengths, tokens=4096, seed=1)    # or batch_size=64; shard=rank, shards=world
    loader = DataLoader(data, batch_sampler=batches, collate_fn=PairCollator(tokenizers.source.pad_token_id))
    batches.set_epoch(3, start=17)                                # resumes at batch 17 of epoch 3

A language model reads windows of one stream of ids::

    stream = encode_stream(tokenizers.source, corpus.documents("train"))
    data = WindowDataset(stream, 64, stride=1)                    # any window; without stride: side by side
    batches = RandomBatches(len(data), batch_size=12, batches=2000, seed=1)
    collate = WindowCollator()                                    # or MaskedCollator.of(tokenizer)

``corpus_options(name)`` lists what a corpus can be told. Faults in the user's text are DataError, in what was asked
UsageError; each names file and line, or the option.
"""

from clockhands.data.batches import LengthBatches, PlannedBatches, RandomBatches
from clockhands.data.bounds import find_ceiling
from clockhands.data.datasets import (
    IGNORED_LABEL,
    Batch,
    Example,
    MaskedCollator,
    PairCollator,
    PairDataset,
    WindowCollator,
    WindowDataset,
    encode_documents,
    encode_pairs,
    encode_stream,
    encode_texts,
)
from clockhands.data.kinds import Normalisation, TokenKind
from clockhands.data.population import Ceiling, Pair
from clockhands.data.splits import CORPORA, Corpus, CorpusEntry, Task, corpus, corpus_options, open_corpus
from clockhands.data.tokens import Tokenizers, TokenizerTask, open_tokenizer, train_tokenizer, train_tokenizers

__all__ = [
    "CORPORA",
    "IGNORED_LABEL",
    "Batch",
    "Ceiling",
    "Corpus",
    "CorpusEntry",
    "Example",
    "LengthBatches",
    "MaskedCollator",
    "Normalisation",
    "Pair",
    "PairCollator",
    "PairDataset",
    "PlannedBatches",
    "RandomBatches",
    "Task",
    "TokenKind",
    "TokenizerTask",
    "Tokenizers",
    "WindowCollator",
    "WindowDataset",
    "corpus",
    "corpus_options",
    "encode_documents",
    "encode_pairs",
    "encode_stream",
    "encode_texts",
    "find_ceiling",
    "open_corpus",
    "open_tokenizer",
    "train_tokenizer",
    "train_tokenizers",
]
