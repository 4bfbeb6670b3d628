"""Models made by hand, whose answers are known."""

from __future__ import annotations

import math
from typing import Any

import torch
import transformers as hf

from clockhands.findings import Finding
from clockhands.inspection.measures import MEASURES
from clockhands.inspection.reading.capture import Capture, capture
from clockhands.inspection.reading.head_statistics import HeadStatistics, HeadSums
from clockhands.inspection.reading.logit_split import LogitSplit, split_logits
from clockhands.inspection.reading.reading import Reading
from clockhands.model import PositionConfig, Transformer, TransformerConfig
from clockhands.models.subject import Subject

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


def make_bert(**sizes: Any) -> Any:
    """A BERT with random weights, as wide as all planted ones and with as many positions, unless told otherwise."""
    usual = {"vocab_size": VOCAB, "hidden_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = hf.BertConfig(**{**usual, "intermediate_size": 8, "max_position_embeddings": LENGTH, **sizes})
    torch.manual_seed(0)
    return hf.BertModel(config, add_pooling_layer=False).eval()


def bert(layers: int = 1, heads: int = 2, **options: Any) -> Any:
    """A BERT without noise: no biases, tables and projections zero, words in the upper half of the dimensions."""
    model = make_bert(num_hidden_layers=layers, num_attention_heads=heads, **options)
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


def answer(name: str, subject: Subject, recorded: Capture, **read: Any) -> Finding:
    """What one measure finds in a model that was captured; ``read`` are other fields of the reading."""
    return MEASURES[name].run(Reading(subject, recorded, **read))


def split(recorded: Capture) -> list[LogitSplit]:
    """The logits of every layer in their terms."""
    return [split_logits(layer, recorded.ordinary_T) for layer in recorded.layers]


def table_answer(name: str, subject: Subject) -> Finding:
    """What a measure of the position table finds, which needs no text."""
    return MEASURES[name].run(Reading.without_text(subject))


def heads_of(recorded: Capture, layer: int = 0) -> HeadStatistics:
    """One layer's attention, counted over all texts."""
    counts = HeadSums(recorded.ordinary_T)
    for _, call in recorded.layers[layer].replay_all():
        counts.add(call)
    return counts.summarise()


@torch.no_grad()
def copying(sharpness: float = 30.0) -> Any:
    """Every token's state becomes the word before it: head 0 looks one back and passes on nothing but that word."""
    model = previous_token(sharpness)
    block = model.encoder.layer[0]
    for part in (block.attention.self.value, block.attention.output.dense, block.output.dense):
        part.weight.zero_()
        part.bias.zero_()
    block.attention.self.value.weight[:HALF, HALF:] = torch.eye(HALF)
    block.attention.output.dense.weight[HALF:, :HALF] = 1000 * torch.eye(HALF)
    return model


@torch.no_grad()
def uniform(kind: Any = "encoder", scheme: str = "none", *, keeps: bool = True, **options: Any) -> Transformer:
    """One layer whose queries and keys are zero: every token takes the mean of those that it may see (bag of words).

    ``keeps``: whether a token's own state is added to that mean. ``options`` are the scheme's.
    """
    position = PositionConfig(scheme, options)
    sizes = {"vocab_size": VOCAB, "d_model": 32, "num_heads": 2, "d_ff": 8, "encoder_layers": 1, "decoder_layers": 1}
    sides: dict[str, Any] = {kind: position}
    config = TransformerConfig(kind=kind, norm="pre", final_norm=False, tying="none", ffn_bias=False, **sides, **sizes)
    torch.manual_seed(0)
    model = Transformer(config).eval()
    stack = model.encoder or model.decoder
    assert stack is not None
    block = stack.blocks[0]
    block.attention.qkv.weight.zero_()  # type: ignore[union-attr]
    block.attention.qkv.weight[64:] = torch.eye(32)  # type: ignore[union-attr, index]
    block.attention.out.weight.copy_(torch.eye(32))  # type: ignore[union-attr]
    block.attention_residual.adds_input = keeps  # type: ignore[union-attr]
    block.feed_forward.down.weight.zero_()  # type: ignore[union-attr]
    return model


@torch.no_grad()
def alone(kind: Any = "encoder") -> Transformer:
    """Attention adds nothing: every token keeps its own state and sees no other."""
    model = uniform(kind)
    stack = model.encoder or model.decoder
    assert stack is not None
    stack.blocks[0].attention.out.weight.zero_()  # type: ignore[union-attr]
    return model


@torch.no_grad()
def kernel(kind: Any, scheme: str, *, still: bool = False, **options: Any) -> Transformer:
    """Queries and keys are one constant vector, so that distance alone decides; ``still`` leaves distance nothing.

    For ``rope`` the frequencies are zero then, for ``alibi`` the slopes.
    """
    model = uniform(kind, scheme, **({"learned": True} if scheme in ("rope", "alibi") else {}), **options)
    stack = model.encoder or model.decoder
    assert stack is not None
    first: Any = stack.schemes[0]
    block: Any = stack.blocks[0]
    stack.input.tokens.weight[:, 0] = 3.0
    block.attention.qkv.weight[:64, 0] = 1.0
    if still and scheme == "rope":
        first.alpha_F.fill_(-1e4)  # exp(-10,000) is zero
    elif still:
        first.slopes_OH.zero_()
    return model


def subject_of(model: Any, texts: int = 32) -> tuple[Subject, Capture]:
    """A hand-made model with what was captured of it on random tokens."""
    subject = Subject.of(model, name="planted")
    return subject, capture(subject.model, subject.forward, ids(texts))
