"""Schemes of five kinds in a plain attention layer of your own: with left padding, a cache and FlexAttention.

    python examples/positions_in_your_own_attention.py

Nothing here needs transformers: a scheme is a module that is handed queries, keys and positions. ``Positioning`` calls
all of its hooks, at the embedding and in the layer.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from clockhands import positions
from clockhands.attention import Cache, Positioning, attend
from clockhands.schemes import Alibi, Forgetting, RoPE, Scheme, Sinusoidal, T5Bias

HEADS, HEAD_DIM = 4, 16
WIDTH = HEADS * HEAD_DIM


class Attention(nn.Module):
    """Causal self-attention that knows nothing of how position is encoded."""

    def __init__(self, scheme: Scheme) -> None:
        super().__init__()
        self.position = Positioning(scheme)
        self.project, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.project(x).unflatten(-1, (3, HEADS, HEAD_DIM)).permute(2, 0, 3, 1, 4)
        return q, k, v

    def forward(self, x: Tensor, pos: Tensor, visible: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """``visible`` is True at the keys that are tokens, ``cache`` holds the tokens so far."""
        x = self.position.embed(x, pos)
        mixed = self.position.attend(0, *self.heads(x), pos, visible, x=x, causal=True, cache=cache)
        return self.out(mixed.transpose(1, 2).flatten(2))


def flex(scheme: Scheme, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The same bias through FlexAttention: the scheme gives the ``score_mod``."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    pos = positions.count_up(q.shape[0], q.shape[2])
    causal = create_block_mask(lambda b, h, i, j: i >= j, None, None, q.shape[2], k.shape[2], device="cpu")
    scale = scheme.scale(q.shape[-1])
    out = flex_attention(q, k, v, score_mod=scheme.score_mod(pos, pos), block_mask=causal, scale=scale)
    assert isinstance(out, Tensor)
    return out


@torch.no_grad()
def main() -> None:
    torch.manual_seed(0)
    x, pos = torch.randn(1, 6, WIDTH), positions.count_up(1, 6)
    for scheme in (Sinusoidal(WIDTH), RoPE(HEAD_DIM), Alibi(HEADS), T5Bias(HEADS, WIDTH), Forgetting(WIDTH, HEADS)):
        layer, name = Attention(scheme).eval(), type(scheme).__name__
        whole = layer(x, pos)

        padded, mask = torch.cat([torch.zeros(1, 3, WIDTH), x], dim=1), torch.ones(1, 9, dtype=torch.long)
        mask[:, :3] = 0
        left = layer(padded, positions.count_from_mask(mask), mask.bool()[:, None, None, :])
        print(f"{name}: left padding changes the result by {(left[:, 3:] - whole).abs().max():.1e}")

        cache = Cache()
        steps = torch.cat([layer(x[:, t : t + 1], pos[:, t : t + 1], cache=cache) for t in range(6)], dim=1)
        print(f"{name}: token by token with a cache it changes by {(steps - whole).abs().max():.1e}")

        if scheme.active_hooks() == {"bias"}:
            q, k, v = layer.heads(x)
            apart = flex(scheme, q, k, v) - attend(scheme, q, k, v, pos, pos, causal=True)
            print(f"{name}: FlexAttention differs by {apart.abs().max():.1e}")


if __name__ == "__main__":
    main()
