"""RoPE, ALiBi and the T5 bias in a plain attention layer of your own: with left padding, a cache and FlexAttention.

    python examples/positions_in_your_own_attention.py

Nothing here needs transformers: a scheme is a module that is handed queries, keys and positions.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from clockhands import positions
from clockhands.attention import attend
from clockhands.schemes import Alibi, RoPE, Scheme, T5Bias

HEADS, HEAD_DIM = 4, 16
WIDTH = HEADS * HEAD_DIM


class Attention(nn.Module):
    """Causal self-attention that knows nothing of how position is encoded."""

    def __init__(self, scheme: Scheme) -> None:
        super().__init__()
        self.scheme = scheme
        self.project, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.project(x).unflatten(-1, (3, HEADS, HEAD_DIM)).permute(2, 0, 3, 1, 4)
        return q, k, v

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """``mask`` is 1 at real tokens; the positions follow from it."""
        pos = positions.count_from_mask(mask)
        visible = mask.bool()[:, None, None, :].expand(-1, 1, x.shape[1], -1)
        mixed = attend(self.scheme, *self.heads(x), pos, pos, visible, causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def step(self, x: Tensor, cache: list[Tensor]) -> Tensor:
        """One more token: its key is turned once, kept, and never touched again."""
        start = cache[0].shape[2] if cache else 0
        pos = positions.count_up(x.shape[0], 1, start=start)
        q, k, v = self.heads(x)
        q, k = self.scheme.rotate(q, k, pos, pos)
        cache[:] = [torch.cat([old, new], dim=2) for old, new in zip(cache, (k, v), strict=True)] if cache else [k, v]
        everywhere = positions.count_up(x.shape[0], start + 1)
        scale = self.scheme.scale(HEAD_DIM)
        mixed = attend(self.scheme, q, *cache, pos, everywhere, causal=True, rotated=True, scale=scale)
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
    x, full = torch.randn(1, 6, WIDTH), torch.ones(1, 6, dtype=torch.long)
    for scheme in (RoPE(HEAD_DIM), Alibi(HEADS), T5Bias(HEADS, WIDTH)):
        layer, name = Attention(scheme).eval(), type(scheme).__name__
        whole = layer(x, full)

        padded = torch.cat([torch.zeros(1, 3, WIDTH), x], dim=1)
        mask = torch.cat([torch.zeros(1, 3, dtype=torch.long), full], dim=1)
        print(f"{name}: left padding changes the result by {(layer(padded, mask)[:, 3:] - whole).abs().max():.1e}")

        cache: list[Tensor] = []
        steps = torch.cat([layer.step(x[:, t : t + 1], cache) for t in range(6)], dim=1)
        print(f"{name}: token by token with a cache it changes by {(steps - whole).abs().max():.1e}")

        if "bias" in scheme.active_hooks():
            q, k, v = layer.heads(x)
            pos = positions.count_up(1, 6)
            apart = flex(scheme, q, k, v) - attend(scheme, q, k, v, pos, pos, causal=True)
            print(f"{name}: FlexAttention differs by {apart.abs().max():.1e}")


if __name__ == "__main__":
    main()
