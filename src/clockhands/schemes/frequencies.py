"""The hands of the clock: frequencies, angles, and their cosines and sines, exact at any position.

Frequencies are functions of the options and are never buffers: a model cast to bfloat16, or built on the meta device,
cannot spoil them (docs/traps.md, 1 and 5).
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F

from clockhands.errors import PositionError
from clockhands.schemes.position_checks import is_traced
from clockhands.shapes import Float, Int, Num, Tensor

Exponent = Literal["paper", "tensor2tensor"]
Layout = Literal["interleaved", "half"]
"""Which channels are a pair: (2c, 2c + 1), or (c, c + r/2) of the r channels that pair up."""
STRIDE = 64
"""Positions of a block whose cosines and sines are those of the first, multiplied (``_compute_consecutive``)."""


def choose_angle_dtype(device: torch.device) -> torch.dtype:
    """Return the dtype of angles: float64, but float32 on ``mps``, the one device that has no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def compute_frequencies(
    width: int, base: float, exponent: Exponent = "paper", device: torch.device | str | None = None
) -> Float[Tensor, " F"]:
    """Return ω_c = base^(-2c/width) (paper) or base^(-c/(width/2 - 1)) (tensor2tensor): [F], float64.

    c runs from 0 to width/2 - 1, the number of pairs.
    """
    half = width // 2
    device = torch.device("cpu" if device is None else device)
    # tensor2tensor: the last of the pairs has exactly 1/base; one pair alone has 1.
    index_F = torch.arange(half, dtype=choose_angle_dtype(device), device=device)
    return torch.pow(base, -2 * index_F / width if exponent == "paper" else -index_F / max(half - 1, 1))


def compute_angles(pos: Num[Tensor, "*B"], omega_F: Float[Tensor, " F"]) -> Float[Tensor, "*B F"]:
    """Compute pos·ω in float64: in float32 the angle is off by 2e-2 at position 1,000,000 (trap 3)."""
    # float64 holds a million times θ to ten digits after the point, float32 to one.
    dtype = choose_angle_dtype(pos.device)
    return pos.to(dtype)[..., None] * omega_F.to(pos.device, dtype)


def compute_cos_sin(
    pos: Num[Tensor, "*B"], omega_F: Float[Tensor, " F"], dtype: torch.dtype = torch.float32
) -> tuple[Float[Tensor, "*B F"], Float[Tensor, "*B F"]]:
    """Compute cos(pos·ω) and sin(pos·ω) in float64, rounded once to ``dtype``."""
    if _are_consecutive(pos):
        sine, cosine = _compute_consecutive(pos, omega_F, dtype).unbind(-1)
        return cosine.contiguous(), sine.contiguous()
    repeated = _find_repeated(pos)
    if repeated is not None:
        every, index = repeated
        cosine, sine = compute_cos_sin(every, omega_F, dtype)
        return F.embedding(index, cosine), F.embedding(index, sine)
    angle = compute_angles(pos, omega_F)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def compute_sin_cos_pairs(
    pos: Num[Tensor, "*B"], omega_F: Float[Tensor, " F"], dtype: torch.dtype = torch.float32
) -> Float[Tensor, "*B F 2"]:
    """Compute sin(pos·ω) and cos(pos·ω) beside each other, as the paper lays them out; exact as ``compute_cos_sin``."""
    if _are_consecutive(pos):
        return _compute_consecutive(pos, omega_F, dtype)
    cosine, sine = compute_cos_sin(pos, omega_F, dtype)
    return torch.stack([sine, cosine], dim=-1)


def _find_repeated(pos: Num[Tensor, "*B"]) -> tuple[Int[Tensor, " N"], Int[Tensor, "B S"]] | None:
    """Return the N positions between the least and the greatest, and each one's index among them; None if N is large.

    Rows of a batch repeat one another: computed once and looked up, their sines cost a tenth. None on an accelerator.
    """
    if pos.dim() != 2 or pos.shape[0] == 1 or not pos.numel() or pos.dtype != torch.int64:
        return None
    if pos.device.type != "cpu" or is_traced():
        return None
    least, greatest = torch.aminmax(pos)
    low, high = int(least), int(greatest)
    return (torch.arange(low, high + 1), pos - low) if 4 * (high - low + 1) <= pos.numel() else None


def _compute_consecutive(
    pos: Num[Tensor, "1 S"], omega_F: Float[Tensor, " F"], dtype: torch.dtype
) -> Float[Tensor, "1 S F 2"]:
    """Compute sine and cosine of consecutive positions by the addition theorem, e^{i(a+b)} = e^{ia}·e^{ib}.

    One multiplication in complex float64 takes the place of two functions, with a a multiple of ``STRIDE`` and b below
    it. One block at a time stays in the processor's cache. sin θ + i cos θ is e^{i(π/2 - θ)}.
    """
    length = pos.shape[1]
    high_NF = _make_unit_numbers(math.pi / 2 - compute_angles(pos[0, ::STRIDE], omega_F))
    low_MF = _make_unit_numbers(-compute_angles(torch.arange(STRIDE, device=pos.device), omega_F))
    out_SF = torch.empty(length, len(omega_F), dtype=dtype.to_complex(), device=pos.device)
    for start, high_F in zip(range(0, length, STRIDE), high_NF, strict=True):
        out_SF[start : start + STRIDE] = (high_F * low_MF)[: length - start]
    return torch.view_as_real(out_SF)[None]


def _make_unit_numbers(angle: Float[Tensor, "*B F"]) -> Tensor:
    """Return e^{iθ} of angles θ: complex, [..., F]."""
    return torch.polar(torch.ones_like(angle), angle)


def _are_consecutive(pos: Num[Tensor, "*B"]) -> bool:
    """Tell whether these are one row of many integers, each one more than the last; False on an accelerator."""
    if pos.dim() != 2 or pos.device.type != "cpu" or is_traced():  # before any size: one program for every length
        return False
    if pos.shape[0] != 1 or pos.shape[1] < 4 * STRIDE or pos.is_floating_point():
        return False
    return bool((pos[0].diff() == 1).all())


def lay_out_channels(
    cosine: Float[Tensor, "*B F"], sine: Float[Tensor, "*B F"], layout: Layout
) -> Float[Tensor, "*B P"]:
    """Lay sines and cosines out over 2F channels: sin, cos, sin, ... or, with ``half``, all sines, then all cosines."""
    if layout == "half":
        return torch.cat([sine, cosine], dim=-1)
    return torch.stack([sine, cosine], dim=-1).flatten(-2)


def choose_working_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of cosines, sines and complex products for heads of this dtype: float32 at least."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def take_axis(
    pos: Num[Tensor, "B ..."],
    scheme: str,
    axis: int | None = None,
    advice: str = "choose a scheme for several axes, or pass one of them",
) -> Num[Tensor, ...]:
    """Return one coordinate of positions, without the coordinate axis: [B, S], or [B, H, S] where heads have their own.

    ``axis``: its index, from 0 on; None: positions have one coordinate, and ``advice`` is what the refusal of several
    says to do. Raises PositionError for positions without that coordinate, and for several where ``axis`` is None.
    """
    if pos.dim() <= 2 and not axis:
        return pos if pos.dim() == 2 else pos[None]
    count = 1 if pos.dim() <= 2 else pos.shape[-1]
    if axis is None and count > 1:
        raise PositionError(f"{scheme} reads one coordinate, and these positions have {count}; {advice}")
    if axis is not None and axis >= count:
        raise PositionError(
            f"{scheme}.axis is {axis}, counted from 0, and these positions have {count} coordinates; set it to at "
            f"most {count - 1}, or pass positions with more coordinates"
        )
    return pos[..., axis or 0]


def pair_coordinates(
    qpos_BSA: Num[Tensor, "B S A"], kpos_BTA: Num[Tensor, "Bk T Ak"], scheme: str
) -> list[tuple[Tensor, Tensor]]:
    """Return each coordinate of queries and keys, [B, S] and [B, T]. Raises PositionError if they have not as many."""
    check_axes(kpos_BTA, qpos_BSA.shape[-1], scheme)
    return list(zip(qpos_BSA.unbind(-1), kpos_BTA.unbind(-1), strict=True))


def check_axes(pos: Num[Tensor, "B ..."], axes: int, scheme: str) -> Num[Tensor, "B ..."]:
    """Return positions with their coordinate axis; a single coordinate may leave it out.

    Raises PositionError otherwise.
    """
    if axes == 1:
        return take_axis(pos, scheme)[..., None]
    if pos.dim() <= 2 or pos.shape[-1] != axes:
        given_axes = 1 if pos.dim() <= 2 else pos.shape[-1]
        raise PositionError(
            f"{scheme} encodes {axes} coordinates, and these positions have {given_axes}; make them with "
            f"positions.make_grid, or with positions.repeat_on_axes for text"
        )
    return pos


def take_shared_row(pos: Num[Tensor, "B ..."]) -> Num[Tensor, "B2 ..."]:
    """Return one row if all rows are the same memory (an expanded tensor), so that work is done once; else all rows."""
    return pos[:1] if pos.shape[0] > 1 and pos.stride(0) == 0 else pos
