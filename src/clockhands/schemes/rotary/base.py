"""The base of the schemes that rotate queries and keys alike; ``rotation`` computes the rotation."""

from __future__ import annotations

import torch

from clockhands.errors import ConfigError
from clockhands.schemes.frequencies import Memo, choose_working_dtype
from clockhands.schemes.rotary.rotation import Layout, RotationTable, make_table, rotate_heads
from clockhands.schemes.scheme import KeyPositions, Positions, Scheme
from clockhands.shapes import Float, Num, Tensor

__all__ = ["CosSin", "Rotary", "add_head_axis", "check_pairs", "rotate_pairs"]

CosSin = tuple[Float[Tensor, "#B #H S F"], Float[Tensor, "#B #H S F"]]


def rotate_pairs(
    x_BHSK: Float[Tensor, "B H S K"],
    cos_BHSF: Float[Tensor, "#B #H S F"],
    sin_BHSF: Float[Tensor, "#B #H S F"],
    layout: Layout,
) -> Float[Tensor, "B H S K"]:
    """Rotate the first 2F channels pair by pair; pairs are (2c, 2c+1) or (c, c+F). The other channels stay."""
    return rotate_heads(make_table(cos_BHSF, sin_BHSF, layout, x_BHSK.shape[-1], x_BHSK.dtype), x_BHSK)[0]


def check_pairs(scheme: str, channels: int, said: str) -> None:
    """Raise ConfigError unless ``channels`` is an even number above 0; ``said`` tells where it comes from."""
    if channels < 2 or channels % 2:
        raise ConfigError(
            [f"{scheme} rotates pairs of channels, an even number: {said} is {channels} channels"], "the scheme"
        )


class Rotary(Scheme):
    """Base of the schemes that rotate q and k alike. A subclass gives ``compute_cos_sin``.

    ``memoised``: whether cosines and sines are kept while the position tensor lives (not where they are learned).
    """

    memoised = True

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.layout: Layout = layout
        self._memo = Memo()

    def compute_cos_sin(self, pos: Num[Tensor, "B ..."], dtype: torch.dtype) -> CosSin:
        """Return cosine and sine of every pair's angle: [#B, #H, S, F], in ``dtype``."""
        raise NotImplementedError(f"{type(self).__name__} must give its angles")

    def rotate_heads(
        self, pos: Num[Tensor, "B ..."], *heads_BHSK: Float[Tensor, "B _H S K"]
    ) -> tuple[Float[Tensor, "B _H S K"], ...]:
        """Rotate heads to their positions; all layers that pass this very position tensor share one table."""
        width, dtype = heads_BHSK[0].shape[-1], heads_BHSK[0].dtype

        def compute() -> RotationTable:
            return make_table(*self.compute_cos_sin(pos, choose_working_dtype(dtype)), self.layout, width, dtype)

        return rotate_heads(self._memo(pos, (dtype, width), compute) if self.memoised else compute(), *heads_BHSK)

    def rotate(
        self,
        q_BHSK: Float[Tensor, "B H S K"],
        k_BHTK: Float[Tensor, "B H T K"],
        qpos_BS: Positions,
        kpos_BT: KeyPositions,
    ) -> tuple[Float[Tensor, "B H S K"], Float[Tensor, "B H T K"]]:
        """Rotate queries [B, H, S, K] and keys [B, H, T, K] to their positions.

        One call rotates both where the positions are the same tensor.
        """
        if qpos_BS is kpos_BT and q_BHSK.dtype == k_BHTK.dtype:
            q_BHSK, k_BHTK = self.rotate_heads(qpos_BS, q_BHSK, k_BHTK)
            return q_BHSK, k_BHTK
        return self.rotate_heads(qpos_BS, q_BHSK)[0], self.rotate_heads(kpos_BT, k_BHTK)[0]


def add_head_axis(cos: Tensor, sin: Tensor) -> CosSin:
    """Give cosine and sine a head axis: [B, S, F] becomes [B, 1, S, F]; [B, H, S, F] stays."""
    return (cos, sin) if cos.dim() == 4 else (cos[:, None], sin[:, None])
