"""GPT-2s whose heads are made by hand: each does one thing, by position or by token."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
import transformers as hf

from clockhands.inspection.reading.reading import Reading, read_model
from clockhands.inspection.reading.windows import Windows
from clockhands.models.subject import Subject

Kind = Literal["uniform", "previous", "weak previous", "first position", "token 5", "induction"]
VOCAB, LENGTH, CONTENT, HANDS, HEAD = 64, 64, 32, 16, 48
"""Channels: the token, 8 hands of the position, "I am position 0", "I am token 5", and the token before."""
BEFORE = CONTENT + HANDS + 16
WIDTH = BEFORE + CONTENT
WEAK = 0.25
"""How sharply a weak head looks one token back: with a little less than half of its attention."""
SPEEDS = 2 * math.pi / torch.tensor([3.0, 5, 7, 11, 17, 29, 47, 97])


@torch.no_grad()
def make(*layers: tuple[Kind, ...]) -> Any:
    """A GPT-2 with these heads; the first head of the first layer passes on the token that it looks at."""
    return make_language_model(*layers).transformer


@torch.no_grad()
def make_language_model(*layers: tuple[Kind, ...]) -> Any:
    """The same with its output layer: heads of induction write the token that they look at, to be predicted."""
    torch.manual_seed(0)
    whole = hf.GPT2LMHeadModel(
        hf.GPT2Config(
            vocab_size=VOCAB,
            n_embd=WIDTH,
            n_layer=len(layers),
            n_head=2,
            n_positions=LENGTH,
            bos_token_id=0,
            eos_token_id=0,
        )
    ).eval()
    model = whole.transformer
    tokens, positions = model.wte.weight, model.wpe.weight
    tokens.zero_()
    positions.zero_()
    tokens[:, :CONTENT] = torch.randn(VOCAB, CONTENT) / 2
    angle = torch.arange(LENGTH)[:, None] * SPEEDS
    positions[:, CONTENT : CONTENT + HANDS] = torch.stack([angle.cos(), angle.sin()], dim=-1).flatten(1)
    positions[0, CONTENT + HANDS] = tokens[5, CONTENT + HANDS + 1] = 4.0
    for block, kinds in zip(model.h, layers, strict=True):
        block.mlp.c_proj.weight.zero_()
        for weight in (block.attn.c_attn.weight, block.attn.c_attn.bias, block.attn.c_proj.weight):
            weight.zero_()
        for head, kind in enumerate(kinds):
            _plant(block.attn.c_attn, head, kind)
            if kind == "induction":
                value = slice(2 * WIDTH + head * HEAD, 2 * WIDTH + head * HEAD + CONTENT)
                block.attn.c_attn.weight[:CONTENT, value] = torch.eye(CONTENT)
                block.attn.c_proj.weight[head * HEAD : head * HEAD + CONTENT, :CONTENT] = 20 * torch.eye(CONTENT)
    first = model.h[0].attn
    first.c_attn.weight[:CONTENT, 2 * WIDTH : 2 * WIDTH + CONTENT] = torch.eye(CONTENT)
    first.c_proj.weight[:CONTENT, BEFORE:] = torch.eye(CONTENT)
    return whole


def _plant(projection: Any, head: int, kind: Kind) -> None:
    weight, bias = projection.weight, projection.bias
    query, key = head * HEAD, WIDTH + head * HEAD
    if kind in ("previous", "weak previous"):
        sharpness = 2 if kind == "previous" else WEAK
        for pair, speed in enumerate(SPEEDS):
            at, c, s = CONTENT + 2 * pair, 2 * torch.cos(speed), 2 * torch.sin(speed)
            weight[at : at + 2, query + 2 * pair : query + 2 * pair + 2] = torch.tensor([[c, -s], [s, c]])
            weight[at : at + 2, key + 2 * pair : key + 2 * pair + 2] = sharpness * torch.eye(2)
    elif kind == "induction":
        weight[:CONTENT, query : query + CONTENT] = 3 * torch.eye(CONTENT)
        weight[BEFORE:, key : key + CONTENT] = torch.eye(CONTENT)
    elif kind != "uniform":
        bias[query] = 6.0
        weight[CONTENT + HANDS + (kind == "token 5"), key] = 3.0


def draw(texts: int = 24, *, always_first: int | None = None, length: int = 40) -> torch.Tensor:
    """Random tokens without 5; ``always_first`` stands first in every text."""
    ids = torch.randint(6, VOCAB, (texts, length), generator=torch.Generator().manual_seed(0))
    if always_first is not None:
        ids[:, 0] = always_first
    return ids


def read(model: Any, ids_NT: torch.Tensor) -> Reading:
    """What the measures share, of this model on these texts."""
    windows = Windows(ids_NT, torch.ones(ids_NT.shape[1], dtype=torch.bool))
    return read_model(Subject.of(model, name="planted"), windows)
