"""A language model whose limit is known: it copies what followed the last time that it read a token, up to a distance.

It is a model like any other to what measures it; only its weights are rules.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import GPT2Config

from clockhands.models import LanguageModel
from tests.runs.tiny import make_tokenizer

SURE = 6.0


class Copying(nn.Module):
    """Predicts what followed the last occurrence of the token that it reads.

    ``window``: how far back it sees. ``table``: the longest text that it reads at all. ``period``: from this distance
    on it mistakes a place for the one a period nearer, as hands do that have come round.
    """

    def __init__(self, window: int | None = None, table: int | None = None, period: int | None = None) -> None:
        super().__init__()
        self.window, self.table, self.period = window, table, period
        self.embedding = nn.Embedding(100, 1)
        self.config = GPT2Config()  # which names no rotation

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embedding

    def forward(self, input_ids: Any, use_cache: bool = False, logits_to_keep: int = 0) -> Any:
        length = input_ids.shape[1]
        if self.table is not None and length > self.table:
            raise IndexError("index out of range in self")
        place_S = torch.arange(length)
        last = length - logits_to_keep if logits_to_keep else 0
        distance_QS = place_S[last:, None] - place_S
        seen_QS = (distance_QS > 0) & (distance_QS < (self.window or length + 1))
        same_BQS = (input_ids[:, last:, None] == input_ids[:, None]) & seen_QS
        found_BQ, source_BQ = (same_BQS * (place_S + 1)).max(-1)
        if self.period is not None:
            far_BQ = place_S[last:] - source_BQ >= self.period
            source_BQ = torch.where(far_BQ, source_BQ + self.period, source_BQ).clamp(max=length - 2)
        copied_BQ = input_ids.gather(1, (source_BQ + 1).clamp(max=length - 1))
        logits_BQV = torch.zeros(*copied_BQ.shape, 100)
        logits_BQV.scatter_(2, copied_BQ[..., None], SURE)
        return SimpleNamespace(logits=logits_BQV * (found_BQ > 0)[..., None])


def make_planted(**limit: Any) -> LanguageModel:
    """Make a planted model with a tokenizer of characters."""
    return LanguageModel("planted", Copying(**limit), make_tokenizer())


def make_stream(tokens: int, seed: int) -> Any:
    """Make a text of digits and signs in one order again and again, which a copying model predicts.

    It has no letter: names and values stand in facts alone.
    """
    signs = make_tokenizer()("0123456789+-*/()")["input_ids"]
    return np.resize(np.random.default_rng(seed).permutation(signs), tokens)
