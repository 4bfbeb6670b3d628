"""A bias that fits into one more channel of the keys, so that the plain fused kernel serves.

Where the rows of a bias differ by a constant each, as those of -m·(i - j) do, softmax cannot tell them apart, and one
row is enough: queries gain a channel of ones, keys that row. Hidden keys fit into the same channel.
"""

from __future__ import annotations

import torch

from clockhands.schemes.attend.reference import Visible
from clockhands.schemes.attend.whole import LOW, fused
from clockhands.shapes import Bool, Float, Tensor

WIDEST, WIDEST_LOW = 80.0, 1024.0


def fits(row_BHT: Float[Tensor, "#B H T"], dtype: torch.dtype) -> Bool[Tensor, " H"]:
    """Which heads' rows span so few logits that a channel can hold them.

    Past 80 there are weights below float32's normal numbers, each of which costs an Intel core a hundred others; up to
    there the sum with q·k is wrong by 2^-18 at most. Two bfloat16 channels hold 17 bits: 2^-8 of 512, their own digits.
    """
    widest = WIDEST_LOW if dtype in LOW else WIDEST
    return (row_BHT.amax(-1) - row_BHT.amin(-1)).amax(0) <= widest


def maskable(visible_BHST: Visible | None, causal: bool, queries: int, keys: int) -> bool:
    """Whether a channel can say who is hidden: whole keys, and by ``is_causal``, which aligns top left."""
    return (visible_BHST is None or visible_BHST.shape[2] == 1) and (not causal or queries == keys)


def columned(
    q_BHSK: Float[Tensor, "B H S K"],
    k_BHTK: Float[Tensor, "B H T K"],
    v_BHTK: Float[Tensor, "B H T Kv"],
    row_BHT: Float[Tensor, "#B H T"],
    visible_BHST: Visible | None,
    causal: bool,
    scale: float,
) -> Float[Tensor, "B H S Kv"]:
    """Attention whose bias is ``row`` and a constant for every query, under a ``maskable`` mask.

    16-bit types take two channels, a high and a low part. Their gradient of the row would be a sum of 8-bit numbers
    that cancel: a row that collects one is for another kernel.
    """
    middle_BH1 = (row_BHT.amax(-1, keepdim=True) + row_BHT.amin(-1, keepdim=True)).detach() / 2
    row_BHT = (row_BHT - middle_BH1) / scale
    parts = [row_BHT.to(q_BHSK.dtype)]
    if q_BHSK.dtype in LOW:
        parts.append((row_BHT - parts[0]).to(q_BHSK.dtype))
    if visible_BHST is not None:
        parts[0] = parts[0].masked_fill(~visible_BHST[:, :, 0], torch.finfo(q_BHSK.dtype).min / 2)
    q = torch.cat([q_BHSK, q_BHSK.new_ones(()).expand(*q_BHSK.shape[:3], len(parts))], dim=-1)
    k = torch.cat([k_BHTK, *(part[..., None].expand(*k_BHTK.shape[:3], 1) for part in parts)], dim=-1)
    out = fused(q, k, v_BHTK, is_causal=causal, scale=scale)
    return out if visible_BHST is None else out.masked_fill(_blind(visible_BHST, causal)[..., None], 0.0)


def _blind(visible_BHST: Visible, causal: bool) -> Bool[Tensor, "#B #H S"]:
    """Queries that see no key."""
    seen_BHT = visible_BHST[:, :, 0]
    return seen_BHT.cumsum(-1) == 0 if causal else ~seen_BHT.any(-1, keepdim=True)
