"""Rotary position embedding: queries and keys turn, and their scores see only the difference of the angles."""

from __future__ import annotations

from typing import Any, Literal, final

import torch

from clockhands.errors import ConfigError
from clockhands.schemes.base import Declares, KeyPositions, Positions, Scheme
from clockhands.schemes.hands import Memo, cos_sin, frequencies, one_row, single_axis, working
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


@final
class RoPE(Scheme):
    """Rotary position embedding (Su et al. 2021, equation 34): q and k of position p turn by p·θ_c, values never.

    Args:
        head_dim: width of a head, d_head.
        base: θ_c = base^(-2c/r) with r the number of channels that turn.
        layout: pairs ``half`` (c, c + r/2), as in GPT-NeoX and Llama checkpoints of transformers, or ``interleaved``
            (2c, 2c + 1), as in the paper and GPT-J.
        fraction: share of the head's channels that turn (partial rotary); the rest carries no position.
    """

    equation = r"q_p \mapsto R(p\theta) q_p, \; k_p \mapsto R(p\theta) k_p, \quad \theta_c = b^{-2c/r}"
    source = "Su et al. 2021, section 3.2"
    peers = ("transformers Llama", "rotary-embedding-torch", "x-transformers rotary_pos_emb")

    def __init__(
        self,
        head_dim: int,
        *,
        base: float = 10_000.0,
        layout: Layout = "half",
        fraction: float = 1.0,
    ) -> None:
        super().__init__()
        turned = int(head_dim * fraction)
        if not 0 < fraction <= 1 or turned < 2 or turned % 2:
            raise ConfigError(
                [
                    f"rope turns pairs of channels, an even number: head_dim {head_dim} x fraction {fraction} "
                    f"is {turned} channels"
                ],
                "the scheme",
            )
        self.base, self.layout, self.fraction, self.turned = base, layout, fraction, turned
        self._memo = Memo()

    @property
    def declares(self) -> Declares:
        return Declares(translation_invariant=True, real_valued=True)

    def frequencies(self, device: torch.device | str | None = None) -> Float[Tensor, " F"]:
        """Radians per position of each pair, in float64."""
        return frequencies(self.turned, self.base, device=device)

    def cos_sin(self, pos: Num[Tensor, "B ..."], dtype: torch.dtype = torch.float32) -> CosSin:
        """Cosines and sines [#B, #H, S, F], computed once for all layers that pass this very position tensor."""
        return self._memo(pos, dtype, lambda: self._cos_sin(pos, dtype))

    def _cos_sin(self, pos: Num[Tensor, "B ..."], dtype: torch.dtype) -> CosSin:
        own = one_row(single_axis(pos, "rope"))
        cos, sin = cos_sin(own, self.frequencies(own.device), dtype)
        return (cos, sin) if own.dim() == 3 else (cos[:, None], sin[:, None])

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

    def to_hf_config(self) -> dict[str, Any] | None:
        parameters: dict[str, Any] = {"rope_type": "default", "rope_theta": self.base}
        if self.fraction != 1.0:
            parameters["partial_rotary_factor"] = self.fraction
        return {"rope_parameters": parameters}
