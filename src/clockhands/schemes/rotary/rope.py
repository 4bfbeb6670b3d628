"""Rotary position embedding: queries and keys turn, and their scores see only the difference of the angles."""

from __future__ import annotations

from typing import Literal, final

import torch

from clockhands.errors import ConfigError
from clockhands.schemes.absolute.sinusoidal import angles, frequencies
from clockhands.schemes.base import Declares, KeyPositions, Positions, Scheme
from clockhands.shapes import Float, Tensor


def turn(
    x_BHSK: Float[Tensor, "B H S K"],
    cos_BHSF: Float[Tensor, "#B #H S F"],
    sin_BHSF: Float[Tensor, "#B #H S F"],
    layout: Literal["interleaved", "half"],
) -> Float[Tensor, "B H S K"]:
    """Rotate the first 2F channels pair by pair, in float32; pairs are (2c, 2c+1) or (c, c+F). The rest passes."""
    turned = 2 * cos_BHSF.shape[-1]
    head, rest = x_BHSK[..., :turned].float(), x_BHSK[..., turned:]
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
        layout: Literal["half", "interleaved"] = "half",
        fraction: float = 1.0,
    ) -> None:
        super().__init__()
        turned = int(head_dim * fraction)
        if not 0 < fraction <= 1 or turned < 2 or turned % 2:
            raise ConfigError(
                [
                    f"rope turns pairs of channels, an even number: head_dim {head_dim} x fraction {fraction} is {turned} channels"
                ],
                "the scheme",
            )
        self.layout: Literal["half", "interleaved"] = layout
        self.register_buffer("theta_F", frequencies(turned, base), persistent=False)

    @property
    def declares(self) -> Declares:
        return Declares(translation_invariant=True, real_valued=True)

    def rotate(
        self,
        q_BHSK: Float[Tensor, "B H S K"],
        k_BHTK: Float[Tensor, "B H T K"],
        qpos_BS: Positions,
        kpos_BT: KeyPositions,
    ) -> tuple[Float[Tensor, "B H S K"], Float[Tensor, "B H T K"]]:
        q_angle, k_angle = angles(qpos_BS, self.theta_F)[:, None], angles(kpos_BT, self.theta_F)[:, None]
        return (
            turn(q_BHSK, q_angle.cos().float(), q_angle.sin().float(), self.layout),
            turn(k_BHTK, k_angle.cos().float(), k_angle.sin().float(), self.layout),
        )
