"""Sums along a text of what each token brings, exact at any length and kept with the keys in float32."""

from __future__ import annotations

import torch

from clockhands.schemes.frequencies import choose_angle_dtype
from clockhands.shapes import Float, Tensor

Coordinates = Float[Tensor, "B H T A2"]


def accumulate(step_BHSA: Float[Tensor, "B H S A"], past_BHTA: Coordinates | None) -> Float[Tensor, "B H S A2"]:
    """Return the sums up to and including each token, continued from the last cached one: [B, H, S, 2A].

    They are added in float64, as float32 is off by 2e-3 after 32,768 tokens, and returned as two float32 parts, first
    the A rounded sums and then the A remainders: the cache keeps coordinates in float32.
    """
    sum_BHSA = step_BHSA.to(choose_angle_dtype(step_BHSA.device)).cumsum(dim=2)
    if past_BHTA is not None:
        sum_BHSA = sum_BHSA + read_sums(past_BHTA[:, :, -1:])
    # Two float32 hold the 48 leading bits of a float64.
    high_BHSA = sum_BHSA.float()
    return torch.cat([high_BHSA, (sum_BHSA - high_BHSA.to(sum_BHSA.dtype)).float()], dim=-1)


def read_sums(parts_BHTA: Coordinates) -> Float[Tensor, "B H T A1"]:
    """Return the sums, in float64, of the two float32 parts that ``accumulate`` made of them: [B, H, T, A/2]."""
    high, low = parts_BHTA.to(choose_angle_dtype(parts_BHTA.device)).chunk(2, dim=-1)
    return high + low


def subtract_sums(query_BHS2: Float[Tensor, "B H S 2"], key_BHT2: Float[Tensor, "B H T 2"]) -> Float[Tensor, "B H S T"]:
    """Return the sum of each query less that of each key, [B, H, S, T], from the parts that ``accumulate`` made."""
    high_BHST = query_BHS2[..., 0, None] - key_BHT2[..., None, :, 0]
    # Neighbours nearly cancel in the high parts; the remainders then carry the digits that are left.
    low_BHST = query_BHS2[..., 1, None] - key_BHT2[..., None, :, 1]
    return high_BHST + low_BHST
