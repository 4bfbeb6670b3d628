"""Train a small language model of this project for a few seconds, and see what its rotation does, before and after.

    python examples/inspect_own_model.py [FOLDER]

With a folder, the page is written there.
"""

from __future__ import annotations

import sys

import torch
from torch.nn import functional as F

import clockhands
from clockhands.data import encode_stream, open_corpus, train_tokenizer
from clockhands.model import PositionConfig, TokenBatch, Transformer, TransformerConfig
from clockhands.report import put_side_by_side, show, write


def main() -> None:
    torch.manual_seed(0)
    documents = list(open_corpus("stdlib").documents("train"))[:60]
    tokenizer = train_tokenizer(documents, kind="bpe", vocabulary=1000, task="language modelling")
    stream = torch.as_tensor(encode_stream(tokenizer, documents)).long()
    model = Transformer(
        TransformerConfig(
            kind="decoder",
            vocab_size=len(tokenizer),
            d_model=64,
            num_heads=4,
            d_ff=256,
            decoder_layers=2,
            norm="pre",
            dropout=0.0,
            decoder=PositionConfig("rope"),
        )
    )
    options = {"texts": documents, "length": 32, "count": 32, "control": False}
    before = clockhands.inspect(model, tokenizer, name="before", **options)
    train(model, stream)
    after = clockhands.inspect(model, tokenizer, name="after", **options)
    both = put_side_by_side(before, after)
    show(both)
    if len(sys.argv) > 1:
        print(write(both, sys.argv[1])[0])


def train(model: Transformer, stream: torch.Tensor, steps: int = 150, length: int = 32) -> None:
    """Next-word prediction on random windows."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model.train()
    for _ in range(steps):
        starts = torch.randint(len(stream) - length - 1, (16,))
        windows = torch.stack([stream[start : start + length + 1] for start in starts])
        logits = model.output(model.decode(TokenBatch(windows[:, :-1])))
        loss = F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    print(f"loss after {steps} steps: {loss.item():.2f}")


if __name__ == "__main__":
    main()
