"""Fit how an attention turns its queries or keys: which channels in pairs, and by which angle at each position.

Of rows of one token each, a query at position p is a linear map of the query at position 0. A rotation mixes each
channel with one partner, so that the map is two numbers for each channel and position: amplitude · cosine and sine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from clockhands.checking.fitting.compare import find_factor, is_near, size_of, wrap

PairLayout = Literal["halves", "pairs"]
LAYOUT_WORDS: dict[PairLayout, str] = {"halves": "halves", "pairs": "neighbouring pairs"}
_TOLERANCE = 1e-3


@dataclass(frozen=True)
class FittedRotation:
    """How vectors of ``width`` channels turn: ``count`` of them from ``start``, laid out in halves or pairs.

    ``first_SC`` and ``second_SC`` are the angles of the first and second member of each pair at S positions; they are
    equal in a rotation. ``amplitude_C`` is the length after moving over that before. ``count`` is 0 where nothing
    turns. All channels are ``gain`` times as long as those of the plain vectors, ``amplitude_C`` aside.
    """

    width: int
    start: int
    count: int
    layout: PairLayout
    first_SC: Tensor
    second_SC: Tensor
    amplitude_C: Tensor
    gain: float = 1.0

    @property
    def channels(self) -> tuple[Tensor, Tensor]:
        """The first and the second member of each pair."""
        return find_pairs(self.start, self.count, self.layout)

    @cached_property
    def speeds_C(self) -> Tensor:
        """The angle of each pair from one position to the next."""
        return fit_speeds(self.first_SC)

    @property
    def is_rotation(self) -> bool:
        """Whether both members of every pair turn by one angle."""
        return same_angles(self.first_SC, self.second_SC)

    @property
    def rotates(self) -> bool:
        """Whether it is a rotation, and not of no channel."""
        return self.count > 0 and self.is_rotation

    @property
    def rotated_SC(self) -> Tensor:
        """The angles since position 0."""
        return self.first_SC - self.first_SC[:1]

    def keeps(self, speeds_C: Tensor) -> bool:
        """Whether every angle since position 0 is that of its position, at one speed for each pair."""
        return self.is_rotation and same_angles(self.rotated_SC, multiply_by_place(speeds_C, len(self.first_SC)))

    def matrices(self, places: Tensor | None = None) -> Tensor:
        """Return the linear map of each place, [..., width, width]: by default of those that were read, [S]."""
        angles = [self.first_SC, self.second_SC]
        if places is not None:
            for side, part in enumerate(angles):
                speeds = fit_speeds(part)
                # Far out, at place 40,000, what is read is too coarse: powers of a base are then taken as such.
                base = find_base(speeds.abs(), multiply_by_place(speeds.abs(), 8))
                speeds = speeds if base is None else speeds.sign() * base ** -_exponents(speeds)
                angles[side] = part[:1] + places.double()[..., None] * speeds
        shape = angles[0].shape[:-1]
        maps = torch.eye(self.width, dtype=torch.float64, device=angles[0].device).repeat(*shape, 1, 1)
        if self.count:
            a, b = self.channels
            maps[..., a, a], maps[..., a, b] = angles[0].cos() * self.amplitude_C, -angles[0].sin() * self.amplitude_C
            maps[..., b, b], maps[..., b, a] = angles[1].cos() * self.amplitude_C, angles[1].sin() * self.amplitude_C
        return maps * self.gain

    def move(self, x_BHSK: Tensor, by_BS: Tensor) -> Tensor:
        """Rotate vectors further, by so many places."""
        a, b = self.channels
        angles = by_BS[:, None, :, None].double() * self.speeds_C
        moved, first, second = x_BHSK.double().clone(), x_BHSK[..., a].double(), x_BHSK[..., b].double()
        moved[..., a] = first * angles.cos() - second * angles.sin()
        moved[..., b] = first * angles.sin() + second * angles.cos()
        return moved


def find_pairs(start: int, count: int, layout: PairLayout) -> tuple[Tensor, Tensor]:
    """Return the channels of the first and second members of the pairs."""
    channels = torch.arange(start, start + count)
    return (channels[::2], channels[1::2]) if layout == "pairs" else (channels[: count // 2], channels[count // 2 :])


def fit_rotation(x_NSK: Tensor, plain: Tensor | None = None) -> FittedRotation | None:
    """Fit how N vectors turn over S positions, from ``plain`` ones: [N, K] of one token each, or [N, S, K].

    By default from those at position 0. None where they do otherwise than mix pairs of channels: other positions enter,
    or the map is no rotation.
    """
    x = x_NSK.double()
    plain = (x[:, 0] if plain is None else plain).double()
    still, plain = (x[:, :1], plain[:, None].expand_as(x)) if plain.dim() == 2 else (plain, plain)
    size = max(1e-12, size_of(plain))
    length, width = x.shape[1:]
    moved = ((x - still).abs().amax((0, 1)) / size > 2e-6).nonzero().flatten().tolist()
    if not moved:
        gain = find_factor(x, plain, size_of(plain))
        empty = x.new_zeros(length, 0)
        return None if gain is None else FittedRotation(width, 0, 0, "halves", empty, empty, empty[0], gain)
    # The channels that were seen to turn, and a few more, since slow ones hardly move.
    first, seen = moved[0], moved[-1] + 1 - moved[0]
    seen += seen % 2
    for count in (seen, *(n for n in (width // 4, width // 2, 3 * width // 4, width) if n > seen and n % 2 == 0)):
        for start in dict.fromkeys((first, 0, width - count)):
            for layout in LAYOUT_WORDS if start + count <= width else ():
                fitted = _fit_pairs(x, plain, size, start, count, layout)
                if fitted is not None:
                    return fitted
    return None


def _fit_pairs(
    x: Tensor, plain: Tensor, size: float, start: int, count: int, layout: PairLayout
) -> FittedRotation | None:
    a, b = find_pairs(start, count, layout)
    rest = torch.ones(x.shape[-1], dtype=torch.bool)
    rest[a], rest[b] = False, False
    still = plain[..., rest]
    gain = find_factor(x[..., rest], still, size_of(still)) if rest.any() else 1.0
    if gain is None:
        return None
    x = x / gain
    angles, lengths = [], []
    for own, other, sign in ((a, b, -1), (b, a, 1)):
        # Least squares of each channel on its own and its partner's value at position 0.
        p, q, y = plain[..., own], plain[..., other], x[..., own]
        pp, qq, pq = (p * p).sum(0), (q * q).sum(0), (p * q).sum(0)
        py, qy = (y * p).sum(0), (y * q).sum(0)
        determinant = (pp * qq - pq * pq).clamp(min=1e-12)
        cosine, sine = (py * qq - qy * pq) / determinant, (qy * pp - py * pq) / determinant
        if size_of(y - cosine * p - sine * q) > _TOLERANCE * size:
            return None
        angles.append(torch.atan2(sign * sine, cosine))
        lengths.append(torch.hypot(cosine, sine))
    amplitude = lengths[0].mean(0)
    if any(size_of(length - amplitude) > 10 * _TOLERANCE for length in lengths):
        return None
    return FittedRotation(x.shape[-1], start, count, layout, angles[0], angles[1], amplitude, gain)


def scales_by_place(q_BHSK: Tensor, k_BHTK: Tensor) -> bool:
    """Whether queries of one token grow or shrink along its places, by one factor for all heads: a temperature.

    Where that is all, their products with the keys follow the distance alone without it.
    """
    factors = q_BHSK.norm(dim=-1, keepdim=True) / q_BHSK[..., :1, :].norm(dim=-1, keepdim=True)
    alike = size_of(factors - factors[:1, :1]) < _TOLERANCE < size_of(factors - 1)
    products = q_BHSK / factors @ k_BHTK.repeat_interleave(q_BHSK.shape[1] // k_BHTK.shape[1], 1).mT
    return alike and is_near(products[..., 1:, 1:], products[..., :-1, :-1], size_of(products))


def turns_on_ellipses(q_BHSK: Tensor, k_BHTK: Tensor) -> bool:
    """Whether pairs of one token turn on ellipses along its places, alike in all heads: of gains for each channel.

    Where that is all, their products follow the distance alone once each ellipse is made a circle.
    """
    for layout in LAYOUT_WORDS:
        circles = [_make_circles(x.double(), layout) for x in (q_BHSK, k_BHTK)]
        if any(circle is not None for circle in circles):
            q, k = (x if circle is None else circle for circle, x in zip(circles, (q_BHSK, k_BHTK), strict=True))
            products = q.double() @ k.double().repeat_interleave(q.shape[1] // k.shape[1], 1).mT
            return is_near(products[..., 1:, 1:], products[..., :-1, :-1], size_of(products), 0.05)
    return False


def _make_circles(x_BHSK: Tensor, layout: PairLayout) -> Tensor | None:
    """Return vectors whose pairs turn on circles, where they turn on ellipses; None where they do not."""
    a, b = find_pairs(0, x_BHSK.shape[-1] // 2 * 2, layout)
    pairs = torch.stack([x_BHSK[..., a], x_BHSK[..., b]], -1).transpose(2, 3)  # [B, H, C, S, 2]
    moving_C = (pairs.amax(3) - pairs.amin(3)).amin((0, 1, 3)) > 0.02 * size_of(pairs)
    if not moving_C.any():
        return None
    squares = pairs[:, :, moving_C].square()  # w_a x_a² + w_b x_b² = 1
    ones = squares.new_ones(*squares.shape[:-1], 1)
    weights = torch.linalg.lstsq(squares, ones).solution[..., 0]
    if size_of(squares @ weights[..., None] - ones) > 10 * _TOLERANCE:
        return None
    gains = weights[..., 0] / weights[..., 1]
    if gains.shape[1] < 2 or size_of(gains / gains[:, :1] - 1) >= 0.01 or size_of(gains - 1) <= 0.01:
        return None
    circles = x_BHSK.clone()
    circles[..., a[moving_C]] *= gains.sqrt()[:, :, None]
    return circles


def fit_speeds(angles_SC: Tensor) -> Tensor:
    """Return the angle of each pair a position: from the first step, and made exact step by step further out."""
    rotated = angles_SC - angles_SC[:1]
    speed = wrap(rotated[1])
    for place in range(2, len(rotated)):
        speed = speed + wrap(rotated[place] - place * speed) / place
    return speed


def multiply_by_place(speeds_C: Tensor, length: int) -> Tensor:
    """Return the angles [S, C] since position 0 at constant speeds."""
    return torch.arange(length, dtype=torch.float64, device=speeds_C.device)[:, None] * speeds_C


def same_angles(ours: Tensor, other: Tensor) -> bool:
    """Whether two tables of angles [S, C] are equal, whole turns aside."""
    return ours.shape == other.shape and bool((wrap(ours - other).abs() < _TOLERANCE).all())


def find_base(speeds_C: Tensor, angles_SC: Tensor) -> float | None:
    """Return the base of which the speeds are powers, base^(-2c/width); None if they are none."""
    if len(speeds_C) < 2 or (speeds_C <= 0).any() or abs(float(speeds_C[0]) - 1) > 1e-4:
        return None
    exponents = _exponents(speeds_C)
    weights = speeds_C**2 * exponents**2  # an angle is known to within a constant, so a slow pair says less
    logarithm = float(-(weights * speeds_C.log() / exponents.clamp(min=1e-9))[1:].sum() / weights[1:].sum())
    base = float(f"{math.exp(logarithm):.4g}")
    for candidate in (float(f"{base:.2g}"), float(f"{base:.3g}"), base):
        if same_angles(angles_SC - angles_SC[:1], multiply_by_place(candidate**-exponents, len(angles_SC))):
            return candidate
    return None


def _exponents(speeds_C: Tensor) -> Tensor:
    return torch.arange(len(speeds_C), dtype=torch.float64, device=speeds_C.device) / len(speeds_C)
