"""Small models for the tests: random everywhere, so that a dropped term shows."""

from __future__ import annotations

from typing import Any

import torch

from clockhands.model import TransformerConfig, make_preset
from clockhands.model.huggingface import ClockhandsForCausalLM, ClockhandsForMaskedLM, ClockhandsForSeq2SeqLM
from clockhands.model.huggingface_base import ClockhandsConfig

VOCABULARY = 41
WORDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
MODELS = {"encoder-decoder": ClockhandsForSeq2SeqLM, "decoder": ClockhandsForCausalLM, "encoder": ClockhandsForMaskedLM}


def core(**changes: Any) -> TransformerConfig:
    """Two layers of width 32 with four heads."""
    small = {"vocab_size": VOCABULARY, "d_model": 32, "num_heads": 4, "d_ff": 48}
    return make_preset("tiny", {**small, **changes})


def model(kind: str = "decoder", *, seed: int = 1, **changes: Any) -> Any:
    """A model for evaluation whose every parameter is away from where it starts."""
    config = ClockhandsConfig(transformer=core(kind=kind, **changes).to_dict(), **WORDS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = MODELS[kind](config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return made.eval()


def words(*shape: int, seed: int = 0) -> torch.Tensor:
    """Random words, none of them special."""
    return torch.randint(3, VOCABULARY, shape, generator=torch.Generator().manual_seed(seed))
