"""Look inside a model that you wrote yourself: what a module needs so that ``inspect`` can read it.

    python examples/inspect_custom_model.py

A ``transformers.PreTrainedModel`` whose ``forward`` returns its hidden states, the embedding output first, is enough.
Where the positions stand, and how attention is computed, is found out: any ``softmax`` over queries and keys is seen,
and so is ``scaled_dot_product_attention``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

import clockhands


class MiniConfig(PreTrainedConfig):
    """The sizes of the model."""

    model_type = "mini"

    def __init__(self, vocab_size: int = 300, width: int = 32, layers: int = 2, longest: int = 64, **rest: Any) -> None:
        super().__init__(**rest)
        self.vocab_size, self.width, self.layers, self.longest = vocab_size, width, layers, longest


class Block(nn.Module):
    """One layer: causal attention in four heads, then a feed-forward part."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = Attention(width)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.feed(self.norms[1](x))


class Attention(nn.Module):
    """Self-attention by the fused function of torch."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.output(heads.transpose(1, 2).flatten(2))


class Mini(PreTrainedModel):
    """A small language model with a learned table of positions."""

    config_class = MiniConfig

    def __init__(self, config: MiniConfig) -> None:
        super().__init__(config)
        self.words, self.places = (nn.Embedding(n, config.width) for n in (config.vocab_size, config.longest))
        self.blocks = nn.ModuleList([Block(config.width) for _ in range(config.layers)])
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.words

    def forward(self, input_ids: torch.Tensor, attention_mask: Any = None, **rest: Any) -> BaseModelOutput:
        x = self.words(input_ids) + self.places(torch.arange(input_ids.shape[1]))
        states = [x]
        for block in self.blocks:
            x = block(x)
            states.append(x)
        return BaseModelOutput(last_hidden_state=x, hidden_states=tuple(states))


def main() -> None:
    torch.manual_seed(0)
    ids = torch.randint(300, (16, 32))
    findings = clockhands.inspect(Mini(MiniConfig()), ids=ids, control=False)
    print(findings.facts["position"])
    for name in ("loudness", "logits.layers", "cause"):
        print(f"\n{findings[name].question}\n  {findings[name].verdict}")


if __name__ == "__main__":
    main()
