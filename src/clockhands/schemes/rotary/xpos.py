"""xPos: rotation with a decay, so that far tokens fade."""

from __future__ import annotations

import math
from typing import final

import torch

from clockhands.errors import PositionError
from clockhands.options import Positive
from clockhands.schemes.frequencies import (
    choose_angle_dtype,
    choose_working_dtype,
    compute_cos_sin,
    compute_frequencies,
    take_axis,
)
from clockhands.schemes.position_checks import can_read
from clockhands.schemes.rotary.rotation import Layout, check_pairs, rotate_pairs
from clockhands.schemes.scheme import Declares, KeyPositions, Keys, Queries, QueryPositions, Rotated, Scheme
from clockhands.shapes import Float, Tensor


@final
class XPos(Scheme):
    """RoPE with q·ζ_c^{(i-o)/s} and k·ζ_c^{-(j-o)/s}, ζ_c = (2c/d + γ)/(1 + γ) (Sun et al. 2023, equation 12).

    Only i - j matters, so the origin o may be any number that q and k share; here it is the middle of the keys that are
    looked at, and keys are cached raw, so that the factors stay near 1 (trap 24: libraries centre q and k differently).
    Under a causal mask only: for keys to the right the factor grows.

    Args:
        head_dim: width of a head; even.
        base: θ_c = base^(-2c/d).
        layout: pairs ``half`` or ``interleaved``, as in ``rope``.
        scale_base: s, the tokens over which a factor ζ acts once (the paper's Algorithm 1 leaves it out; its code has
            512).
        gamma: γ; the pair that rotates fastest is multiplied by γ/(1 + γ) for every s tokens of distance.

    Raises PositionError where keys stretch so far that a factor would leave the range of the dtype.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import XPos
        >>> q, pos = torch.ones(1, 1, 2, 2), torch.tensor([[0, 1]])
        >>> XPos(head_dim=2).rotate(q, q, pos, pos)[0][0, 0]
        tensor([[ 1.0000,  1.0000],
                [-0.3004,  1.3784]])
    """

    equation = r"\ell_{ij} = \sum_c \zeta_c^{(i-j)/s} \, Re[q_c k_c^* e^{\mathrm{i}(i-j)\theta_c}]"
    source = "Sun et al. 2023, equation 12 and Algorithm 1"
    peers = ("torchscale XPOS", "rotary-embedding-torch use_xpos", "x-transformers rotary_xpos")
    models = ("RetNet",)

    def __init__(
        self,
        head_dim: int,
        *,
        base: Positive = 10_000.0,
        layout: Layout = "interleaved",
        scale_base: Positive = 512.0,
        gamma: Positive = 0.4,
    ) -> None:
        super().__init__()
        check_pairs("xpos", head_dim, "head_dim")
        self.head_dim, self.base, self.layout = head_dim, base, layout
        self.scale_base, self.gamma = scale_base, gamma

    declares = Declares(translation_invariant=True, causal_only=True, cache="raw", real_valued=True)

    def rotate(self, q_BHSK: Queries, k_BHTK: Keys, qpos: QueryPositions, kpos: KeyPositions) -> Rotated:
        qpos, kpos = take_axis(qpos, "xpos"), take_axis(kpos, "xpos")
        low, high = kpos.amin(-1, keepdim=True), kpos.amax(-1, keepdim=True)
        # Only differences count: centred on the keys, neither side grows beyond float32.
        middle = low + torch.div(high - low, 2, rounding_mode="floor")
        self._check(high - low, q_BHSK.dtype)
        return self._rotate(q_BHSK, qpos, middle, 1), self._rotate(k_BHTK, kpos, middle, -1)

    def _rotate(self, x_BHSK: Tensor, pos_BS: Tensor, middle_B1: Tensor, sign: int) -> Float[Tensor, "B H S K"]:
        dtype = choose_working_dtype(x_BHSK.dtype)
        cos, sin = compute_cos_sin(
            pos_BS, compute_frequencies(self.head_dim, self.base, device=pos_BS.device), torch.float64
        )
        share_F = (
            torch.arange(self.head_dim // 2, device=pos_BS.device, dtype=choose_angle_dtype(pos_BS.device))
            * 2
            / self.head_dim
        )
        # ζ^(p/s) as e^(p/s · ln ζ).
        log_zeta_F = ((share_F + self.gamma) / (1 + self.gamma)).log()
        power_BSF = (pos_BS - middle_B1).to(share_F.dtype)[..., None] * (sign / self.scale_base)
        factor_BSF = (power_BSF * log_zeta_F).exp()
        cos = (cos * factor_BSF).to(dtype)[:, None]
        sin = (sin * factor_BSF).to(dtype)[:, None]
        return rotate_pairs(x_BHSK, cos, sin, self.layout)

    def _check(self, span_B1: Tensor, dtype: torch.dtype) -> None:
        """Raise PositionError for a span over which the largest factor passes the root of what the dtype holds."""
        if not can_read(span_B1):
            return
        # The fastest decay, of the first pair, decides how far the numbers reach.
        strongest = -math.log(self.gamma / (1 + self.gamma)) / self.scale_base
        most = int(math.log(torch.finfo(dtype).max) / strongest)
        if float(span_B1.max()) > most:
            raise PositionError(
                f"keys stretch over {float(span_B1.max()):.0f} positions, and xpos in {dtype} holds {most} at most; "
                f"raise scale_base, which is {self.scale_base}, or look through a window"
            )
