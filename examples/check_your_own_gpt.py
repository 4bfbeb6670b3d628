"""Check how a GPT written from scratch handles position: four arguments are all that is asked of it.

    python examples/check_your_own_gpt.py

The model below is the kind everybody writes first: learned positions, a causal mask, a cache. It has one mistake that
many have made: while decoding with a cache, positions start again at zero. The checker finds it without knowing the
model; with ``--mended`` the mistake is gone.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

import clockhands


class GPT(nn.Module):
    """Two layers, learned positions. ``forward(ids, mask, positions, cache)`` is the whole adapter."""

    vocabulary, max_length, width, heads = 65, 96, 48, 4

    def __init__(self, mended: bool) -> None:
        super().__init__()
        self.mended = mended
        self.tokens = nn.Embedding(self.vocabulary, self.width)
        self.position_embedding = nn.Embedding(self.max_length, self.width)
        self.project = nn.ModuleList(nn.Linear(self.width, 3 * self.width) for _ in range(2))
        self.head = nn.Linear(self.width, self.vocabulary)

    def new_cache(self) -> dict[int, tuple[Tensor, Tensor]]:
        return {}

    def roll_back(self, cache: dict[int, tuple[Tensor, Tensor]], tokens: int) -> None:
        for layer, (keys, values) in cache.items():
            cache[layer] = (keys[:, :, :-tokens], values[:, :, :-tokens])

    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
        cache: dict[int, tuple[Tensor, Tensor]] | None = None,
    ) -> Tensor:
        past = cache[0][0].shape[2] if cache else 0
        if positions is None:
            start = past if self.mended else 0
            positions = torch.arange(start, start + ids.shape[1], device=ids.device).expand(ids.shape)
        if int(positions.max()) >= self.max_length:
            raise ValueError(f"position {int(positions.max())} is beyond the maximum length {self.max_length}")
        hidden = self.tokens(ids) + self.position_embedding(positions)
        allowed = torch.ones(ids.shape[1], past + ids.shape[1], dtype=torch.bool, device=ids.device).tril(past)
        if mask is not None:
            allowed = allowed & (mask if mask.dim() == 4 else mask[:, None, None].bool())
        for layer, project in enumerate(self.project):
            q, k, v = (x.unflatten(-1, (self.heads, -1)).transpose(1, 2) for x in project(hidden).chunk(3, -1))
            if cache and layer in cache:
                k, v = (torch.cat(pair, 2) for pair in zip(cache[layer], (k, v), strict=True))
            if cache is not None:
                cache[layer] = (k, v)
            hidden = hidden + scaled_dot_product_attention(q, k, v, attn_mask=allowed).transpose(1, 2).flatten(2)
        return self.head(hidden)


def main() -> None:
    torch.manual_seed(0)
    findings = clockhands.check(GPT(mended="--mended" in sys.argv))
    for finding in findings:
        if finding.light in ("bad", "warn"):
            print(f"{finding.name}: {finding.verdict}")
    print(findings.facts["reliance"])


if __name__ == "__main__":
    main()
