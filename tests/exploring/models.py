"""Random models of any configuration, opened as a run with the tokenizer of three sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clockhands.data import Corpus, Pair
from clockhands.data.tokens import train_tokenizers
from clockhands.model import TransformerConfig
from clockhands.model.huggingface import ClockhandsForSeq2SeqLM
from clockhands.model.huggingface_base import ClockhandsConfig
from clockhands.runs import Run, open_run

PAIRS = [Pair("Tom bit a dog", "Tom mordis hundon"), Pair("a dog bit Tom", "hundo mordis Tom")]
SIZES = {"d_model": 8, "num_heads": 2, "d_ff": 12, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0}


def make_run(folder: Path, kind: str = "word", **settings: Any) -> Run:
    """Save a random model with its tokenizers, and open it."""
    tokenizers = train_tokenizers(Corpus("three", "translation", {"train": PAIRS}), kind=kind)
    tokenizers.save(folder)
    config = TransformerConfig.from_dict({**SIZES, **settings, "vocab_size": len(tokenizers.source)})
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    ClockhandsForSeq2SeqLM(ClockhandsConfig(transformer=config.to_dict(), **ids)).save_pretrained(folder)
    return open_run(folder, device="cpu")
