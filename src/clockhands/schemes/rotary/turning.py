"""Turning pairs of channels by angles: what all rotary schemes share."""

from __future__ import annotations

from typing import Literal

import torch

from clockhands.errors import ConfigError
from clockhands.schemes.base import KeyPositions, Positions, Scheme
from clockhands.schemes.hands import Memo, working
from clockhands.shapes import Float, Num, Tensor

Layout = Literal["interleaved", "half"]
CosSin = tuple[Float[Tensor, "#B #H S F"], Float[Tensor, "#B #H S F"]]


def turn(
    x_BHSK: Float[Tensor, "B H S K"],
    cos_BHSF: Float[Tensor, "#B #H S F"],
    sin_BHSF: Float[Tensor, "#B #H S F"],
    layout: Layout,
) -> Float[Tensor, "B H S K"]:
    """Rotate the first 2F channels pair by pair; pairs are (2c, 2c+1) or (c, c+F). The rest passes.

    Low precision turns in float32 and comes back in its own dtype.
    """
    turned = 2 * cos_BHSF.shape[-1]
    head, rest = x_BHSK[..., :turned].to(cos_BHSF.dtype), x_BHSK[..., turned:]
    pair_dim = -1 if layout == "interleaved" else -2
    a, b = head.unflatten(-1, (-1, 2) if layout == "interleaved" else (2, -1)).unbind(pair_dim)
    pair = (a * cos_BHSF - b * sin_BHSF, b * cos_BHSF + a * sin_BHSF)
    return torch.cat([torch.stack(pair, dim=pair_dim).flatten(-2).to(x_BHSK.dtype), rest], dim=-1)


def check_pairs(scheme: str, channels: int, said: str) -> None:
    """Raise ConfigError unless ``channels`` is an even number above 0; ``said`` tells where it comes from."""
    if channels < 2 or channels % 2:
        raise ConfigError(
            [f"{scheme} turns pairs of channels, an even number: {said} is {channels} channels"], "the scheme"
        )


class Rotary(Scheme):
    """Base of the schemes that turn q and k alike. A subclass gives ``waves``: cosines and sines from positions.

    ``memoised``: whether they are kept while the position tensor lives (not where they are learned).
    """

    memoised = True

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.layout: Layout = layout
        self._memo = Memo()

    def waves(self, pos: Num[Tensor, "B ..."], dtype: torch.dtype) -> CosSin:
        """Cosine and sine of every pair's angle, [#B, #H, S, F]."""
        raise NotImplementedError(f"{type(self).__name__} must give its angles")

    def cos_sin(self, pos: Num[Tensor, "B ..."], dtype: torch.dtype = torch.float32) -> CosSin:
        """``waves``, computed once for all layers that pass this very position tensor."""
        if not self.memoised:
            return self.waves(pos, dtype)
        return self._memo(pos, dtype, lambda: self.waves(pos, dtype))

    def rotate(
        self,
        q_BHSK: Float[Tensor, "B H S K"],
        k_BHTK: Float[Tensor, "B H T K"],
        qpos_BS: Positions,
        kpos_BT: KeyPositions,
    ) -> tuple[Float[Tensor, "B H S K"], Float[Tensor, "B H T K"]]:
        dtype = working(q_BHSK.dtype)
        return (
            turn(q_BHSK, *self.cos_sin(qpos_BS, dtype), self.layout),
            turn(k_BHTK, *self.cos_sin(kpos_BT, dtype), self.layout),
        )


def with_heads(cos: Tensor, sin: Tensor) -> CosSin:
    """[B, S, F] gains a head axis; [B, H, S, F] has one."""
    return (cos, sin) if cos.dim() == 4 else (cos[:, None], sin[:, None])
