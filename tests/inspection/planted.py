"""Models made by hand, whose answers are known."""

from __future__ import annotations

import math
from typing import Any

import torch
import transformers as hf

from clockhands.inspection.capture import Capture
from clockhands.inspection.measures.heads import Counts, HeadStatistics

WIDTH, LENGTH, VOCAB = 64, 32, 200
HALF = WIDTH // 2
PERIODS = (3.1, 5.0, 7.7, 12.0, 19.0, 30.0, 47.0, 61.0)


def ids(texts: int = 32, seed: int = 0) -> torch.Tensor:
    """Random token ids: nothing about a word's neighbours can be learnt from them."""
    return torch.randint(5, VOCAB, (texts, LENGTH), generator=torch.Generator().manual_seed(seed))


def clock(length: int = LENGTH, periods: tuple[float, ...] = PERIODS) -> torch.Tensor:
    """Hands of constant speed, each followed by its opposite, so that every row has mean zero and one length."""
    t = torch.arange(length)[:, None]
    angle = 2 * math.pi * t / torch.tensor(periods)
    hands = torch.stack([angle.cos(), angle.sin()], dim=-1).flatten(1)
    return torch.cat([hands, -hands], dim=-1)


def bert(layers: int = 1, heads: int = 2, **options: Any) -> Any:
    """A BERT without noise: no biases, tables and projections zero, words in the upper half of the dimensions."""
    config = hf.BertConfig(
        vocab_size=VOCAB,
        hidden_size=WIDTH,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=8,
        max_position_embeddings=LENGTH,
        **options,
    )
    torch.manual_seed(0)
    model = hf.BertModel(config, add_pooling_layer=False).eval()
    with torch.no_grad():
        embeddings = model.embeddings
        embeddings.position_embeddings.weight.zero_()
        embeddings.token_type_embeddings.weight.zero_()
        embeddings.word_embeddings.weight.zero_()
        signs = torch.randint(0, 2, (VOCAB, HALF // 2)) * 2.0 - 1.0
        embeddings.word_embeddings.weight[:, HALF:] = torch.cat([signs, -signs], dim=-1)
    return model


def previous_token(sharpness: float = 3.0) -> Any:
    """Head 0 looks exactly one back, by position alone; head 1 looks at equal words, by content alone."""
    model = bert()
    with torch.no_grad():
        model.embeddings.position_embeddings.weight[:, :HALF] = clock()
        attention = model.encoder.layer[0].attention.self
        turn = torch.zeros(HALF, HALF)
        for pair, period in enumerate(PERIODS * 2):
            angle = 2 * math.pi / period
            block = torch.tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
            turn[2 * pair : 2 * pair + 2, 2 * pair : 2 * pair + 2] = block
        for projection in (attention.query, attention.key):
            projection.weight.zero_()
            projection.bias.zero_()
        attention.query.weight[:HALF, :HALF] = sharpness * turn
        attention.key.weight[:HALF, :HALF] = torch.eye(HALF)
        attention.query.weight[HALF:, HALF:] = torch.eye(HALF)
        attention.key.weight[HALF:, HALF:] = torch.eye(HALF)
    return model


def heads_of(recorded: Capture, layer: int = 0) -> HeadStatistics:
    """One layer's attention, counted over all texts."""
    counts = Counts(recorded.ordinary_T)
    for _, call in recorded.layers[layer].calls():
        counts.add(call)
    return counts.statistics()
