"""Tiny models of transformers with a tokenizer of characters, saved as anybody would save them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    LlamaConfig,
    MptConfig,
    PreTrainedTokenizerFast,
)

from clockhands.model import make_preset
from clockhands.model.huggingface import ClockhandsForCausalLM, ClockhandsForMaskedLM
from clockhands.model.huggingface_base import ClockhandsConfig

LENGTH = 32
"""Tokens of the texts that they claim to be trained on."""


def make_tokenizer(*, start: bool = False, **changed: Any) -> PreTrainedTokenizerFast:
    """Make a tokenizer of the printable ASCII characters; ``start``: it puts <s> before every text."""
    words = {word: i for i, word in enumerate(["<unk>", "</s>", "<s>", *(chr(c) for c in range(32, 127)), "\n"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    if start:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 2)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", eos_token="</s>", bos_token="<s>" if start else None, **changed
    )


def make_masking_tokenizer(**changed: Any) -> PreTrainedTokenizerFast:
    """Make a tokenizer of the printable ASCII characters that masks, and puts its own tokens around every text."""
    names = {
        "unk_token": "<unk>", "pad_token": "<pad>", "cls_token": "<s>", "sep_token": "</s>", "mask_token": "<mask>",
    }  # fmt: skip
    words = {word: i for i, word in enumerate([*names.values(), *(chr(c) for c in range(32, 127))])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 2), ("</s>", 3)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names, **changed)


def make_config(kind: str, **changed: Any) -> Any:
    """Make the configuration of a tiny Llama, GPT-2 or MPT."""
    if kind == "llama":
        sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
        return LlamaConfig(vocab_size=100, max_position_embeddings=LENGTH, **{**sizes, **changed})
    if kind == "gpt2":
        return GPT2Config(vocab_size=100, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2, **changed)
    return MptConfig(
        vocab_size=100, max_seq_len=LENGTH, d_model=32, n_layers=2, n_heads=2, expansion_ratio=2, **changed
    )


def save_model(folder: Path, kind: str, *, start: bool = False, **changed: Any) -> Path:
    """Save a tiny model with fresh weights and its tokenizer."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(make_config(kind, initializer_range=0.2, **changed))
    model.save_pretrained(folder)
    make_tokenizer(start=start).save_pretrained(folder)
    return folder


def save_own_model(folder: Path, position: str | dict[str, Any], *, side: str = "decoder", **changed: Any) -> Path:
    """Save a tiny language model of ours with fresh weights and its tokenizer; an ``encoder`` fills in masks."""
    torch.manual_seed(0)
    sizes = {"kind": side, "vocab_size": 100, "d_model": 32, "num_heads": 2, "d_ff": 48, **changed}
    config = ClockhandsConfig(transformer=make_preset("tiny", {**sizes, side: position}).to_dict(), pad_token_id=0)
    (ClockhandsForCausalLM if side == "decoder" else ClockhandsForMaskedLM)(config).save_pretrained(folder)
    (make_tokenizer() if side == "decoder" else make_masking_tokenizer()).save_pretrained(folder)
    return folder


def save_masked_model(folder: Path) -> Path:
    """Save a tiny BERT, which does not continue text."""
    config = BertConfig(
        vocab_size=100, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    BertForMaskedLM(config).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder
